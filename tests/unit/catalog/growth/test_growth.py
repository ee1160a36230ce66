"""How a batch leaves: in place, or as a part. What stands against parts does so only as long as it lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bson import ObjectId

from catalog.buckets.open_bucket import Bucket, CollectionBuckets
from catalog.buckets.stats import Counters
from catalog.buckets.write_batch import WriteBatch
from catalog.growth.backlog import FEWEST_BEHIND, FIRST_HOLD_SECONDS
from catalog.growth.growth import BATCHES_OF_A_ROUND, LOAD_SECONDS, WIDE_COLUMNS, GrowthOptions, Load
from catalog.growth.join_obstacles import BLOCK_EXPIRY_SECONDS
from catalog.growth.lookup_cost import ALLOWANCE_SECONDS, REFILL
from catalog.kernel import BucketState, Limits
from catalog.parts import bucket_key, segment_of
from tests.support.catalog_parts import HOUR_MS, START_MS, CatalogBench, measurement, virtual

ALWAYS = GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1)


def grows_in_parts(bench: CatalogBench, *, meta: str) -> bool:
    """Whether the second batch of a new bucket leaves as a document of its own."""
    bench.commit(measurement(meta=meta))
    return bench.commit(measurement(1, meta=meta)).base == 0


def readers_stay(bench: CatalogBench, seconds: int) -> None:
    """Joins of the bench's collection are tried every ten seconds, in vain."""
    for _ in range(0, seconds + 1, 10):
        bench.catalog.growth.obstacles.tried(bench.buckets, alone=False)
        bench.clock.now += 10


def test_readers_that_stay_end_growth_in_parts_for_their_collection() -> None:
    bench = CatalogBench(growth=ALWAYS)
    readers_stay(bench, 20)
    assert grows_in_parts(bench, meta="not long enough")
    readers_stay(bench, 10)
    assert not grows_in_parts(bench, meta="long enough")
    bench.catalog.growth.obstacles.tried(bench.buckets, alone=True)
    assert grows_in_parts(bench, meta="they left")


def test_readers_of_another_collection_do_not_matter() -> None:
    bench = CatalogBench(growth=ALWAYS)
    other = CollectionBuckets(virtual("other"), Counters())
    for _ in range(5):
        bench.catalog.growth.obstacles.tried(other, alone=False)
        bench.clock.now += 10
    assert grows_in_parts(bench, meta="a")


def test_what_is_not_tried_any_more_does_not_count() -> None:
    bench = CatalogBench(growth=ALWAYS)
    readers_stay(bench, 40)
    bench.clock.now += BLOCK_EXPIRY_SECONDS
    assert grows_in_parts(bench, meta="a")


def test_beside_other_proxies_everything_grows_in_place() -> None:
    bench = CatalogBench(growth=ALWAYS)
    growth = bench.catalog.growth
    assert growth.obstacles.beside_other_proxies(are_there=True)
    assert not growth.obstacles.beside_other_proxies(are_there=True), "that is known"
    assert (growth.obstacles.others_read, growth.is_in_parts) == (True, False)
    assert not grows_in_parts(bench, meta="a")
    assert growth.obstacles.beside_other_proxies(are_there=False)
    assert growth.is_in_parts
    assert grows_in_parts(bench, meta="b")


def test_a_bucket_with_parts_is_not_appended_to_in_place() -> None:
    """Its stored document lacks the rows in parts, so the number of rows would be a wrong guard."""
    bench = CatalogBench(growth=ALWAYS)
    first = bench.commit(measurement(meta="a"))
    assert bench.commit(measurement(1, meta="a")).base == 0
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=True)
    (batch,) = bench.stage(measurement(2, meta="a"))
    batch.claim()
    assert bench.catalog.prepare(batch) is None
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket is not first.bucket
    assert [each.time_ms for each in moved.measurements] == [each.time_ms for each in batch.measurements]


def test_where_joins_are_refused_no_further_parts_are_made() -> None:
    bench = CatalogBench(growth=ALWAYS)
    growth = bench.catalog.growth
    assert growth.obstacles.refused()
    assert not growth.obstacles.refused(), "that is known"
    assert not growth.is_in_parts
    assert not grows_in_parts(bench, meta="a")


@pytest.mark.parametrize(
    "options",
    [
        GrowthOptions(in_parts=False, batches_in_round=1, rows_in_place=1),
        GrowthOptions(in_parts=True, batches_in_round=2, rows_in_place=1_000),
        GrowthOptions(in_parts=True, batches_in_round=1, busy=1_000.0),
        GrowthOptions(in_parts=True, batches_in_round=1, unjoined_limit=-1),
    ],
    ids=["the backend cannot join", "few small buckets grow", "no load", "too much waits"],
)
def test_reasons_to_grow_in_place(options: GrowthOptions) -> None:
    assert not grows_in_parts(CatalogBench(growth=options), meta="a")


