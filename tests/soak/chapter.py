"""One chapter: new collections, writers, faults at random, and at the end every row is read back and compared.

With several proxies, the writers of each write to the same series, and rest together now and then, so that buckets of
one proxy are given up, and another one absorbs them (``tests.soak.together``).
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import bson
from bson.codec_options import CodecOptions
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from catalog import kernel
from catalog.kernel import headers
from tests.soak.headers import wrong_headers
from tests.soak.ledger import Key, Ledger, keys_of
from tests.soak.together import Together, target_for
from tests.soak.writers import Crowd, Tally, Target, Threaded, Writer
from tests.support.generated_rows import document, element, metas, template, text
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_rows import split
from tests.support.stored_metas import stored_metas

THREADS, CROWD = 4, 12
SHOWN = 20
MOST_AT_CHECKPOINT, MOST_AT_END = 400, 5_000
"""Buckets of each collection whose headers are compared."""
COLLECTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("seconds", {"timeField": "t", "metaField": "m", "granularity": "seconds"}),
    ("minutes", {"timeField": "t", "metaField": "m", "granularity": "minutes"}),
    ("hours", {"timeField": "t", "metaField": "m", "granularity": "hours"}),
    ("without", {"timeField": "t"}),
)
CLIENTS: tuple[dict[str, Any], ...] = (
    {"retryWrites": True},
    {"retryWrites": False, "compressors": "zlib"},
    {"retryWrites": True, "maxPoolSize": 1},
    {"retryWrites": False},
)
GROWTH = ("auto", "in_parts", "in_parts", "in_parts", "in_place", "native")
GATHER_SECONDS = 3.5
"""Quiet for so long, buckets of several proxies become one."""
LONGEST_GATHER_SECONDS = 30.0
"""What is waited for until the first buckets have become one."""
ABSORBED = "tsproxy_peer_buckets_absorbed_total"
LINKED_SECONDS = 30.0
COUNTS = ("1000", "1000", "50", "50", "7")
PATIENCE = {"serverSelectionTimeoutMS": 8000, "socketTimeoutMS": 20_000}
UNPACK = {"$_internalUnpackBucket": {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}}


@dataclass
class Account:
    """What became of one or more chapters."""

    values: int = 0
    comparisons: int = 0
    rows: int = 0
    in_doubt: int = 0
    buckets: int = 0
    compressed: int = 0
    joined: int = 0
    absorbed: int = 0
    headers: int = 0
    events: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        tally = self.tally
        return (
            f"{self.values} values compared ({self.comparisons} times a value), {self.rows} rows acknowledged, "
            f"{self.in_doubt} in doubt, {tally.inserts} inserts, {tally.deletes} deletes of {tally.deleted} rows, "
            f"{tally.single_deletes} deletes of one row, {tally.taken} rows taken out by findAndModify, "
            f"{tally.updates} changes of meta, {self.headers} headers compared with their rows, "
            f"{self.joined} joined, {self.absorbed} absorbed, "
            f"{self.compressed} of {self.buckets} buckets compressed, "
            f"{dict(self.events)}, refused {dict(tally.refused)}, errors {dict(tally.errors)}, "
            f"{len(self.violations)} violations"
        )


class Chapter:
    """``folder`` is for logs, ``findings`` for what is found wrong."""

    def __init__(
        self,
        folder: Path,
        backend: MongodProcess,
        seed: str,
        findings: Path,
        *,
        equal_ids: bool = True,
        faults: bool = True,
        proxies: int = 1,
        collections: int = len(COLLECTIONS),
    ) -> None:
        """``collections``: in how many of ``COLLECTIONS`` the writers write; all proxies together use one more."""
        self.account = Account()
        self.seed = seed
        self._chance = random.Random(seed)
        self._backend = backend
        self._collections = COLLECTIONS[:collections]
        self._findings = findings
        self._equal_ids = equal_ids
        self._faults = faults
        self._database = f"soak_{crc32(seed.encode())}"
        self._link = Link(backend.port)
        self._proxies = [
            ProxyProcess(folder / f"proxy_{self._database}_{number}", self._link.uri) for number in range(proxies)
        ]
        self._targets: list[Target] = []
        self._together: Together | None = None

    def run(self, seconds: float) -> Account:
        with ExitStack() as stack:
            stack.enter_context(self._link)
            for proxy in self._proxies:
                stack.callback(proxy.stop)
            self._prepare()
            for proxy in self._proxies:
                self._start(proxy)
            self._wait_for_links()
            self._write(seconds)
            # For joins and compression, which wait for a quiet moment.
            time.sleep(GATHER_SECONDS if self._are_several else seconds / 15)
            self._compare()
            if not self.account.violations:
                self._backend.shared_client.drop_database(self._database)
        return self.account

    @property
    def _are_several(self) -> bool:
        return len(self._proxies) > 1

    # --- before ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        chance = self._chance
        with self._backend.client() as client:
            database = client[self._database]
            for name, options in self._collections:
                database.create_collection(name, timeseries=options)
                sent = metas(chance, 24)
                private = {
                    number: [element("m", (2, text(f"writer {number} {each}"))) for each in range(3)]
                    + [
                        element("m", (3, document(element("w", (0x10, bytes((number, each, 0, 0)))))))
                        for each in range(3)
                    ]
                    for number in range(THREADS + CROWD)
                }
                everything = [*sent, *(each for own in private.values() for each in own)]
                stored = {each: each for each in everything}
                if "metaField" in options:
                    stored = stored_metas(database, everything)
                kinds = [template(chance) for _ in range(16)]
                if chance.random() < 0.3:
                    kinds.append(template(chance, large=True))
                self._targets.append(Target(name, options, kinds, sent, Ledger(stored), private))
            if self._are_several:
                target = target_for(chance, database)
                self._together = Together(self.seed, target, self.account.tally)
                self._targets.append(target)

    def _wait_for_links(self) -> None:
        end = time.monotonic() + LINKED_SECONDS
        while any(each.metrics()["tsproxy_peers_linked"] < len(self._proxies) - 1 for each in self._proxies):
            if time.monotonic() > end:
                raise TimeoutError("the proxies do not find one another")
            time.sleep(0.1)

    def _start(self, proxy: ProxyProcess) -> None:
        chance = self._chance
        flags = [
            "--server-selection-timeout-ms",
            "8000",
            "--compress-after-seconds",
            chance.choice(("0.2", "0.5", "0.5", "2", "60")),
        ]
        flags += ["--write-strategy", "in_parts" if self._are_several else chance.choice(GROWTH)]
        flags += ["--timeseries-bucket-max-count", chance.choice(COUNTS[: -1 if self._are_several else None])]
        proxy.flags = tuple(flags)
        proxy.start()

    # --- meanwhile -------------------------------------------------------------------------------------------------

    def _write(self, seconds: float) -> None:
        journaled = {"w": "majority", "j": True} if self._backend.replica_set else {"w": 1, "j": True}
        concern = WriteConcern(**journaled)
        targets = self._targets if self._together is None else self._targets[:-1]
        made = [
            Writer(number, self.seed, targets, self.account.tally, equal_ids=self._equal_ids)
            for number in range(THREADS + CROWD)
        ]
        uris = [proxy.uri for proxy in self._proxies]
        writers: list[Threaded | Crowd] = [
            Threaded(made[number], uris[number % len(uris)], self._database, concern, {**PATIENCE, **CLIENTS[number]})
            for number in range(THREADS if targets else 0)
        ]
        for number, uri in enumerate(uris if targets else ()):
            writers.append(Crowd(made[THREADS + number :: len(uris)], uri, self._database, concern))
        for writer in writers:
            writer.start()
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, self._chance.uniform(2, 8)) if targets else 0.0)
                if self._faults and left > min(8.0, seconds / 3):
                    self._event()
                if self._together is not None:
                    self._together.write(uris, self._database, concern, PATIENCE)
                    end += self._rest(writers)
        finally:
            self._link.release()
            for writer in writers:
                writer.end()
            for writer in writers:
                writer.join(120)
                if writer.is_alive():
                    self.account.violations.append("a writer does not end")
        self.account.violations += self.account.tally.wrong

    def _rest(self, writers: Sequence[Threaded | Crowd]) -> float:
        """Let them write nothing until buckets have become one; how long. A busy machine takes longer."""
        began = time.monotonic()
        for writer in writers:
            writer.is_quiet = True
        time.sleep(GATHER_SECONDS)
        while time.monotonic() < began + LONGEST_GATHER_SECONDS and not self._has_absorbed():
            time.sleep(0.5)
        for writer in writers:
            writer.is_quiet = False
        return time.monotonic() - began

    def _has_absorbed(self) -> bool:
        with suppress(OSError):
            return any(proxy.metrics().get(ABSORBED, 0) for proxy in self._proxies)
        return False

    def _one(self) -> ProxyProcess:
        return self._chance.choice(self._proxies)

    def _event(self) -> None:
        table: tuple[tuple[str, Callable[[], None]], ...] = (
            ("restarts", self._restart),
            ("restarts", self._restart),
            ("kills", self._kill),
            ("backend kills", self._kill_backend),
            ("cuts", self._link.cut_all),
            ("cuts", lambda: self._link.cut_before_replies(3, least_bytes=300)),
            ("cuts", lambda: self._link.cut_before_requests(3, least_bytes=300)),
            ("holds", self._hold),
        )
        name, event = self._chance.choice(table)
        self.account.events[name] += 1
        event()

    def _restart(self) -> None:
        proxy = self._one()
        self._note_joins(proxy)
        proxy.stop()
        self._judge_headers(kernel, MOST_AT_CHECKPOINT)
        self._start(proxy)

    def _kill(self) -> None:
        proxy = self._one()
        self._note_joins(proxy)
        proxy.kill()
        self._judge_headers(kernel, MOST_AT_CHECKPOINT)
        self._start(proxy)

    def _judge_headers(self, form: Any, most: int) -> None:
        """Of so many buckets of each collection, past the proxy, by this form of the kernel."""
        database = self._backend.shared_client[self._database]
        for target in self._targets:
            try:
                pipeline = [{"$sample": {"size": most}}]
                documents = [
                    raw
                    for chunk in database[f"system.buckets.{target.name}"].aggregate_raw_batches(pipeline)
                    for raw in split(chunk)
                ]
            except PyMongoError:
                continue  # the backend was killed just now
            self.account.headers += len(documents)
            for wrong in wrong_headers(documents, target.options, form):
                self.account.violations.append(f"{self.seed}: {target.name}: {wrong}")

    def _kill_backend(self) -> None:
        self._backend.kill()
        time.sleep(self._chance.uniform(0, 2))
        self._backend.start()

    def _hold(self) -> None:
        self._link.hold()
        time.sleep(self._chance.uniform(0, 3))
        self._link.release()

    def _note_joins(self, proxy: ProxyProcess) -> None:
        try:
            metrics = proxy.metrics()
        except OSError:
            return
        self.account.joined += int(sum(value for name, value in metrics.items() if "joined" in name))
        self.account.absorbed += int(metrics.get(ABSORBED, 0))
        if wrong := metrics.get("tsproxy_invariant_violations_total"):
            self.account.violations.append(
                f"the proxy counted {wrong:.0f} violations of its invariants:\n{proxy.log[-3000:]}"
            )

    # --- afterwards ------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        account = self.account
        for target in self._targets:
            account.rows += target.ledger.rows
            account.in_doubt += target.ledger.in_doubt
        for proxy in self._proxies:
            with proxy.client(**PATIENCE) as client:
                for target in self._targets:
                    self._look(
                        "through the proxy",
                        target,
                        lambda target=target, client=client: client[self._database][target.name].find_raw_batches({}),
                    )
            self._note_joins(proxy)
        for proxy in self._proxies:
            # A read past the proxy may meet what is being joined twice, so nothing may be under way.
            (proxy.kill if self._faults and self._chance.random() < 0.3 else proxy.stop)()
            if "Traceback" in proxy.log:
                account.violations.append(f"a traceback in the log:\n{proxy.log[-6000:]}")
        self._judge_headers(headers, MOST_AT_END)
        database = self._backend.shared_client[self._database]
        for target in self._targets:
            buckets = database[f"system.buckets.{target.name}"]
            account.buckets += buckets.count_documents({})
            account.compressed += buckets.count_documents({"control.version": 2})
            unpack = {"$_internalUnpackBucket": {**UNPACK["$_internalUnpackBucket"]}}
            if "metaField" not in target.options:
                del unpack["$_internalUnpackBucket"]["metaField"]
            self._look("past it", target, lambda target=target: database[target.name].find_raw_batches({}))
            self._look(
                "from the buckets",
                target,
                partial(buckets.aggregate_raw_batches, [{"$sort": {"_id": -1}}, unpack], allowDiskUse=True),
            )

    def _look(self, way: str, target: Target, read: Callable[[], Iterable[bytes]]) -> None:
        """Every row, one way; again when the connection was lost, as may happen right after a fault."""
        for attempts_left in reversed(range(4)):
            try:
                kept: dict[Key, bytes] = {}
                stored = Counter(keys_of((raw for chunk in read() for raw in split(chunk)), kept))
                break
            except PyMongoError as error:
                if not attempts_left:
                    self.account.violations.append(f"{self.seed}: {target.name} cannot be read {way}: {error!r}")
                    return
                time.sleep(1)
        values, missing, strange = target.ledger.compare(stored)
        self.account.comparisons += values
        if way == "past it":
            self.account.values += values
        if missing or strange:
            self._tell(way, target, missing, strange, kept)

    def _tell(
        self, way: str, target: Target, missing: Counter[Key], strange: Counter[Key], kept: dict[Key, bytes]
    ) -> None:
        what = f"{self.seed}: {target.name} {way}: {missing.total()} rows missing, {strange.total()} strange"
        self.account.violations.append(what)
        self._findings.mkdir(parents=True, exist_ok=True)
        path = self._findings / f"{self._database}_{target.name}_{way.replace(' ', '_')}.json"
        told = {
            "what": what,
            "growth": [proxy.flags for proxy in self._proxies],
            "missing": [_shown(target.ledger.raw[key[1]], count, key[0]) for key, count in missing.most_common(SHOWN)],
            "strange": [
                _shown(kept[key], count, key[0], key[1] in target.ledger.raw)
                for key, count in strange.most_common(SHOWN)
            ],
            "logs": [proxy.log[-10_000:] for proxy in self._proxies],
        }
        path.write_text(json.dumps(told, indent=1))


def _shown(raw: bytes, count: int, meta: bytes, known: bool | None = None) -> dict[str, Any]:
    try:
        decoded = repr(
            bson.decode(raw, CodecOptions(datetime_conversion=bson.codec_options.DatetimeConversion.DATETIME_MS))
        )
    except (bson.errors.BSONError, ValueError) as error:
        decoded = repr(error)
    shown: dict[str, Any] = {
        "count": count,
        "decoded": decoded[:20_000],
        "raw": raw.hex()[:200_000],
        "meta": meta.hex(),
    }
    if known is not None:
        shown["the same row was sent with another meta or too often"] = known
    return shown
