"""Which buckets rest: those that are one document, and get no rows for now."""

from __future__ import annotations

import gc

from catalog.buckets.open_bucket import Bucket
from catalog.buckets.resting import Rested
from tests.support.catalog_parts import HOUR_MS, START_MS, measurement
from tests.support.joining_bench import JoiningBench

REST_SECONDS = 3.0


class RestingBench(JoiningBench):
    """Some buckets have parts."""

    def __init__(self) -> None:
        super().__init__(rest_seconds=REST_SECONDS)
        self.resting = self.catalog.growth.resting
        self.resting.is_wanted = True

    async def joined(self, *metas: str, offset_ms: int = 0) -> None:
        """Their parts become one."""
        for number in range(3):
            for meta in metas:
                self.commit(measurement(offset_ms + number, meta))
        self.clock.now += 2.5
        await self.joining.join_due()

    def take(self, series_key: bytes = b"key") -> list[Rested]:
        return self.resting.take(self.clock.now, self.catalog.growth.committed_at_seconds, series_key)

    def take_one(self) -> tuple[Rested, Bucket]:
        """The only one that rests."""
        (rested,) = self.take()
        bucket = self.bucket(rested)
        assert bucket is not None
        return rested, bucket

    def bucket(self, rested: Rested) -> Bucket | None:
        return self.resting.bucket(rested.stored_id, self.clock.now)


async def test_a_bucket_that_is_one_document_rests_some_time_after_the_latest_part() -> None:
    bench = RestingBench()
    await bench.joined("a", "b")
    assert bench.take() == []
    bench.clock.now += 1
    first, second = bench.take()
    assert (first.rows, first.collection) == (3, second.collection)
    assert first.series != second.series
    assert bench.take() == []
    bucket = bench.bucket(first)
    assert bucket is not None
    assert bucket.state.rows == 3
    assert first.stored_id[:4] == (START_MS // 1000).to_bytes(4, "big")


async def test_a_bucket_that_its_series_has_left_rests_at_once() -> None:
    bench = RestingBench()
    await bench.joined("a", "b")
    bench.commit(measurement(2 * HOUR_MS, "a"))
    _, bucket = bench.take_one()
    assert bucket.series.current is not bucket


async def test_the_series_of_a_bucket_is_the_same_in_every_process() -> None:
    benches = [RestingBench(), RestingBench()]
    told = []
    for bench in benches:
        await bench.joined("a")
        bench.clock.now += 1
        told += bench.take()
    assert told[0].series == told[1].series


async def test_who_does_not_have_the_key_cannot_try_meta_values() -> None:
    benches = [RestingBench(), RestingBench()]
    told = []
    for bench, key in zip(benches, (b"one", b"other"), strict=True):
        await bench.joined("a")
        bench.clock.now += 1
        told += bench.take(key)
    assert told[0].series != told[1].series


async def test_a_bucket_that_gets_rows_again_no_longer_rests() -> None:
    bench = RestingBench()
    await bench.joined("a", "b")
    bench.clock.now += 1
    first, second = bench.take()
    bench.stage(measurement(10, "a"))
    assert bench.bucket(first) is None
    bench.commit(measurement(10, "b"))
    assert bench.bucket(second) is None
    bench.clock.now += 1
    assert bench.bucket(second) is None


async def test_a_bucket_with_a_copy_of_a_write_under_way_does_not_rest() -> None:
    bench = RestingBench()
    await bench.joined("a")
    bench.clock.now += 1
    rested, bucket = bench.take_one()
    bucket.copies_until_seconds = bench.clock.now + 10
    assert bench.bucket(rested) is None
    bench.clock.now += 10
    assert bench.bucket(rested) is bucket


async def test_a_bucket_that_is_joined_or_full_does_not_rest() -> None:
    bench = RestingBench()
    await bench.joined("a")
    bench.clock.now += 1
    rested, bucket = bench.take_one()
    assert bucket.parts is not None
    bucket.parts.joining = True
    assert bench.bucket(rested) is None
    bucket.parts.joining, bucket.parts.full = False, True
    assert bench.bucket(rested) is None
    bucket.parts.full = False
    bucket.series.collection.replaced = True
    assert bench.bucket(rested) is None


async def test_nothing_is_remembered_while_there_is_nobody_to_tell() -> None:
    bench = RestingBench()
    bench.resting.is_wanted = False
    await bench.joined("a")
    bench.resting.is_wanted = True
    await bench.joined("b")
    bench.clock.now += 1
    assert len(bench.take()) == 1
    bench.resting.forget_all()
    assert not bench.resting.is_wanted


async def test_another_gatherer_is_told_of_everything() -> None:
    bench = RestingBench()
    await bench.joined("a")
    bench.clock.now += 1
    told = bench.take()
    bench.resting.tell_again()
    assert bench.take() == told
    bench.resting.forget(told[0].stored_id)
    assert bench.bucket(told[0]) is None


async def test_what_is_remembered_is_bounded_and_needs_no_memory_of_buckets() -> None:
    bench = RestingBench()
    await bench.joined("a")
    bench.clock.now += 1
    rested, bucket = bench.take_one()
    bench.catalog.give_up(bucket)
    del bucket
    gc.collect()
    # Proxies of weak references that others left would raise in ``isinstance``.
    buckets = [each for each in gc.get_objects() if type(each) is Bucket]
    assert not any(each.series.collection is bench.buckets for each in buckets)
    assert bench.bucket(rested) is None


async def test_a_bucket_that_was_appended_to_in_place_is_told_of_again() -> None:
    bench = RestingBench()
    bench.commit(measurement(0, "a"))
    bench.clock.now += REST_SECONDS
    rested, bucket = bench.take_one()
    bucket.state.try_stage(measurement(1, "a"))
    bucket.state.fold([measurement(1, "a")])
    bucket.state.committed(1)
    assert bench.bucket(rested) is None
    (again,) = bench.take()
    assert (again.stored_id, again.rows) == (rested.stored_id, 2)
    assert bench.bucket(again) is bucket


async def test_a_bucket_with_a_copy_of_a_write_under_way_is_told_of_later() -> None:
    bench = RestingBench()
    await bench.joined("a")
    (bucket,) = (series.current for series in bench.buckets.series.values())
    assert bucket is not None
    bucket.copies_until_seconds = bench.clock.now + 10
    bench.clock.now += 5
    assert bench.take() == []
    bench.clock.now += 5
    assert len(bench.take()) == 1