def test_parts_are_counted_until_they_are_joined() -> None:
    bench = CatalogBench(growth=ALWAYS)
    growth = bench.catalog.growth
    first = bench.commit(measurement())
    bench.clock.now += 1
    second = bench.commit(measurement(1))
    bucket = first.bucket
    assert (list(growth.parted), growth.unjoined, growth.committed_at_seconds) == ([bucket], 1, bench.clock.now)
    assert growth.holds(second.stored_id)
    assert bucket.parts is not None
    growth.joined(bucket, bucket.parts, bucket.parts.pending(everything=True))
    assert (list(growth.parted), growth.unjoined) == ([], 0)
    assert not growth.holds(second.stored_id)


def test_a_part_that_is_a_run_waits_no_longer_for_that() -> None:
    """It still waits to become one with the others of its bucket."""
    bench = CatalogBench(growth=ALWAYS)
    growth = bench.catalog.growth
    bucket = bench.commit(*(measurement(number) for number in range(9))).bucket
    bench.commit(measurement(9))
    assert (growth.unjoined, growth.backlog.fresh) == (1, 1)
    assert bucket.parts is not None
    pending = bucket.parts.pending(everything=False)
    assert (pending.documents, pending.parts) == (1, 1)
    growth.joined(bucket, bucket.parts, pending)
    assert (growth.unjoined, growth.backlog.fresh) == (1, 0)
    assert list(growth.parted) == [bucket]
    pending = bucket.parts.pending(everything=True)
    assert (pending.documents, pending.parts) == (2, 0)
    growth.joined(bucket, bucket.parts, pending)
    assert (growth.unjoined, growth.backlog.fresh, list(growth.parted)) == (0, 0, [])


def test_new_parts_of_all_buckets_lie_together_and_beside_those_of_their_own() -> None:
    """A server writes to few pages then; and each bucket has its place in every segment."""
    bench = CatalogBench(growth=replace(ALWAYS, segment_parts=4))
    own = {meta: bench.commit(measurement(meta=meta)).stored_id for meta in "ab"}
    ids = [(meta, bench.commit(measurement(second, meta=meta)).stored_id) for second in range(1, 5) for meta in "ab"]
    assert all(bucket_key(each) == bucket_key(own[meta]) for meta, each in ids)
    segments = [segment_of(each) for _, each in ids]
    first, then = segments[0], segments[-1]
    assert segments == [first] * 4 + [then] * 4
    assert segment_of(own["a"]) == first < then
    for segment in (first, then):
        laid = sorted((each, meta) for meta, each in ids if segment_of(each) == segment)
        assert [meta for _, meta in laid] == ["a", "a", "b", "b"]
        assert [each for each, _ in laid] != [each for _, each in ids if segment_of(each) == segment]


def test_a_document_belongs_to_its_bucket_in_whatever_segment_it_lies() -> None:
    bench = CatalogBench(growth=replace(ALWAYS, segment_parts=1))
    growth = bench.catalog.growth
    bench.commit(measurement())
    ids = [bench.commit(measurement(second)).stored_id for second in range(1, 4)]
    assert len({segment_of(each) for each in ids}) == 3
    assert all(growth.holds(each) and bench.catalog.grows_in_parts(each) for each in ids)
    other = bench.commit(measurement(meta="in place")).stored_id
    assert not growth.holds(other)
    assert not growth.holds(ids[0][:6] + other[6:])


def test_parts_of_a_collection_that_was_dropped_are_forgotten_in_all_segments() -> None:
    bench = CatalogBench(growth=replace(ALWAYS, segment_parts=1))
    growth = bench.catalog.growth
    ids = [bench.commit(measurement(second)).stored_id for second in range(4)]
    assert growth.unjoined == growth.backlog.fresh == 3
    bench.catalog.drop(bench.virtual.namespace)
    while bench.catalog.free_cleared():
        pass
    assert (growth.unjoined, growth.backlog.fresh, list(growth.parted)) == (0, 0, [])
    assert not any(growth.holds(each) for each in ids)


def test_load_grows_with_rounds_and_is_forgotten() -> None:
    load = Load()
    for tenth in range(10):
        load.committed(1, tenth / 10)
    assert 5 < load.level < 10.5
    load.committed(1, 1 + 2 * LOAD_SECONDS)
    assert load.level < 1.1


