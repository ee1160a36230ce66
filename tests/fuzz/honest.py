"""Two honest clients: one whose waits are measured, one with heavy work. Each runs in a process of its own."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import bson
import pymongo
from bson import Int64, ObjectId
from pymongo.errors import PyMongoError

from tests.fuzz.doors import Door, raw_message
from tests.fuzz.report import ALONE, ATTACKED
from tests.support.raw_rows import digest, split

DATABASE = "honest"
HEAVY = "heavy"
WITNESS = "witness"
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
OVER = 2
"""The phase after ``ALONE`` and ``ATTACKED``."""
BETWEEN = 3
"""What hostile clients left behind, or the heavy client has under way, ends; who waits meanwhile does not count."""
PACE_SECONDS = 0.01
FIND_EVERY = 20
HELLO_EVERY = 5
SLOW_SECONDS = 5.0
"""Steps of the heavy client that take longer are told."""
LARGE = 20
"""A large insert has so many times the rows of a usual one."""
SMALL = 10
"""A batch that is deleted has so many times fewer."""
NICENESS = 5
"""Of the heavy and the hostile clients, which would have machines of their own: what it costs to make their messages is
not the servers' work. On Linux it is that of the calling thread."""
_HELLO = raw_message({"hello": 1, "$db": "admin"})
"""The proxy answers it without the backend, so how long it takes is the proxy's doing alone."""
SESSION = bson.Binary(bytes(range(16)), 4)
"""The id of the measured client's session, which is no secret here: hostile users send it, too."""


@dataclass
class Measured:
    """What the measured client saw; times in seconds, by phase."""

    waits: dict[int, list[float]] = field(default_factory=lambda: {ALONE: [], ATTACKED: [], BETWEEN: []})
    finds: dict[int, list[float]] = field(default_factory=lambda: {ALONE: [], ATTACKED: [], BETWEEN: []})
    hellos: dict[int, list[float]] = field(default_factory=lambda: {ALONE: [], ATTACKED: [], BETWEEN: []})
    acknowledged: dict[ObjectId, bytes] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def _leave_signals_to_the_run() -> None:
    # Ctrl-C reaches every process of the terminal; the run tells its clients when they are to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _measurement(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "t": START + dt.timedelta(milliseconds=number * 10),
        "m": {"sensor": number % 50},
        "_id": ObjectId(),
        "value": chance.random(),
        "count": Int64(chance.getrandbits(60)),
        "text": "x" * (number % 30),
        "nested": {"b": number, "a": [1.0, None, {"deep": chance.random()}]},
    }


