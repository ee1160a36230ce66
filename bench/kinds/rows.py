"""The set that the kinds of reads are measured on, in each of the states in which buckets are found."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pymongo
from bson import ObjectId

from bench.kinds.kind import PARTNER, Document, Times
from catalog.parts import bucket_key

STEP_SECONDS = 20
SHAPE_OPTIONS = {"timeseries": {"timeField": "time", "metaField": "m"}}


@dataclass(frozen=True, slots=True)
class State:
    """How a set is written. ``late``: one in this many measurements is two hours late, 0 for none."""

    name: str
    series: int
    batch: int = 2
    """Measurements in an insert. Larger inserts may be relayed, and then the buckets are native ones."""
    connections: int = 8
    late: int = 0
    settles: bool = False
    """Whether reads begin when the proxy has joined and compressed what it can."""

    def times(self, measurements: int, now: dt.datetime) -> Times:
        """When the measurements begin and end; they end now."""
        steps = max(1, measurements // self.series)
        first = now - dt.timedelta(seconds=STEP_SECONDS * steps)
        return Times(first, first + dt.timedelta(seconds=STEP_SECONDS * (steps - 1)))

    def rows(self, measurements: int, times: Times) -> Iterator[Document]:
        """The measurements in the order in which they are written; the same for the same arguments."""
        chance = random.Random(7)
        for number in range(measurements):
            step, series = divmod(number, self.series)
            seconds = STEP_SECONDS * step
            if self.late and number % self.late == 0:
                seconds -= 7195
            yield _row(chance, number, series, step, times.first + dt.timedelta(seconds=seconds))


STATES = (
    State("open", series=150),
    State("joined", series=30, connections=16),
    State("compressed", series=30, settles=True),
    State("late", series=30, late=11),
)


def _row(chance: random.Random, number: int, series: int, step: int, time: dt.datetime) -> Document:
    value = chance.randrange(400) / 4
    row: Document = {"_id": number, "time": time, "m": meta(series), "v": value, "n": chance.randrange(100)}
    row |= {"counter": step, "s": chance.choice(("alpha", "beta", "gamma", "delta")), "flag": value < 50}
    if number % 4:
        row["w"] = chance.randrange(80) / 8
    row |= {"o": {"a": chance.randrange(10), "b": {"c": chance.randrange(40) / 8}}}
    row |= {"list": [chance.randrange(100), chance.randrange(100)], "d": time - dt.timedelta(minutes=series)}
    return row | {"place": {"type": "Point", "coordinates": [float(chance.randrange(10)), float(chance.randrange(10))]}}


def meta(series: int) -> Document:
    """The meta value of a series."""
    return {"host": f"host_{series:03d}", "rack": series % 5, "tags": ["odd" if series % 2 else "even", "x"]}


def partners(state: State, times: Times) -> list[Document]:
    """The documents of the ordinary collection that joins read."""
    return [
        {
            "_id": series,
            "host": f"host_{series:03d}",
            "next": f"host_{(series + 1) % state.series:03d}",
            "since": times.at(0.9),
            "minutes": 10,
            "least": 95,
        }
        for series in range(state.series)
    ]


def fill(database: Any, name: str, state: State, measurements: int, times: Times) -> None:
    """Write the set, and what joins need, into a collection that exists."""
    documents = list(state.rows(measurements, times))
    batches = [documents[at : at + state.batch] for at in range(0, len(documents), state.batch)]
    collection = database[name]
    if state.connections == 1:
        for batch in batches:
            collection.insert_many(batch, ordered=False)
    else:
        _write_together(collection, batches, state.connections)
    database[PARTNER].insert_many(partners(state, times))


def _write_together(collection: Any, batches: Sequence[Sequence[Document]], connections: int) -> None:
    """Write neighbouring batches at the same time, so that times are nearly in order."""
    with ThreadPoolExecutor(connections) as pool:
        for _ in pool.map(lambda batch: collection.insert_many(batch, ordered=False), batches):
            pass


def makeup(client: pymongo.MongoClient[Document], database: str, name: str) -> dict[str, float]:
    """How the buckets are stored: their number, and how many are compressed."""
    buckets = client[database][f"system.buckets.{name}"]
    return {
        "buckets": float(buckets.count_documents({})),
        "compressed": float(buckets.count_documents({"control.version": 2})),
        "part_ids": float(len({bucket_key(ObjectId(row["_id"]).binary) for row in buckets.find({}, {"_id": 1})})),
    }
