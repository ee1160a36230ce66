"""How batches end, and what clears buckets (W62-W72)."""

from __future__ import annotations

import pytest

from catalog.buckets.open_bucket import MOST_LOOKS
from catalog.buckets.write_batch import BatchState, WriteBatch
from catalog.catalog import RESUMED_AT_ONCE, BucketSearch
from catalog.errors import CommandError
from catalog.growth.growth import GrowthOptions
from catalog.identity import identity_of
from catalog.kernel import Limits
from catalog.placement import FREED_AT_ONCE
from catalog.ports import Acknowledgement
from catalog.write_costs import WriteCosts
from tests.support.catalog_parts import (
    ACKNOWLEDGED,
    HOUR_MS,
    KEY,
    START_MS,
    CatalogBench,
    Patient,
    RememberingWriter,
    measurement,
)

OTHER_KEY = KEY._replace(identity=identity_of([("other", "db")]))
REFUSED = CommandError(121, "Document failed validation")


def prepared(bench: CatalogBench, *offsets_ms: int, writer: RememberingWriter | None = None) -> WriteBatch:
    (batch,) = bench.stage(*(measurement(each) for each in offsets_ms), writer=writer)
    batch.claim()
    assert bench.catalog.prepare(batch) is not None
    return batch


def test_rows_are_numbered_when_a_batch_is_prepared() -> None:
    """W64"""
    bench = CatalogBench()
    first = prepared(bench, 0, 1)
    bench.catalog.finish([first], ACKNOWLEDGED)
    second = prepared(bench, 2)
    assert (first.base, second.base) == (0, 2)


def test_one_prepared_batch_of_a_bucket_at_a_time() -> None:
    """W64: the next one waits and is ready when it has ended."""
    bench = CatalogBench()
    first = prepared(bench, 0)
    (second,) = bench.stage(measurement(1))
    second.claim()
    assert bench.catalog.prepare(second) is None
    assert bench.buckets.counters.numWaits == 1
    assert bench.catalog.take_ready() == []
    bench.catalog.finish([first], ACKNOWLEDGED)
    assert bench.catalog.take_ready() == [second]
    assert bench.catalog.prepare(second) is not None


def test_finish_counts_inserts_updates_and_measurements() -> None:
    """W65, W80"""
    bench = CatalogBench()
    bench.commit(measurement(), measurement(1))
    bench.commit(measurement(2))
    for counters in (bench.buckets.counters, bench.catalog.totals, bench.catalog.counters(bench.virtual.namespace)):
        assert (counters.numBucketInserts, counters.numBucketUpdates) == (1, 1)
        assert (counters.numCommits, counters.numMeasurementsCommitted) == (2, 3)


def test_every_writer_gets_the_acknowledgement() -> None:
    """W70"""
    bench = CatalogBench()
    writer = RememberingWriter()
    acknowledgement = Acknowledgement({"code": 64})
    bench.catalog.finish([prepared(bench, 0, writer=writer)], acknowledgement)
    assert writer.acknowledgements == [acknowledgement]


def test_failed_batch_takes_the_bucket_with_it_and_no_other_writer() -> None:
    """W66"""
    bench = CatalogBench()
    mine, other = RememberingWriter(), RememberingWriter()
    batch = prepared(bench, 0, writer=mine)
    waiting = bench.catalog.place(bench.buckets, measurement(1), other, 0, OTHER_KEY)
    assert waiting is not None
    waiting.claim()
    bench.catalog.prepare(waiting)
    bench.catalog.abort(batch, REFUSED)
    assert (mine.codes, other.codes) == ({0: 121}, {})
    assert (batch.state, waiting.state) == (BatchState.ABORTED, BatchState.ABORTED)
    assert bench.catalog.take_ready() == []
    (again,) = bench.catalog.take_unclaimed()
    assert again.bucket is not batch.bucket
    assert again.moves == 0
    assert bench.buckets.counters.numBucketsOpenedDueToMetadata == 2
    again.claim()
    bench.catalog.prepare(again)
    bench.catalog.finish([again], Acknowledgement())
    assert other.codes == {0: None}