def test_appending_to_large_buckets_is_more_load() -> None:
    """A server compares the name of each field of each new row with those of all rows before it."""
    small, large = Load(), Load()
    small.committed(100, 1.0, 100 * 1 * 10)
    large.committed(100, 1.0, 100 * 500 * 10)
    assert large.level > 10 * small.level


def test_a_round_of_very_many_buckets_is_load_itself() -> None:
    """Not only once it is committed."""
    bench = CatalogBench(growth=GrowthOptions(in_parts=True, busy=10.0, batches_in_round=8))
    bucket = bench.commit(measurement()).bucket
    growth = bench.catalog.growth
    assert not growth.leaves_as_part(bucket, 10, 1)
    assert growth.leaves_as_part(bucket, 10 * BATCHES_OF_A_ROUND, 1)


@pytest.mark.parametrize(("columns", "leaves"), [(WIDE_COLUMNS // 2, False), (WIDE_COLUMNS, True)])
def test_wide_rows_leave_as_parts_without_load(columns: int, leaves: bool) -> None:
    """Each update of so many columns costs a server more than a new bucket and its part of a join."""
    bench = CatalogBench(growth=GrowthOptions(in_parts=True, busy=200.0))
    wide = {f"f{number}": number for number in range(columns)}
    bench.commit(measurement(**wide))
    assert (bench.commit(measurement(1, **wide)).base == 0) is leaves
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=True)
    bench.commit(measurement(meta="b", **wide))
    assert bench.commit(measurement(1, meta="b", **wide)).base == 1, "joins are impossible"


def test_rounds_that_concern_many_buckets_are_more_load() -> None:
    few, many = Load(), Load()
    few.committed(1, 1.0)
    many.committed(10 * BATCHES_OF_A_ROUND, 1.0)
    assert many.level > 10 * few.level


def reopened(bench: CatalogBench, bucket_id: bytes, rows: int = 3) -> Bucket:
    """A stored bucket with so many rows that a measurement of its series has brought back."""
    other = CatalogBench()
    (batch,) = other.stage(*(measurement(number) for number in range(rows)))
    batch.claim()
    document = bench_document(batch, bucket_id)
    state = BucketState.from_document(document, b"t", b"m", HOUR_MS, Limits())
    bench.stage(measurement(rows))
    (lookup,) = bench.catalog.take_lookups()
    bench.catalog.looked_up(lookup, {state.meta: state})
    (found,) = [batch.bucket for batch in bench.catalog.take_unclaimed()]
    return found


def bench_document(batch: WriteBatch, bucket_id: bytes) -> bytes:
    document = batch.bucket.state.prepare(batch.measurements)
    assert document is not None
    return document[:9] + document[9:13] + bucket_id[4:] + document[21:]


def let_go_of_one(bench: CatalogBench, *, own: bool = True) -> None:
    """A bucket of this process that begins at ``START_MS`` is no longer in memory; or one that was another's."""
    (batch,) = bench.stage(measurement(meta="let go"))
    batch.bucket.own = own
    bench.catalog.growth.let_go(batch.bucket)


def test_a_series_goes_on_in_a_bucket_that_can_have_parts() -> None:
    """The bucket of another process cannot, and each further row would cost more."""
    bench = CatalogBench(growth=ALWAYS, reopening=True, stored_until_ms=START_MS)
    left = reopened(bench, ObjectId().binary)
    (batch,) = left.batches.values()
    batch.claim()
    assert bench.catalog.prepare(batch) is None
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket is not left
    assert moved.bucket.own
    assert moved.bucket.state.committed_rows == 0
    assert bench.catalog.take_lookups() == []
    assert grows_in_parts(bench, meta="a")


def test_a_bucket_that_this_process_has_stored_is_not_left() -> None:
    """Or a series that is closed to save memory would get a new bucket again and again."""
    bench = CatalogBench(growth=ALWAYS, reopening=True, stored_until_ms=START_MS)
    bench.commit(measurement(2 * HOUR_MS, meta="another series"))
    let_go_of_one(bench)
    back = reopened(bench, bytes(4) + (1).to_bytes(5, "big") + bytes(3))
    (batch,) = back.batches.values()
    batch.claim()
    assert bench.catalog.prepare(batch) is not None
    assert batch.base == 3


def test_buckets_that_would_be_left_are_not_looked_up() -> None:
    """With thousands of series, look-ups of all of them would delay their first rows."""
    bench = CatalogBench(growth=ALWAYS, reopening=True, stored_until_ms=START_MS)
    bench.commit(measurement(2 * HOUR_MS, meta="another series"))
    assert bench.stage(measurement(meta="a")) != []
    assert bench.catalog.take_lookups() == []
    bench.clock.now += LOAD_SECONDS
    assert bench.stage(measurement(meta="b")) == [], "no load any more"
    bench.commit(measurement(3 * HOUR_MS, meta="another series"))
    let_go_of_one(bench, own=False)
    assert bench.stage(measurement(meta="f")) != [], "it was one of another process"
    let_go_of_one(bench)
    assert bench.stage(measurement(meta="c")) == [], "it may be one of this process"
    assert bench.stage(measurement(HOUR_MS, meta="d")) != [], "which ends before that"
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=True)
    assert bench.stage(measurement(meta="e")) == [], "no parts are made"


def test_where_joins_are_dear_others_are_looked_up_under_load_too() -> None:
    bench = CatalogBench(growth=replace(ALWAYS, sealed=True), reopening=True, stored_until_ms=START_MS)
    bench.commit(measurement(2 * HOUR_MS, meta="another series"))
    assert bench.stage(measurement(meta="a")) == []


def test_without_load_a_bucket_of_another_process_grows_on() -> None:
    bench = CatalogBench(growth=GrowthOptions(in_parts=True, busy=200.0), reopening=True, stored_until_ms=START_MS)
    back = reopened(bench, ObjectId().binary)
    (batch,) = back.batches.values()
    batch.claim()
    assert bench.catalog.prepare(batch) is not None
    assert batch.base == 3


def test_joins_that_are_behind_let_small_inserts_go_another_way_until_they_have_caught_up() -> None:
    bench = CatalogBench(growth=ALWAYS)
    growth = bench.catalog.growth
    backlog = growth.backlog
    while backlog.fresh < FEWEST_BEHIND:
        bench.commit(measurement(backlog.fresh % 999))
    backlog.measure(0, 0.0, 1.0)
    assert not growth.may_be_scattered
    bench.commit(measurement(1))
    backlog.measure(0, 0.0, 1.0)
    assert growth.may_be_scattered
    assert growth.is_scattered(bench.buckets)
    for bucket in list(growth.parted):
        parts = bucket.parts
        assert parts is not None
        growth.joined(bucket, parts, parts.pending(everything=True))
    backlog.measure(0, 0.0, 1.0 + FIRST_HOLD_SECONDS)
    assert (growth.may_be_scattered, backlog.fresh, growth.unjoined) == (False, 0, 0)


def are_found_slow(bench: CatalogBench) -> None:
    """Look up until look-ups are slow, which they are from now on."""
    growth, clock = bench.catalog.growth, bench.clock
    for _ in range(30):
        assert not growth.may_be_scattered
        since_seconds = clock.monotonic_seconds()
        clock.now += 0.1
        growth.looked_up(bench.buckets, 1, since_seconds)
        if growth.may_be_scattered:
            break
    assert growth.may_be_scattered


FEW_OF_MANY = GrowthOptions(in_parts=True, busy=10.0, batches_in_round=100)


@pytest.mark.parametrize("sealed", [False, True])
def test_slow_look_ups_are_not_made_until_their_time_has_come_again(*, sealed: bool) -> None:
    bench = CatalogBench(growth=replace(FEW_OF_MANY, sealed=sealed), reopening=True, stored_until_ms=START_MS)
    bench.commit(measurement(2 * HOUR_MS, meta="another series"))
    assert bench.stage(measurement(meta="a")) == [], "look-ups are not slow"
    bench.catalog.take_lookups()
    are_found_slow(bench)
    assert not bench.catalog.growth.is_scattered(bench.buckets), "nothing waits for a look-up"
    assert bench.stage(measurement(meta="b")) != []
    assert bench.catalog.take_lookups() == []
    bench.clock.now += ALLOWANCE_SECONDS / REFILL
    assert bench.stage(measurement(meta="c")) == []
    assert len(bench.catalog.take_lookups()) == 1
    assert not bench.catalog.growth.may_be_scattered


def test_slow_look_ups_for_buckets_of_this_process_are_waited_for() -> None:
    """Those were closed to save memory, and would be left again and again. Small inserts can go another way."""
    bench = CatalogBench(growth=FEW_OF_MANY, reopening=True, stored_until_ms=START_MS)
    are_found_slow(bench)
    bench.commit(measurement(2 * HOUR_MS, meta="another series"))
    assert not bench.catalog.growth.is_scattered(bench.buckets)
    let_go_of_one(bench)
    assert bench.catalog.growth.is_scattered(bench.buckets)
    assert bench.stage(measurement(meta="a")) == []
