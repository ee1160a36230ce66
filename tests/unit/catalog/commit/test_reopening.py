"""Looks at the backend for buckets that can go on (W50)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from catalog.commit.reopening import Reopening
from catalog.errors import CommandError
from catalog.growth.lookup_cost import ALLOWANCE_SECONDS
from catalog.namespaces import VirtualCollection
from tests.support.catalog_parts import (
    HOUR_MS,
    START_MS,
    CatalogBench,
    CountingIds,
    ScriptedStore,
    measurement,
)


def bench_with(store: ScriptedStore, **options: object) -> tuple[CatalogBench, Reopening]:
    bench = CatalogBench(reopening=True, **options)  # type: ignore[arg-type]
    return bench, Reopening(bench.catalog, store, bench.clock, 10)


def document_of(offset_ms: int, meta: object = "a", rows: int = 1, **fields: object) -> bytes:
    other = CatalogBench(ids=CountingIds(100 + offset_ms % 97))
    (batch,) = other.stage(*(measurement(offset_ms + row, meta, **fields) for row in range(rows)))
    batch.claim()
    return batch.bucket.state.prepare(batch.measurements)


async def test_opening_tells_until_when_buckets_are_stored() -> None:
    store = ScriptedStore()
    store.until_ms = START_MS
    bench, reopening = bench_with(store)
    bench.stage(measurement())
    await reopening.open(bench.buckets)
    assert bench.buckets.stored_until_ms == START_MS
    (lookup,) = bench.catalog.take_lookups()
    assert len(lookup.wanted) == 1


async def test_opening_that_fails_costs_nothing_but_new_buckets() -> None:
    store = ScriptedStore()
    store.unreadable = CommandError(6, "away")
    bench, reopening = bench_with(store)
    bench.stage(measurement())
    await reopening.open(bench.buckets)
    assert bench.buckets.stored_until_ms is None
    assert len(bench.catalog.take_unclaimed()) == 1
    assert bench.buckets.counters.numBucketQueriesFailed == 1


async def test_stored_bucket_goes_on() -> None:
    store = ScriptedStore()
    document = document_of(0, rows=3)
    store.documents[b"x"] = document
    bench, reopening = bench_with(store, stored_until_ms=START_MS)
    bench.stage(measurement(9))
    (lookup,) = bench.catalog.take_lookups()
    await reopening.look_up(lookup)
    (batch,) = bench.catalog.take_unclaimed()
    batch.claim()
    bench.catalog.prepare(batch)
    assert batch.base == 3
    assert bench.buckets.counters.numBucketsQueried == 1


async def test_of_several_the_latest_start_is_taken() -> None:
    """W50"""
    store = ScriptedStore()
    for offset_ms in (-HOUR_MS // 2, -HOUR_MS // 4, -HOUR_MS // 3):
        store.documents[str(offset_ms).encode()] = document_of(offset_ms)
    bench, reopening = bench_with(store, stored_until_ms=START_MS)
    bench.stage(measurement())
    await reopening.look_up(bench.catalog.take_lookups()[0])
    (batch,) = bench.catalog.take_unclaimed()
    assert batch.bucket.state.start_ms == measurement(-HOUR_MS // 4).time_ms // 60_000 * 60_000


async def test_what_does_not_fit_or_is_no_bucket_is_left() -> None:
    store = ScriptedStore()
    store.documents[b"early"] = document_of(-2 * HOUR_MS)
    store.documents[b"other meta"] = document_of(0, meta=1.0)
    store.documents[b"no bucket"] = b"\x05\0\0\0\0"
    store.documents[b"names that repeat"] = document_of(0, o={"p": 1, "q": 1}).replace(b"\x10q\0", b"\x10p\0")
    bench, reopening = bench_with(store, stored_until_ms=START_MS)
    bench.stage(measurement(meta="a"), measurement(meta=1))
    await reopening.look_up(bench.catalog.take_lookups()[0])
    assert {batch.bucket.state.committed_rows for batch in bench.catalog.take_unclaimed()} == {0}
    assert bench.buckets.counters.numBucketsReopened == 0


async def test_look_up_is_given_up_if_those_before_it_were_slow() -> None:
    """Many wait for their turn at once, after the first rows of many series."""
    store = ScriptedStore()
    store.documents[b"x"] = document_of(0, rows=3)
    bench, reopening = bench_with(store, stored_until_ms=START_MS)
    bench.stage(measurement(9))
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.growth.looked_up(bench.buckets, 1, bench.clock.monotonic_seconds() - 2 * ALLOWANCE_SECONDS)
    await reopening.look_up(lookup)
    (batch,) = bench.catalog.take_unclaimed()
    batch.claim()
    bench.catalog.prepare(batch)
    assert batch.base == 0
    counters = bench.buckets.counters
    assert (counters.numBucketsQueried, counters.numBucketQueriesFailed) == (0, 0)


async def test_look_that_fails_costs_nothing_but_a_new_bucket() -> None:
    store = ScriptedStore()
    store.unreadable = CommandError(6, "away")
    bench, reopening = bench_with(store, stored_until_ms=START_MS)
    bench.stage(measurement(), measurement(-HOUR_MS))
    await reopening.look_up(bench.catalog.take_lookups()[0])
    assert len(bench.catalog.take_unclaimed()) == 2
    assert bench.catalog.take_lookups() == []


class HeldReads(ScriptedStore):
    """Look-ups are held until ``gate`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.counts: list[int] = []

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        self.counts.append(len(wanted))
        await self.gate.wait()
        return await super().find_reopenable(collection, wanted, deadline_seconds)


async def staged_apart(store: HeldReads, *sizes: int) -> tuple[CatalogBench, list[asyncio.Task[None]]]:
    """Look-ups for so many series each, one after the other."""
    bench, reopening = bench_with(store, stored_until_ms=START_MS)
    tasks = []
    for first, size in enumerate(sizes):
        bench.stage(*(measurement(meta=1_000_000 * first + number) for number in range(size)))
        (lookup,) = bench.catalog.take_lookups()
        tasks.append(asyncio.create_task(reopening.look_up(lookup)))
        await asyncio.sleep(0)
    return bench, tasks


async def test_look_ups_that_come_while_queries_run_share_the_next() -> None:
    """One scan of the collection serves all of them."""
    store = HeldReads()
    bench, tasks = await staged_apart(store, 1, 1, 1, 1, 1)
    assert store.counts == [1, 1]
    store.gate.set()
    await asyncio.gather(*tasks)
    assert store.counts == [1, 1, 3]
    assert len(bench.catalog.take_unclaimed()) == 5


async def test_small_look_ups_do_not_wait_for_a_large_one() -> None:
    store = HeldReads()
    bench, tasks = await staged_apart(store, 1, 1, 2_500, 1)
    store.gate.set()
    await asyncio.gather(*tasks)
    assert store.counts == [1, 1, 501, 1000, 1000]
    while bench.catalog.resume():
        pass
    assert len(bench.catalog.take_unclaimed()) == 2_503


async def test_look_ups_that_are_cancelled_leave_no_measurement_behind() -> None:
    store = HeldReads()
    bench, tasks = await staged_apart(store, 1, 1, 1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(bench.catalog.take_unclaimed()) == 3