def test_only_the_writer_of_what_is_refused_is_told() -> None:
    """W66: a server does not say which measurement of a bucket it refuses."""
    bench = CatalogBench()
    writers = [RememberingWriter() for _ in range(9)]
    for number, writer in enumerate(writers):
        bench.catalog.place(bench.buckets, measurement(number), writer, 0, KEY)
    guilty, attempts = writers[5], 0
    waiting = list(next(iter(bench.buckets.series.values())).current.batches.values())
    while waiting:
        batch = waiting.pop(0)
        if not batch.claim():
            continue
        assert bench.catalog.prepare(batch) is not None
        attempts += 1
        if any(writer is guilty for _, writer, _ in batch.rows()):
            bench.catalog.refuse(batch, REFUSED)
        else:
            bench.catalog.finish([batch], Acknowledgement())
        waiting += bench.catalog.take_unclaimed()
    assert [writer.codes for writer in writers] == [{0: 121 if writer is guilty else None} for writer in writers]
    assert attempts <= 2 * 5


def test_nobody_joins_the_half_of_a_refused_batch() -> None:
    bench = CatalogBench()
    mine, other = RememberingWriter(), RememberingWriter()
    batch = prepared(bench, 0, writer=mine)
    batch.add(measurement(1), other, 0)
    bench.catalog.refuse(batch, REFUSED)
    parts = bench.catalog.take_unclaimed()
    assert [[writer for _, writer, _ in part.rows()] for part in parts] == [[mine], [other]]
    later = bench.catalog.place(bench.buckets, measurement(2), RememberingWriter(), 0, KEY)
    assert later not in parts


def test_batch_whose_bucket_changed_underneath_is_placed_again_and_nobody_told() -> None:
    """W67, W126"""
    bench = CatalogBench()
    writer, other = RememberingWriter(), RememberingWriter()
    batch = prepared(bench, 0, 1, writer=writer)
    bench.catalog.place(bench.buckets, measurement(2), other, 0, OTHER_KEY)
    bench.catalog.replace(batch)
    moved = bench.catalog.take_unclaimed()
    assert {len(each.measurements) for each in moved} == {2, 1}
    (bucket,) = {each.bucket for each in moved}
    assert bucket is not batch.bucket
    assert writer.codes == other.codes == {}
    for each in set(moved):
        each.claim()
        bench.catalog.prepare(each)
        bench.catalog.finish([each], ACKNOWLEDGED)
    assert writer.codes == {0: None, 1: None}
    assert other.codes == {0: None}


def test_age_of_moved_measurements_is_kept() -> None:
    """Their writers have waited since then."""
    bench = CatalogBench()
    batch = prepared(bench, 0)
    bench.clock.now += 10
    bench.catalog.replace(batch)
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.staged_at_seconds == batch.staged_at_seconds == bench.clock.now - 10
    assert moved.moves == 1


def test_what_waits_behind_a_further_look_takes_no_turn_of_others() -> None:
    """W50: each measurement of one series wants another bucket; those behind its next look stay where they are."""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS + 2 * RESUMED_AT_ONCE * HOUR_MS)
    bench.stage(*(measurement(number * HOUR_MS) for number in range(RESUMED_AT_ONCE + 1)), measurement(meta="b"))
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.looked_up(lookup, {})
    assert {batch.bucket.series.meta for batch in bench.catalog.take_unclaimed()} == {
        measurement().meta,
        measurement(meta="b").meta,
    }


def test_a_series_is_not_looked_up_for_each_of_many_measurements() -> None:
    """W50: after some look-ups in a row, what waits begins new buckets, as it does natively."""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS + 2 * MOST_LOOKS * HOUR_MS)
    rows = 2 * MOST_LOOKS
    bench.stage(*(measurement(number * HOUR_MS) for number in range(rows)))
    looks, placed = 0, 0
    while lookups := bench.catalog.take_lookups():
        looks += 1
        bench.catalog.looked_up(lookups[0], {})
        placed += sum(len(batch.measurements) for batch in bench.catalog.take_unclaimed())
    assert (looks, placed) == (MOST_LOOKS, rows)
    # Nothing waits any more, so the next one is looked up again.
    bench.stage(measurement(rows * HOUR_MS - 1, meta="a"))
    bench.stage(measurement((rows - 20) * HOUR_MS, meta="b"))
    assert len(bench.catalog.take_lookups()) == 1


