"""One chapter: new collections, writers, faults at random, and at the end every row is read back and compared."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import bson
from bson.codec_options import CodecOptions
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from catalog import headers, kernel
from tests.soak.headers import wrong_headers
from tests.soak.ledger import Key, Ledger, keys_of
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
            f"{tally.updates} changes of meta, {self.headers} headers compared with their rows, {self.joined} joined, "
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
    ) -> None:
        self.account = Account()
        self.seed = seed
        self._chance = random.Random(seed)
        self._backend = backend
        self._findings = findings
        self._equal_ids = equal_ids
        self._faults = faults
        self._database = f"soak_{crc32(seed.encode())}"
        self._link = Link(backend.port)
        self._proxy = ProxyProcess(folder / f"proxy_{self._database}", self._link.uri)
        self._targets: list[Target] = []

    def run(self, seconds: float) -> Account:
        with ExitStack() as stack:
            stack.enter_context(self._link)
            stack.callback(self._proxy.stop)
            self._prepare()
            self._start_proxy()
            self._write(seconds)
            time.sleep(seconds / 15)  # for joins and compression, which wait for a quiet moment
            self._compare()
            if not self.account.violations:
                self._backend.shared_client.drop_database(self._database)
        return self.account

    # --- before ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        chance = self._chance
        with self._backend.client() as client:
            database = client[self._database]
            for name, options in COLLECTIONS:
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

    def _start_proxy(self) -> None:
        chance = self._chance
        flags = [
            "--server-selection-timeout-ms",
            "8000",
            "--compress-after-seconds",
            chance.choice(("0.2", "0.5", "0.5", "2", "60")),
        ]
        flags += ["--write-strategy", chance.choice(GROWTH)]
        flags += ["--timeseries-bucket-max-count", chance.choice(("1000", "1000", "50", "50", "7"))]
        self._proxy.flags = tuple(flags)
        self._proxy.start()

    # --- meanwhile -------------------------------------------------------------------------------------------------

    def _write(self, seconds: float) -> None:
        journaled = {"w": "majority", "j": True} if self._backend.replica_set else {"w": 1, "j": True}
        concern = WriteConcern(**journaled)
        made = [
            Writer(number, self.seed, self._targets, self.account.tally, equal_ids=self._equal_ids)
            for number in range(THREADS + CROWD)
        ]
        writers: list[Threaded | Crowd] = [
            Threaded(made[number], self._proxy.uri, self._database, concern, {**PATIENCE, **CLIENTS[number]})
            for number in range(THREADS)
        ]
        writers.append(Crowd(made[THREADS:], self._proxy.uri, self._database, concern))
        for writer in writers:
            writer.start()
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, self._chance.uniform(2, 8)))
                if self._faults and left > min(8.0, seconds / 3):
                    self._event()
        finally:
            self._link.release()
            for writer in writers:
                writer.end()
            for writer in writers:
                writer.join(120)
                if writer.is_alive():
                    self.account.violations.append("a writer does not end")
        self.account.violations += self.account.tally.wrong

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
        self._note_joins()
        self._proxy.stop()
        self._judge_headers(kernel, MOST_AT_CHECKPOINT)
        self._start_proxy()

    def _kill(self) -> None:
        self._note_joins()
        self._proxy.kill()
        self._judge_headers(kernel, MOST_AT_CHECKPOINT)
        self._start_proxy()

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

    def _note_joins(self) -> None:
        try:
            metrics = self._proxy.metrics()
        except OSError:
            return
        self.account.joined += int(sum(value for name, value in metrics.items() if "joined" in name))
        if wrong := metrics.get("tsproxy_invariant_violations_total"):
            self.account.violations.append(
                f"the proxy counted {wrong:.0f} violations of its invariants:\n{self._proxy.log[-3000:]}"
            )

    # --- afterwards ------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        account = self.account
        for target in self._targets:
            account.rows += target.ledger.rows
            account.in_doubt += target.ledger.in_doubt
        with self._proxy.client(**PATIENCE) as client:
            for target in self._targets:
                self._look(
                    "through the proxy",
                    target,
                    lambda target=target: client[self._database][target.name].find_raw_batches({}),
                )
        self._note_joins()
        # A read past the proxy may meet what is being joined twice, so nothing may be under way.
        (self._proxy.kill if self._faults and self._chance.random() < 0.3 else self._proxy.stop)()
        if "Traceback" in self._proxy.log:
            account.violations.append(f"a traceback in the log:\n{self._proxy.log[-6000:]}")
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
            "growth": self._proxy.flags,
            "missing": [_shown(target.ledger.raw[key[1]], count, key[0]) for key, count in missing.most_common(SHOWN)],
            "strange": [
                _shown(kept[key], count, key[0], key[1] in target.ledger.raw)
                for key, count in strange.most_common(SHOWN)
            ],
            "log": self._proxy.log[-10_000:],
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
