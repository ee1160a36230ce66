"""Two honest clients: one whose waits are measured, one with heavy work. Each runs in a process of its own."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import bson
import pymongo
from bson import Int64, ObjectId
from pymongo.errors import PyMongoError

from tests.fuzz.doors import Door, raw_message
from tests.support.raw_rows import digest, split

DATABASE = "honest"
HEAVY = "heavy"
WITNESS = "witness"
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
ALONE, ATTACKED, OVER = 0, 1, 2
PACE_SECONDS = 0.01
FIND_EVERY = 20
MOST_BATCHES = 15
SESSION = bson.Binary(bytes(range(16)), 4)
"""The id of the measured client's session, which is no secret here: hostile users send it, too."""


@dataclass
class Measured:
    """What the measured client saw; times in seconds, by phase."""

    waits: dict[int, list[float]] = field(default_factory=lambda: {ALONE: [], ATTACKED: []})
    finds: dict[int, list[float]] = field(default_factory=lambda: {ALONE: [], ATTACKED: []})
    acknowledged: dict[ObjectId, bytes] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


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
    """Single inserts at a steady pace, now and then a find, until the phase is over; sends a ``Measured``."""
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
    slowest_seconds: float = 0.0
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

    def delete(self) -> None:
        """The measurements of one earlier batch."""
        batch = self._chance.choice([*self._live])
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
        began = time.monotonic()
        try:
            match self._chance.randrange(10):
                case _ if len(self._live) > MOST_BATCHES:
                    self.delete()
                case 0:
                    self.insert(20 * self._size, 50)
                case 1:
                    self.aggregate()
                case 2 | 3 if self._live:
                    self.delete()
                case _:
                    self.insert(self._size, 5000)
        except PyMongoError as error:
            self.work.errors[repr(error)[:300]] += 1
        self.work.slowest_seconds = max(self.work.slowest_seconds, time.monotonic() - began)

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


def heavy(door: Door, native: Door, phase: Any, results: Connection, seed: int, size: int = 5000) -> None:
    """Batches of ``size`` into 5,000 series and 20 times as large ones, deletes, aggregates, while others attack."""
    os.nice(5)
    client = _Heavy(door, native, seed, size)
    try:
        while (now := phase.value) != OVER:
            if now == ATTACKED:
                client.step()
            time.sleep(0.02)
        client.check()
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