def test_cleared_bucket_is_not_appended_to() -> None:
    """W71, W72: what was not sent goes elsewhere, what was sent ends as it ends."""
    bench = CatalogBench()
    writer = RememberingWriter()
    batch = prepared(bench, 0, writer=writer)
    (pending,) = bench.stage(measurement(1))
    bench.catalog.clear(bench.virtual.namespace, [batch.bucket.state.bucket_id])
    assert pending.state is BatchState.ABORTED
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket is not batch.bucket
    assert bench.catalog.is_under_way(batch.bucket.state.bucket_id)
    bench.catalog.finish([batch], ACKNOWLEDGED)
    assert writer.codes == {0: None}
    assert not bench.catalog.is_under_way(batch.bucket.state.bucket_id)


def test_clear_by_id_leaves_the_others() -> None:
    bench = CatalogBench()
    kept, gone = bench.commit(measurement()).bucket, bench.commit(measurement(meta="b")).bucket
    bench.catalog.clear(bench.virtual.namespace, [gone.state.bucket_id, b"unknown"])
    assert kept.is_known
    assert not gone.is_known


def test_clear_of_all_moves_each_measurement_once() -> None:
    """W72: not into an archived bucket that is cleared too."""
    bench = CatalogBench()
    bench.stage(measurement(), measurement(HOUR_MS), measurement(1))
    bench.catalog.clear(bench.virtual.namespace)
    moved = set(bench.catalog.take_unclaimed())
    assert {each.moves for each in moved} == {1}
    assert sum(len(each.measurements) for each in moved) == 3


def test_full_bucket_with_unsent_rows_is_cleared_too() -> None:
    """W72"""
    bench = CatalogBench(limits=Limits(max_count=1))
    first = bench.stage(measurement())[0]
    bench.stage(measurement(1))
    bench.catalog.clear(bench.virtual.namespace, [first.bucket.state.bucket_id])
    assert first.state is BatchState.ABORTED
    assert len(bench.catalog.take_unclaimed()) == 1


def test_clearing_an_unused_collection_is_nothing() -> None:
    bench = CatalogBench()
    bench.catalog.clear(bench.virtual.namespace.buckets)
    bench.catalog.drop(bench.virtual.namespace.buckets)


def test_drop_resets_the_counters_of_the_collection_and_not_the_sums() -> None:
    """W72, W82"""
    bench = CatalogBench()
    bench.commit(measurement())
    bench.catalog.drop_database("db")
    assert bench.catalog.counters(bench.virtual.namespace).numCommits == 0
    assert bench.catalog.totals.numCommits == 1
    assert not any(bench.catalog.gauges().values())


@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "cleared"])
def test_very_many_buckets_are_freed_piece_by_piece(is_dropped: bool) -> None:
    """W71, W72; what is not sent yet goes elsewhere when its turn comes, whether or not its bucket is freed by then."""
    bench = CatalogBench()
    for number in range(FREED_AT_ONCE * 2 + 10):
        bench.commit(measurement(meta=f"m{number}"))
    unsent = bench.stage(measurement(1, meta="m5"))[0]
    unsent.claim()
    (bench.catalog.drop if is_dropped else bench.catalog.clear)(bench.virtual.namespace)
    assert bench.catalog.gauges()["numBuckets"] > FREED_AT_ONCE
    assert bench.catalog.prepare(unsent) is None
    assert unsent.state is BatchState.ABORTED
    assert len(bench.catalog.take_unclaimed()) == 1
    assert bench.commit(measurement(2, meta="m6")).base == 0, "nothing is added to a bucket that is not freed yet"
    assert bench.catalog.take_cleared()
    assert not bench.catalog.take_cleared(), "somebody does so already"
    while bench.catalog.free_cleared():
        assert not bench.catalog.take_cleared()
    assert bench.open_buckets == (1 if is_dropped else 2), "the one that moved, and the new one where it may stay"
    assert not bench.catalog.take_cleared()


