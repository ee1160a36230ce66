"""K: kinds of reads, each compared with the same read of a native collection, rows and time."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import bson
import pymongo
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from bench.context import Context
from bench.kinds import all_kinds
from bench.kinds.comparing import differences
from bench.kinds.kind import INDEXES, Document, Kind, Times
from bench.kinds.rows import SHAPE_OPTIONS, STATES, State, fill, makeup
from bench.kinds.verdict import PAST, allowed_ms
from bench.results import Sample
from bench.settling import settle, wait_until_compressed
from bench.targets import NATIVE, PLAIN, PROXY, Collection, Target

NAME = "kinds"
MEASUREMENTS = 18_000
"""Size of the set, unless ``--measurements`` is smaller."""
MOST_ROUNDS = 5
"""At most this many times ``--repeat`` rounds; rounds end when the read is fast enough."""
PATIENCE_SECONDS = 6.0
"""A kind that is too slow is not repeated for longer than this."""

READS_IN_A_TURN = 3
"""Reads of a target before the next one reads, because the first read finds the other's data in the caches."""

SMOKE_STEP = 12
"""``--smoke`` reads one in this many kinds."""
INDEX = "indexed"

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True, slots=True)
class Reader:
    """A client of one target, and the collection there."""

    client: pymongo.MongoClient[Document]
    collection: Collection

    def create_indexes(self) -> None:
        """Those of the states with an index."""
        for keys in INDEXES:
            self.client[self.collection.database][self.collection.name].create_index(list(keys.items()))

    def read(self, kind: Kind) -> tuple[float, list[bytes]]:
        """Seconds until the last row is there, and the rows."""
        command = kind.of(self.collection.name)
        database = self.client[self.collection.database]
        with self.client.start_session() as session:
            begin = time.perf_counter()
            reply = database.command(command, codec_options=_RAW, session=session)
            if "cursor" not in reply:
                seconds = time.perf_counter() - begin
                return seconds, _values(reply)
            cursor = reply["cursor"]
            rows = list(cursor["firstBatch"])
            name = str(cursor["ns"]).split(".", 1)[1]
            while cursor["id"]:
                more = {"getMore": cursor["id"], "collection": name}
                size = command.get("batchSize", command.get("cursor", {}).get("batchSize"))
                more |= {"batchSize": size} if size else {}
                cursor = database.command(more, codec_options=_RAW, session=session)["cursor"]
                rows += cursor["nextBatch"]
            seconds = time.perf_counter() - begin
        return seconds, [row.raw for row in rows]


def _values(reply: RawBSONDocument) -> list[bytes]:
    """The result of ``count`` or ``distinct`` as rows."""
    values = reply["values"] if "values" in reply else [reply["n"]]
    return [bson.encode({"value": value}) for value in values]


class Sweep:
    """K."""

    name = "K"

    def _kinds(self, context: Context, prefix: str, times: Times) -> list[Kind]:
        """The kinds that are wanted of a state with or without an index, whose cases begin with ``prefix``."""
        has_index = prefix.endswith(f" {INDEX}")
        wanted = [
            kind
            for kind in all_kinds(times)
            if context.settings.cases in f"{prefix} · {kind.name}" and (has_index or not kind.needs_index)
        ]
        return wanted[:: SMOKE_STEP if context.settings.smoke else 1]

    def _states(self, context: Context) -> list[State]:
        """The states that are wanted."""
        now = dt.datetime.now(dt.UTC)
        wanted = [state for state in STATES if any(self._kinds(context, p, Times(now, now)) for p in _prefixes(state))]
        return wanted[: 1 if context.settings.smoke else None]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        now = dt.datetime.now(dt.UTC)
        states = self._states(context)
        kinds = [self._kinds(context, prefix, Times(now, now)) for state in states for prefix in _prefixes(state)]
        return 2 * (len(states) + sum(map(len, kinds))) if context.site.proxy_port is not None else 0

    def run(self, context: Context) -> Iterator[Sample]:
        """All states; a state's set is dropped before the next one is written."""
        if context.site.proxy_port is None:
            return
        for state in self._states(context):
            with ExitStack() as stack:
                yield from self._run_state(context, state, stack)

    def _run_state(self, context: Context, state: State, stack: ExitStack) -> Iterator[Sample]:
        measurements = min(MEASUREMENTS, context.settings.measurements)
        if context.settings.smoke:
            state, measurements = replace(state, series=30), 900
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        times = state.times(measurements, now)
        readers = {}
        for target in context.site.targets():
            context.say(f"K writing {state.name} · {target.name}")
            readers[target.name] = _filled(context, target, state, measurements, times, stack)
            if target.time_series:
                stored = makeup(context.site.direct, readers[target.name].collection.database, NAME)
                yield Sample(self.name, f"{state.name} · stored", target.name, 0, stored)
        for prefix in _prefixes(state):
            if prefix.endswith(f" {INDEX}"):
                for reader in readers.values():
                    reader.create_indexes()
            for kind in self._kinds(context, prefix, times):
                context.say(f"K {prefix} · {kind.name}")
                yield from self._measure(context, f"{prefix} · {kind.name}", kind, readers)

    def _measure(self, context: Context, case: str, kind: Kind, readers: Mapping[str, Reader]) -> Iterator[Sample]:
        try:
            told = _wrong(kind, readers)
            milliseconds = _with_past(context, kind, readers)
            past = {PAST: milliseconds[PAST]} if not _is_fast(milliseconds) else {}
        except PyMongoError as error:
            told, milliseconds, past = f"{type(error).__name__}: {error}"[:1000], {}, {}
        for target, more in ((NATIVE, {}), (PROXY, past)):
            metrics = {} if told else {"least_ms": milliseconds[target], **more}
            yield Sample(self.name, case, target, 0, metrics, told)


