"""The busiest collections, found in bounded turns."""

from __future__ import annotations

import asyncio

import pytest

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.buckets.stats import Counters
from catalog.namespaces import Namespace, TimeseriesOptions, VirtualCollection
from proxy.observe import busiest as module
from proxy.observe.busiest import LOOK_SECONDS, LOOKED_AT_ONCE, MOST_SHOWN, BusiestCollections


def collection(name: str, measurements: int = 0, commits: int = 0) -> CollectionBuckets:
    virtual = VirtualCollection(Namespace("d", name), TimeseriesOptions("t", None, "seconds", 3_600, 60))
    return CollectionBuckets(virtual, Counters(numMeasurementsCommitted=measurements, numCommits=commits))


class World:
    def __init__(self, *collections: CollectionBuckets) -> None:
        self.collections = list(collections)
        self.now_seconds = 50.0
        self.busiest = BusiestCollections(lambda: self.collections, lambda: self.now_seconds)

    async def shown(self) -> list[tuple[str, float, float]]:
        """Names, measurements per second and per batch, ten seconds later."""
        self.now_seconds += LOOK_SECONDS
        await self.busiest.look_when_due()
        documents = [each.as_document(self.busiest.seconds) for each in self.busiest.shown]
        return [(each["collection"], each["measurementsPerSecond"], each["measurementsPerBatch"]) for each in documents]


async def test_increases_since_the_last_look_count() -> None:
    first, second = collection("first", 400, 100), collection("second", 1_000, 10)
    world = World(first, second)
    assert await world.shown() == [("d.second", 100.0, 100.0), ("d.first", 40.0, 4.0)]
    first.counters.numMeasurementsCommitted += 50
    first.counters.numCommits += 20
    assert await world.shown() == [("d.first", 5.0, 2.5)]
    assert await world.shown() == []


async def test_a_collection_that_was_dropped_counts_from_0() -> None:
    world = World(collection("c", 1_000, 10))
    await world.shown()
    world.collections = [collection("c", 30, 3)]
    assert await world.shown() == [("d.c", 3.0, 10.0)]


async def test_nothing_is_looked_at_too_often() -> None:
    world = World(collection("c", 10, 1))
    world.now_seconds += LOOK_SECONDS / 2
    await world.busiest.look_when_due()
    assert (world.busiest.shown, world.busiest.total) == ([], 0)


async def test_thousands_are_looked_at_in_turns() -> None:
    world = World(*(collection(f"c{number}", number, 1) for number in range(5 * LOOKED_AT_ONCE)))
    world.now_seconds += LOOK_SECONDS
    looking = asyncio.create_task(world.busiest.look())
    turns = 0
    while not looking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5
    names = [each.namespace.collection for each in world.busiest.shown]
    assert names == [f"c{number}" for number in range(5 * LOOKED_AT_ONCE - 1, 5 * LOOKED_AT_ONCE - 1 - MOST_SHOWN, -1)]


async def test_a_limited_number_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COLLECTIONS", 3)
    world = World(*(collection(f"c{number}", 1, 1) for number in range(8)))
    assert len(await world.shown()) == 3
    assert (world.busiest.total, world.busiest.examined) == (8, 3)