def test_w50_after_clearing_all_late_measurements_look_at_the_backend() -> None:
    bench = CatalogBench(reopening=True, stored_until_ms=-(1 << 63))
    for number in range(FREED_AT_ONCE * 2 + 10):
        bench.commit(measurement(meta=f"m{number}"))
    bench.catalog.clear(bench.virtual.namespace)
    assert bench.stage(measurement(1, meta="m5")) == []
    (lookup,) = bench.catalog.take_lookups()
    assert len(lookup.wanted) == 1


def test_bucket_of_a_dropped_collection_is_not_kept_when_its_commit_succeeds() -> None:
    bench = CatalogBench()
    bench.stage(measurement())
    bench.catalog.drop(bench.virtual.namespace)
    (moved,) = bench.catalog.take_unclaimed()
    moved.claim()
    bench.catalog.prepare(moved)
    bench.catalog.finish([moved], ACKNOWLEDGED)
    assert not any(bench.catalog.gauges().values())


# --- in doubt ------------------------------------------------------------------------------------------------


def test_doubt_without_anybody_who_waits_for_the_verdict_ends_the_batch() -> None:
    """W127"""
    bench = CatalogBench()
    writer, other = RememberingWriter(), RememberingWriter()
    batch = prepared(bench, 0, writer=writer)
    bench.catalog.place(bench.buckets, measurement(1), other, 0, OTHER_KEY)
    assert not bench.catalog.doubt(batch, CommandError(6, "lost"))
    assert writer.codes == {0: 6}
    assert batch.state is BatchState.ABORTED
    # What was not sent is not in doubt: it goes elsewhere.
    assert other.codes == {}
    assert len(bench.catalog.take_unclaimed()) == 1
    assert not bench.catalog.is_under_way(batch.bucket.state.bucket_id)


@pytest.mark.parametrize("verdict", ["finish", "replace wanted", "replace unwanted", "abort", "lose"])
def test_doubtful_batch_ends_with_the_verdict(verdict: str) -> None:
    """W102, W127"""
    bench = CatalogBench()
    writer = Patient(wanted=verdict != "replace unwanted")
    batch = prepared(bench, 0, writer=writer)
    assert bench.catalog.doubt(batch, CommandError(6, "lost"))
    assert batch.state is BatchState.PREPARED
    assert bench.catalog.is_under_way(batch.bucket.state.bucket_id)
    match verdict.split():
        case ["finish"]:
            bench.catalog.finish([batch], ACKNOWLEDGED)
            assert writer.codes == {0: None}
        case ["replace", "wanted"]:
            bench.clock.now += 60
            bench.catalog.replace(batch)
            (moved,) = bench.catalog.take_unclaimed()
            assert moved.staged_at_seconds == bench.clock.now
            assert writer.codes == {}
        case ["replace", "unwanted"]:
            bench.catalog.replace(batch)
            assert bench.catalog.take_unclaimed() == []
            assert writer.codes == {0: 6}
        case ["abort"]:
            bench.catalog.abort(batch, REFUSED)
            assert writer.codes == {0: 121}
        case _:
            bench.catalog.lose(batch, REFUSED)
            assert batch.state is BatchState.ABORTED
    assert not bench.catalog.is_under_way(batch.bucket.state.bucket_id)


# --- what was found in the backend ---------------------------------------------------------------------------