def _prefixes(state: State) -> tuple[str, str]:
    """How the cases of a state begin, in the order in which they are measured."""
    return f"{state.name} · not indexed", f"{state.name} · {INDEX}"


def _filled(
    context: Context, target: Target, state: State, measurements: int, times: Times, stack: ExitStack
) -> Reader:
    database = f"bench_kinds_{state.name}_{target.name}"
    client = stack.enter_context(target.client())
    stack.callback(client.drop_database, database)
    client[database].create_collection(NAME, **(SHAPE_OPTIONS if target.time_series else {}))  # type: ignore[arg-type]
    plainly = state if target.time_series else replace(state, batch=1000, connections=1)
    fill(client[database], NAME, plainly, measurements, times)
    collection = Collection(target, database, NAME)
    if target.through_proxy and not context.settings.smoke:
        settle(context.site, collection, measurements)
        if state.settles:
            wait_until_compressed(context.site, database)
    return Reader(client, collection)


def _wrong(kind: Kind, readers: Mapping[str, Reader]) -> str:
    """How the rows differ; empty if they do not. Between two reads with ``$$NOW``, a row may become too old."""
    judge = PLAIN if kind.only_plain_is_right else NATIVE
    told = ""
    for _ in range(3):
        told = differences(kind, readers[judge].read(kind)[1], readers[PROXY].read(kind)[1])
        if not told:
            break
    return told


def _least(context: Context, kind: Kind, readers: Mapping[str, Reader]) -> dict[str, float]:
    """The least milliseconds of each target, which read some times each in turns, until the proxy is fast enough."""
    least = dict.fromkeys(readers, float("inf"))
    begin = time.monotonic()
    for turn in range(MOST_ROUNDS * context.settings.repeat):
        for target in readers if turn % 2 else reversed(list(readers)):
            for _ in range(READS_IN_A_TURN):
                least[target] = min(least[target], readers[target].read(kind)[0] * 1000)
        is_long = time.monotonic() - begin > PATIENCE_SECONDS
        if turn + 1 >= context.settings.repeat and (is_long or _is_fast(least)):
            break
    return least


def _is_fast(least: Mapping[str, float]) -> bool:
    return least[PROXY] <= allowed_ms(least[NATIVE])


def _with_past(context: Context, kind: Kind, readers: Mapping[str, Reader]) -> dict[str, float]:
    """``_least``, and if the read is too slow, again beside the same read of the same buckets past the proxy."""
    compared = {target: readers[target] for target in (NATIVE, PROXY)}
    first = _least(context, kind, compared)
    if _is_fast(first):
        return first
    past = Reader(context.site.direct, readers[PROXY].collection)
    again = _least(context, kind, {NATIVE: readers[NATIVE], PAST: past, PROXY: readers[PROXY]})
    return {target: min(least, first.get(target, least)) for target, least in again.items()}