def measured(door: Door, phase: Any, results: Connection, seed: int) -> None:
    """Single inserts at a steady pace, now and then a find or a hello, until the phase ends; sends a ``Measured``."""
    _leave_signals_to_the_run()
    chance = random.Random(seed)
    seen = Measured()
    caller = door.enter()
    number = chance.randrange(1 << 24)
    # As drivers do: one session, and statements that may be repeated.
    session = {"lsid": {"id": SESSION}} if door.user else {}
    transaction = int(time.time() * 1000)
    due = time.monotonic()
    with suppress(BrokenPipeError):
        while (now_phase := phase.value) != OVER:
            due = max(due + PACE_SECONDS, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
            number += 1
            raw = bson.encode(_measurement(number, chance))
            identity = bson.decode(raw)["_id"]
            transaction += 1
            statement = {**session, "txnNumber": Int64(transaction)} if session else {}
            insert = raw_message({"insert": "ts", "$db": DATABASE, **statement}, sequence=("documents", [raw]))
            find = raw_message(
                {"find": "ts", "filter": {"_id": identity, "m.sensor": number % 50}, "$db": DATABASE, **session}
            )
            try:
                began = time.perf_counter()
                reply = bson.decode(caller.ask(insert))
                seen.waits[now_phase].append(time.perf_counter() - began)
                if reply.get("ok") != 1 or reply.get("n") != 1:
                    seen.errors[str(reply.get("writeErrors") or reply.get("errmsg"))[:300]] += 1
                    continue
                seen.acknowledged[identity] = digest(raw)
                if number % HELLO_EVERY == 0:
                    began = time.perf_counter()
                    caller.ask(_HELLO)
                    seen.hellos[now_phase].append(time.perf_counter() - began)
                if number % FIND_EVERY == 0:
                    began = time.perf_counter()
                    found = bson.decode(caller.ask(find))
                    seen.finds[now_phase].append(time.perf_counter() - began)
                    rows = found["cursor"]["firstBatch"] if found.get("ok") == 1 else []
                    if [each["_id"] for each in rows] != [identity]:
                        seen.wrong.append(f"a find of {identity} right after its insert gave {str(found)[:500]}")
            except (OSError, KeyError) as error:
                seen.errors[repr(error)[:300]] += 1
                caller.close()
                caller = _again(door, phase)
    caller.close()
    results.send(seen)


def witness(native: Door, phase: Any, results: Connection, seed: int) -> None:
    """The same past the proxy, at a tenth of the pace: what the machine and the backend do to anybody at that time."""
    _leave_signals_to_the_run()
    seen = Measured()
    chance = random.Random(seed)
    with native.client() as client:
        rows = client[WITNESS].ts
        while (now_phase := phase.value) != OVER:
            time.sleep(10 * PACE_SECONDS)
            began = time.perf_counter()
            rows.insert_one(_measurement(chance.randrange(1 << 24), chance))
            seen.waits[now_phase].append(time.perf_counter() - began)
    results.send(seen)


def _again(door: Door, phase: Any) -> Any:
    while True:
        try:
            return door.enter()
        except OSError:
            time.sleep(0.2)


# --- the heavy one ---------------------------------------------------------------------------------------------------


@dataclass
class HeavyWork:
    """What the heavy client did, and what it saw that was wrong."""

    rows: int = 0
    deleted: int = 0
    values: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    """Seconds, by kind of step."""
    slow: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class _Heavy:
    def __init__(self, door: Door, native: Door, seed: int, size: int) -> None:
        self.work = HeavyWork()
        self._chance = random.Random(seed)
        self._client = door.client(socketTimeoutMS=120_000)
        self._native = native.client()
        self._live: dict[int, Counter[bytes]] = {}
        self._unsure: set[int] = set()
        self._small: list[int] = []
        self._batch = seed << 20
        self._size = size

    def close(self) -> None:
        self._client.close()
        self._native.close()

    def insert(self, count: int, series: int) -> None:
        """Rows at random times into so many series, in one call of the driver."""
        self._batch += 1
        rows = [
            {
                "t": START + dt.timedelta(milliseconds=self._chance.randrange(86_400_000)),
                "m": self._chance.randrange(series),
                "_id": ObjectId(),
                "b": self._batch,
                "v": self._chance.random(),
                "s": "y" * self._chance.randrange(20),
            }
            for _ in range(count)
        ]
        self._live[self._batch] = Counter(digest(bson.encode(each)) for each in rows)
        self._unsure.add(self._batch)
        self._client[HEAVY].ts.insert_many(rows, ordered=self._chance.random() < 0.3)
        self._unsure.discard(self._batch)
        self.work.rows += count

    def insert_small(self) -> None:
        """What a delete can take apart soon."""
        self.insert(self._size // SMALL, 5000)
        self._small.append(self._batch)

    def delete(self) -> None:
        """The measurements of one earlier small batch."""
        batch = self._small.pop(self._chance.randrange(len(self._small)))
        expected = sum(self._live[batch].values())
        sure = batch not in self._unsure
        self._unsure.add(batch)
        deleted = self._client[HEAVY].ts.delete_many({"b": batch}).deleted_count
        if sure and deleted != expected:
            self.work.wrong.append(f"a deleteMany of {expected} measurements deleted {deleted}")
        del self._live[batch]
        self._unsure.discard(batch)
        self.work.deleted += deleted

    def aggregate(self) -> None:
        stages = [
            {"$group": {"_id": "$m", "n": {"$sum": 1}, "v": {"$avg": "$v"}, "s": {"$addToSet": "$s"}}},
            {"$sort": {"v": 1}},
        ]
        list(self._client[HEAVY].ts.aggregate(stages, allowDiskUse=True))

    def step(self) -> None:
        """One of them at random; how long it took is kept."""
        kind, work = self._choose()
        rows_before, deleted_before = self.work.rows, self.work.deleted
        began = time.monotonic()
        try:
            work()
        except PyMongoError as error:
            self.work.errors[f"{kind}: {error!r}"[:300]] += 1
        seconds = time.monotonic() - began
        self.work.steps[kind] += 1
        self.work.longest[kind] = max(self.work.longest.get(kind, 0.0), seconds)
        if seconds > SLOW_SECONDS:
            rows = self.work.rows - rows_before + self.work.deleted - deleted_before
            self.work.slow.append(f"{kind} of {rows} rows {seconds:.1f} s")

    def _choose(self) -> tuple[str, Callable[[], None]]:
        match self._chance.randrange(10):
            case 0:
                return "large insert", partial(self.insert, LARGE * self._size, 50)
            case 1:
                return "aggregate", self.aggregate
            case 2 | 3 if self._small:
                return "delete", self.delete
            case 4 | 5:
                return "small insert", self.insert_small
            case _:
                return "insert", partial(self.insert, self._size, 5000)

    def check(self) -> None:
        """All that lives is stored, bit for bit, and nothing else but what was never acknowledged."""
        stored: dict[int, Counter[bytes]] = {}
        for chunk in self._native[HEAVY].ts.find_raw_batches({}, batch_size=20_000):
            for raw in split(chunk):
                stored.setdefault(bson.decode(raw)["b"], Counter())[digest(raw)] += 1
                self.work.values += 6
        for batch, rows in self._live.items():
            there = stored.pop(batch, Counter())
            if batch not in self._unsure and there != rows:
                self.work.wrong.append(
                    f"batch {batch}: {(rows - there).total()} rows lost, {(there - rows).total()} strange"
                )
            elif strange := there - rows:
                self.work.wrong.append(f"batch {batch} (unsure): {strange.total()} rows are strange")
        strange = {batch: rows.total() for batch, rows in stored.items() if batch not in self._unsure}
        if strange:
            self.work.wrong.append(f"rows that were deleted are back: {strange}")

    def leave_nothing(self) -> None:
        """Delete all rows, so that the next round compares its own."""
        rows = self._client[HEAVY].ts
        rows.delete_many({})
        if left := self._native[HEAVY].ts.count_documents({}):
            self.work.wrong.append(f"{left} rows are left after all were deleted")


def heavy(door: Door, native: Door, phase: Any, results: Connection, seed: int, size: int = 1000) -> None:
    """Batches of ``size`` into 5,000 series and large ones into 50, deletes, aggregates, while others attack.

    A delete by what is no meta value takes every bucket apart that holds such a row, one after the other, and each
    takes as long as a write of the backend under that load (servers before 7.0 refuse such deletes). So what is deleted
    is small enough that a step, and with it a round, ends soon.
    """
    _leave_signals_to_the_run()
    os.nice(NICENESS)
    client = _Heavy(door, native, seed, size)
    try:
        while (now := phase.value) != OVER:
            if now == ATTACKED:
                client.step()
            time.sleep(0.02)
        client.check()
        client.leave_nothing()
    finally:
        client.close()
    results.send(client.work)


def check_measured(native: pymongo.MongoClient[dict[str, Any]], acknowledged: dict[ObjectId, bytes]) -> list[str]:
    """What of the measured client's rows is not stored exactly once, bit for bit, read past the proxy."""
    found: Counter[ObjectId] = Counter()
    wrong: list[str] = []
    for chunk in native[DATABASE].ts.find_raw_batches({}, batch_size=20_000):
        for raw in split(chunk):
            identity = bson.decode(raw)["_id"]
            found[identity] += 1
            if identity in acknowledged and acknowledged[identity] != digest(raw):
                wrong.append(f"changed: {bson.decode(raw)}")
    wrong += [f"lost: {each}" for each in acknowledged if each not in found]
    wrong += [f"stored {count} times: {each}" for each, count in found.items() if count > 1]
    return wrong