def test_bucket_that_is_under_way_is_not_reopened() -> None:
    """W64: two batches of this process would claim the same rows."""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(measurement())
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.looked_up(lookup, {})
    (batch,) = bench.catalog.take_unclaimed()
    batch.claim()
    bench.catalog.prepare(batch)
    state = batch.bucket.state
    bench.catalog.clear(bench.virtual.namespace, [state.bucket_id])
    bench.stage(measurement(1))
    (again,) = bench.catalog.take_lookups()
    bench.catalog.looked_up(again, {measurement().meta: state})
    (other,) = bench.catalog.take_unclaimed()
    assert other.bucket is not batch.bucket
    assert other.bucket.state.bucket_id != state.bucket_id


def test_what_was_read_before_a_direct_write_is_not_believed() -> None:
    """W72"""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(measurement())
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.clear(bench.virtual.namespace, [b"some bucket"])
    stale = CatalogBench().commit(measurement()).bucket.state
    bench.catalog.looked_up(lookup, {measurement().meta: stale})
    (batch,) = bench.catalog.take_unclaimed()
    assert batch.bucket.state is not stale
    assert bench.buckets.counters.numBucketsReopened == 0


def test_dropped_collection_takes_no_stored_bucket() -> None:
    """W72"""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(measurement())
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.drop(bench.virtual.namespace)
    found = CatalogBench().commit(measurement()).bucket.state
    fresh = BucketSearch(lookup.buckets, lookup.wanted, lookup.buckets.generation)
    bench.catalog.looked_up(fresh, {measurement().meta: found})
    (batch,) = bench.catalog.take_unclaimed()
    assert batch.bucket.state is not found
    assert bench.stage(measurement(meta="b")) != []


def test_found_bucket_goes_on_and_is_counted() -> None:
    """W50, W83"""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    bench.stage(measurement())
    (lookup,) = bench.catalog.take_lookups()
    found = CatalogBench().commit(measurement()).bucket.state
    bench.catalog.looked_up(lookup, {measurement().meta: found})
    (batch,) = bench.catalog.take_unclaimed()
    assert batch.bucket.state is found
    assert bench.buckets.counters.numBucketsReopened == 1
    assert bench.buckets.counters.numBucketsOpenedDueToMetadata == 0
    assert WriteCosts(bench.catalog).late_measurements(bench.virtual.namespace) == 0, "no series has returned to it"


def test_buckets_that_wait_for_their_join_are_bounded() -> None:
    """They keep their summaries until then; beyond the limit buckets grow in place."""
    growth = GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1, ended_limit=2)
    bench = CatalogBench(growth=growth, limits=Limits(max_count=2))
    for number in range(4):
        first = bench.commit(measurement(meta=number))
        second = bench.commit(measurement(1, meta=number))
        assert (second.base, second.stored_id == first.stored_id) == (0, False), "a part"
        bench.commit(measurement(2, meta=number))
        bench.catalog.clear(bench.virtual.namespace)
    bench.commit(measurement(meta="in place"))
    assert bench.commit(measurement(1, meta="in place")).base == 1


def test_of_a_dropped_collection_no_parts_are_left_to_join() -> None:
    """They would count among those that keep others from growing in parts."""
    bench = CatalogBench(growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1))
    for meta in range(3):
        for second in range(3):
            bench.commit(measurement(second * 1000, meta=meta))
    assert (len(bench.catalog.growth.parted), bench.catalog.growth.unjoined) == (3, 6)
    joining = next(iter(bench.catalog.growth.parted))
    assert joining.parts is not None
    joining.parts.joining = True
    bench.catalog.drop(bench.virtual.namespace)
    assert (list(bench.catalog.growth.parted), bench.catalog.growth.unjoined) == ([joining], 2)


def test_a_part_that_is_under_way_when_its_collection_is_dropped_counts_once() -> None:
    bench = CatalogBench(growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1))
    for second in range(3):
        bench.commit(measurement(second * 1000))
    (late,) = bench.stage(measurement(3000))
    late.claim()
    assert bench.catalog.prepare(late) is not None
    bench.catalog.drop(bench.virtual.namespace)
    bench.catalog.finish([late], ACKNOWLEDGED)
    (left,) = bench.catalog.growth.parted
    assert left.parts is not None
    assert bench.catalog.growth.unjoined == left.parts.stored - 1 == 1
