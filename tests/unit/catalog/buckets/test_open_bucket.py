"""Series, buckets and what is parked (W30, W50)."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from catalog.buckets.open_bucket import MOST_LOOKS, CollectionBuckets, Parked, Series
from catalog.buckets.stats import Counters
from catalog.ports import Acknowledgement
from tests.support.catalog_parts import (
    HOUR_MS,
    KEY,
    START_MS,
    CatalogBench,
    RememberingWriter,
    measurement,
    virtual,
)


def test_collection_state_follows_its_options() -> None:
    """W31"""
    buckets = CollectionBuckets(virtual(meta_field=None), Counters())
    assert (buckets.time_field, buckets.meta_field) == (b"t", None)
    assert (buckets.span_ms, buckets.rounding_seconds) == (HOUR_MS, 60)


def test_series_is_empty_only_when_nothing_would_be_lost() -> None:
    bench = CatalogBench()
    series = Series(bench.buckets, b"")
    assert series.is_empty
    bucket = bench.commit(measurement()).bucket
    series.current = bucket
    assert not series.is_empty
    series.current = None
    series.archived.append(bucket)
    assert not series.is_empty
    series.archived.clear()
    series.parked = deque()
    assert not series.is_empty
    series.parked = None
    assert series.is_empty


def test_archived_bucket_is_taken_by_time() -> None:
    """W50: start ≤ t < start + span."""
    bench = CatalogBench()
    bucket = bench.commit(measurement()).bucket
    series = Series(bench.buckets, b"")
    start_ms = bucket.state.start_ms
    assert start_ms <= START_MS
    for time_ms, found in ((start_ms - 1, None), (start_ms + HOUR_MS, None), (start_ms, bucket)):
        series.archived = [bucket]
        assert series.take_archived(time_ms) is found
    assert series.archived == []


@given(
    starts=st.lists(st.integers(0, 8), max_size=12),
    times=st.lists(st.tuples(st.integers(-1, 12), st.integers(0, 59_999)), max_size=20),
)
def test_the_latest_of_many_archived_buckets_is_taken(starts: list[int], times: list[tuple[int, int]]) -> None:
    """W50: whatever the order in which they were archived."""
    bench = CatalogBench()
    series = Series(bench.buckets, b"")
    kept = []
    for start in starts:
        bucket = bench.commit(measurement(start * HOUR_MS // 3)).bucket
        if bucket not in kept:
            kept.append(bucket)
            series.archive(bucket)
    for thirds, rest_ms in times:
        time_ms = START_MS + thirds * HOUR_MS // 3 + rest_ms
        covering = [each for each in kept if each.state.start_ms <= time_ms < each.state.start_ms + HOUR_MS]
        taken = series.take_archived(time_ms)
        assert (taken is None) == (not covering)
        if taken is not None:
            assert taken.state.start_ms == max(each.state.start_ms for each in covering)
            kept.remove(taken)
    assert sorted(map(id, series.archived)) == sorted(map(id, kept))


def test_bucket_is_idle_without_batches_and_known_while_it_weighs() -> None:
    bench = CatalogBench()
    (batch,) = bench.stage(measurement())
    bucket = batch.bucket
    assert bucket.is_known
    assert not bucket.is_idle
    batch.claim()
    bench.catalog.prepare(batch)
    assert not bucket.is_idle
    bench.catalog.finish([batch], Acknowledgement())
    assert bucket.is_idle
    bench.catalog.clear(bench.virtual.namespace)
    assert not bucket.is_known


def test_after_many_looks_nothing_that_waits_is_looked_up_again() -> None:
    bench = CatalogBench()
    series = Series(bench.buckets, b"")
    series.look_ended(1)
    for ended in range(1, MOST_LOOKS + 1):
        items = [Parked(measurement(), RememberingWriter(), 0, KEY, 0.0) for _ in range(3)]
        series.parked = deque(items)
        series.looks = ended - 1
        series.look_ended(1)
        assert [item.looked for item in items] == [True, *[ended >= MOST_LOOKS] * 2]
