"""Where a measurement goes: series, roll-over, archived buckets, looks, memory (W30-W50)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.buckets.open_bucket import Bucket
from catalog.identity import identity_of
from catalog.kernel import Limits
from catalog.namespaces import Granularity, Namespace
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


def bucket_for(bench: CatalogBench, offset_ms: int = 0, meta: Any = "a", **fields: Any) -> Bucket:
    (batch,) = bench.stage(measurement(offset_ms, meta, **fields))
    return batch.bucket


def test_each_meta_has_its_bucket() -> None:
    """W30, W34, W35"""
    bench = CatalogBench()
    buckets = {id(bucket_for(bench, meta=meta)) for meta in ("a", "b", 1, 1.0, None, {"x": 1})}
    assert len(buckets) == 6
    assert bench.buckets.counters.numBucketsOpenedDueToMetadata == 6


def test_field_order_of_meta_does_not_matter() -> None:
    """W33"""
    bench = CatalogBench()
    assert bucket_for(bench, meta={"x": 1, "y": 2}) is bucket_for(bench, meta={"y": 2, "x": 1})


@pytest.mark.parametrize(
    ("limits", "second", "counter"),
    [
        (Limits(max_count=1), {"offset_ms": 1}, "numBucketsClosedDueToCount"),
        (Limits(max_size_bytes=100, min_count=0), {"x": "y" * 200}, "numBucketsClosedDueToSize"),
        (Limits(), {"offset_ms": HOUR_MS}, "numBucketsClosedDueToTimeForward"),
        (Limits(), {"offset_ms": -60_001}, "numBucketsClosedDueToTimeBackward"),
        (Limits(), {"v": "text"}, "numBucketsClosedDueToSchemaChange"),
    ],
)
def test_rollover_is_counted_under_its_reason(limits: Limits, second: dict[str, Any], counter: str) -> None:
    """W40-W47, W81: and not as opened due to metadata."""
    bench = CatalogBench(limits=limits)
    first = bucket_for(bench, v=1)
    assert bucket_for(bench, **second) is not first
    assert getattr(bench.buckets.counters, counter) == 1
    assert getattr(bench.catalog.totals, counter) == 1
    assert bench.buckets.counters.numBucketsOpenedDueToMetadata == 1


def test_bucket_left_for_its_time_is_found_again() -> None:
    """W50: two interleaved hours take two buckets."""
    bench = CatalogBench()
    day, before = bucket_for(bench), bucket_for(bench, -HOUR_MS)
    for step in range(1, 20):
        assert bucket_for(bench, step) is day
        assert bucket_for(bench, step - HOUR_MS) is before
    assert bench.open_buckets == 2


def test_archived_bucket_with_the_latest_start_is_taken() -> None:
    """W50"""
    bench = CatalogBench()
    bucket_for(bench)
    later = bucket_for(bench, HOUR_MS)
    early = bucket_for(bench, -HOUR_MS // 2)
    assert bucket_for(bench, HOUR_MS + 1) is later
    assert bucket_for(bench, -1) is early


def test_archived_bucket_that_takes_no_more_is_left() -> None:
    """W41, W50"""
    bench = CatalogBench(limits=Limits(max_count=1))
    full = bucket_for(bench)
    bucket_for(bench, HOUR_MS)
    assert bucket_for(bench, 1) is not full
    assert not full.is_known


def test_archive_is_bounded() -> None:
    bench = CatalogBench(archived_per_series=2)
    for hour in range(5):
        bench.commit(measurement(hour * HOUR_MS))
    assert bench.open_buckets == 3


def test_the_earliest_bucket_leaves_a_full_archive() -> None:
    """W50: so measurements that are less late need no look-up."""
    bench = CatalogBench(archived_per_series=2, reopening=True, stored_until_ms=-(1 << 63))
    for hour in (3, 1, 0, 2):
        bench.commit(measurement(hour * HOUR_MS))
    archived = bench.buckets.series[measurement().meta].archived
    assert [each.state.start_ms for each in archived] == [START_MS + HOUR_MS, START_MS + 3 * HOUR_MS]
    assert bench.buckets.stored_until_ms == START_MS


def test_full_bucket_with_batches_under_way_lives_on_unknown() -> None:
    """W41: closed to new rows until its batches have ended."""
    bench = CatalogBench(limits=Limits(max_count=1))
    batch = bench.stage(measurement())[0]
    bench.stage(measurement(1))
    assert not batch.bucket.is_known
    assert bench.catalog.is_under_way(batch.bucket.state.bucket_id)
    batch.claim()
    bench.catalog.prepare(batch)
    bench.catalog.finish([batch], Acknowledgement())
    assert not bench.catalog.is_under_way(batch.bucket.state.bucket_id)


def test_idle_buckets_are_let_go_over_the_threshold_longest_idle_first() -> None:
    """W48"""
    bench = CatalogBench(memory_threshold_bytes=20_000)
    for number in range(200):
        bench.commit(measurement(meta=number))
    assert bench.catalog.gauges()["memoryUsage"] <= 20_000 + 3000
    assert 0 < bench.open_buckets < 30
    assert bench.buckets.counters.numBucketsClosedDueToMemoryThreshold == 200 - bench.open_buckets
    assert measurement(meta=199).meta in bench.buckets.series
    assert measurement(meta=0).meta not in bench.buckets.series


def closed_for_the_cache(bench: CatalogBench) -> int:
    return bench.buckets.counters.numBucketsClosedDueToCachePressure


def test_w51_open_buckets_are_let_go_while_they_would_fill_more_than_their_share_of_the_cache() -> None:
    """Under the native name, and not as closed for their size."""
    bench = CatalogBench(limits=Limits(max_size_bytes=4000, min_size_bytes=1000), cache_share_bytes=40_000)
    bench.commit(measurement(text="x" * 3000))
    first = bucket_for(bench)
    for number in range(9):
        bench.commit(measurement(meta=number))
    assert bucket_for(bench) is first, "ten buckets of 4,000 bytes fit"
    bench.commit(measurement(meta="one too many"))
    for number in range(10):
        bench.commit(measurement(meta=100 + number))
    assert bucket_for(bench) is not first
    assert closed_for_the_cache(bench) == bench.catalog.totals.numBucketsClosedDueToCachePressure == 1
    assert bench.buckets.counters.numBucketsClosedDueToSize == 0
    assert not first.is_known


def test_w51_buckets_grow_again_when_there_are_fewer_of_them() -> None:
    bench = CatalogBench(limits=Limits(max_size_bytes=4000, min_size_bytes=1000), cache_share_bytes=40_000)
    for number in range(40):
        bench.commit(measurement(meta=number))
    other = bench.catalog.collection(virtual(name="other", uuid=2))
    writer = RememberingWriter()
    batch = bench.catalog.place(other, measurement(text="x" * 800), writer, 0, KEY)
    assert batch is not None
    bench.catalog.place(other, measurement(), writer, 1, KEY)
    bench.catalog.drop(bench.virtual.namespace)
    assert bench.catalog.place(other, measurement(text="x" * 800), writer, 2, KEY) is batch
    assert other.counters.numBucketsClosedDueToCachePressure == 0


def test_w51_archived_buckets_are_not_counted_as_open() -> None:
    bench = CatalogBench(limits=Limits(max_size_bytes=4000, min_size_bytes=1000), cache_share_bytes=40_000)
    for hour in range(40):
        bench.commit(measurement(hour * HOUR_MS))
    last = bucket_for(bench, 39 * HOUR_MS, text="x" * 3000)
    assert bench.open_buckets == 40
    assert bucket_for(bench, 39 * HOUR_MS) is last
    assert closed_for_the_cache(bench) == 0


def test_buckets_with_uncommitted_rows_are_not_let_go() -> None:
    """W48"""
    bench = CatalogBench(memory_threshold_bytes=1)
    bench.stage(*(measurement(meta=number) for number in range(20)))
    assert bench.open_buckets == 20


def test_different_write_concerns_and_identities_do_not_share_a_batch() -> None:
    """W70"""
    bench = CatalogBench()
    keys = [KEY, KEY._replace(write_concern=b"w"), KEY._replace(identity=identity_of([("u", "db")]))]
    batches = [
        bench.catalog.place(bench.buckets, measurement(n), RememberingWriter(), 0, key) for n, key in enumerate(keys)
    ]
    assert len({id(batch) for batch in batches}) == 3
    assert len({id(batch.bucket) for batch in batches if batch}) == 1


# --- looks at the backend ------------------------------------------------------------------------------------


def test_nothing_is_placed_before_it_is_known_what_is_stored() -> None:
    """W50"""
    bench = CatalogBench(reopening=True)
    assert bench.stage(measurement(), measurement(1), measurement(meta="b")) == []
    assert bench.catalog.take_openings() == [bench.buckets]
    assert bench.catalog.take_openings() == []
    bench.catalog.opened(bench.buckets, -(1 << 63))
    batches = bench.catalog.take_unclaimed()
    assert sorted(len(batch.measurements) for batch in batches) == [1, 2] or len(batches) == 3
    assert bench.open_buckets == 2


def test_measurements_later_than_all_that_is_stored_need_no_look() -> None:
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS - HOUR_MS)
    assert len(bench.stage(measurement())) == 1
    assert bench.catalog.take_lookups() == []


def test_one_look_for_all_series_that_wait() -> None:
    """W50"""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(*(measurement(n, meta=n % 3) for n in range(9)))
    (lookup,) = bench.catalog.take_lookups()
    assert [time_ms - START_MS for _, time_ms in lookup.wanted] == [0, 1, 2]
    bench.catalog.looked_up(lookup, {})
    assert bench.open_buckets == 3
    assert bench.catalog.take_lookups() == []


def test_look_that_fails_is_not_taken_again_for_the_same_measurements() -> None:
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(measurement(), measurement(-HOUR_MS), measurement(-2 * HOUR_MS))
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.looked_up(lookup, None)
    assert bench.catalog.take_lookups() == []
    assert bench.open_buckets == 3


def test_opening_that_fails_is_tried_again_for_later_measurements() -> None:
    bench = CatalogBench(reopening=True)
    bench.stage(measurement())
    bench.catalog.take_openings()
    bench.catalog.opened(bench.buckets, None)
    assert bench.open_buckets == 1
    bench.stage(measurement(meta="b"))
    assert bench.catalog.take_openings() == [bench.buckets]


def test_order_of_one_series_is_kept_behind_a_look() -> None:
    """W69"""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(*(measurement(n) for n in range(5)))
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.looked_up(lookup, {})
    (batch,) = set(bench.catalog.take_unclaimed())
    assert [each.time_ms - START_MS for each in batch.measurements] == [0, 1, 2, 3, 4]


# --- collections ---------------------------------------------------------------------------------------------


def test_coarser_granularity_keeps_open_buckets_and_applies_at_once() -> None:
    """W49"""
    bench = CatalogBench()
    bucket = bucket_for(bench)
    same = bench.catalog.collection(virtual(granularity=Granularity.MINUTES))
    assert same is bench.buckets
    assert bucket_for(bench, 2 * HOUR_MS) is bucket


def test_another_incarnation_takes_over_what_was_not_sent() -> None:
    """W72"""
    bench = CatalogBench()
    (batch,) = bench.stage(measurement())
    new = bench.catalog.collection(virtual(uuid=2))
    assert new is not bench.buckets
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket.series.collection is new
    assert moved.staged_at_seconds == batch.staged_at_seconds
    assert not bench.buckets.series


def test_incarnation_with_other_fields_does_not_take_measurements_that_were_read_otherwise() -> None:
    bench = CatalogBench()
    bench.stage(measurement())
    bench.catalog.collection(virtual(uuid=2, time_field="ts"))
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket.series.collection is bench.buckets


def test_moved_measurements_give_up_after_many_moves() -> None:
    """W67"""
    bench = CatalogBench()
    writer = RememberingWriter()
    (batch,) = bench.stage(measurement(), writer=writer)
    for _ in range(26):
        batch.claim()
        bench.catalog.prepare(batch)
        bench.catalog.replace(batch)
        moved = bench.catalog.take_unclaimed()
        if not moved:
            break
        (batch,) = moved
    assert writer.codes == {0: 112}


def test_the_first_distant_time_is_told_of_once() -> None:
    """Q12: before it is stored; then no read may rely on the order of bucket ids."""
    bench = CatalogBench()
    told: list[Namespace] = []
    bench.catalog.begins_extended_range = told.append
    bucket_for(bench)
    assert told == []
    for offset_ms in (-START_MS - 1, -START_MS - HOUR_MS, (1 << 32) * 1000):
        bucket_for(bench, offset_ms=offset_ms)
        assert told == [bench.buckets.collection.namespace]
    assert bench.catalog.holds_extended_range(bench.buckets.collection.namespace)
