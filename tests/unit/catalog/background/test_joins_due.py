"""Which buckets are joined next: neighbours follow each other, and all are looked at only as often as that is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

import pytest

from catalog.background import joins_due as joins_due_module
from catalog.background.joins_due import PAUSE, JoinsDue, neighbours, place_of
from catalog.buckets.open_bucket import Bucket
from catalog.parts import bucket_key
from tests.support.catalog_parts import HOUR_MS, measurement, virtual
from tests.support.joining_bench import OPTIONS, JoiningBench


class Looking(JoiningBench):
    """Buckets in parts, of which those that the test names are due."""

    def __init__(self, **growth: int) -> None:
        super().__init__(OPTIONS, **growth)
        self.due = JoinsDue(self.clock)
        self.asked = 0
        self.seconds = 0.0
        """How long it takes to ask about one bucket."""
        self.spared: set[Bucket] = set()
        """Buckets that are not due."""

    def in_parts(self, *metas: object, offset_ms: int = 0) -> list[Bucket]:
        """A bucket of each series, begun in this order, whose parts are made in the opposite one."""
        buckets = [self.commit(measurement(offset_ms, meta)).bucket for meta in metas]
        for meta in reversed(metas):
            self.commit(measurement(offset_ms + 1, meta))
        return buckets

    async def look(self) -> None:
        await self.due.look(self.catalog.growth, self._is_due)

    def _is_due(self, bucket: Bucket) -> bool:
        self.asked += 1
        self.clock.now += self.seconds
        return bucket not in self.spared


async def test_those_that_are_due_come_in_the_order_of_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which they were stored, and in however many pieces they are looked at."""
    monkeypatch.setattr(joins_due_module, "LOOKED_AT_ONCE", 3)
    bench = Looking()
    buckets = bench.in_parts(*range(10))
    assert list(bench.catalog.growth.parted) == buckets[::-1]
    bench.spared = {buckets[4]}
    await bench.look()
    found = list(bench.due)
    assert found == [*buckets[:4], *buckets[5:]]
    assert found == sorted(found, key=place_of)


async def test_a_place_is_the_same_in_all_segments() -> None:
    """Of buckets that began in different ones, too."""
    bench = Looking(segment_parts=1)
    buckets = bench.in_parts("a") + bench.in_parts("b")
    assert [place_of(each) for each in buckets] == [bucket_key(each.state.bucket_id) for each in buckets]
    assert buckets[0].state.bucket_id[4:6] != buckets[1].state.bucket_id[4:6]
    for bucket in buckets:
        assert bucket.parts is not None
        assert bucket_key(bucket.parts.last_id) == place_of(bucket)
    await bench.look()
    assert list(bench.due) == buckets


def test_neighbours_are_buckets_of_one_collection_with_the_same_start() -> None:
    """Ids with other starts are far away, whatever their place."""
    bench = Looking()
    one, same_start = bench.in_parts("a", "b")
    (later,) = bench.in_parts("a", offset_ms=HOUR_MS)
    assert neighbours(one, same_start)
    assert not neighbours(one, later)
    bench.buckets = bench.catalog.collection(virtual("other", uuid=2))
    (elsewhere,) = bench.in_parts("a")
    assert elsewhere.state.bucket_id[:4] == one.state.bucket_id[:4]
    assert not neighbours(one, elsewhere)


async def test_nothing_is_looked_for_while_something_is_left() -> None:
    bench = Looking()
    buckets = bench.in_parts(*range(4))
    await bench.look()
    assert list(islice(bench.due, 3)) == buckets[:3]
    await bench.look()
    assert bench.asked == 4
    assert list(bench.due) == buckets[3:]
    await bench.look()
    assert bench.asked == 8


async def test_what_there_was_no_time_for_comes_first() -> None:
    bench = Looking()
    buckets = bench.in_parts(*range(5))
    await bench.look()
    taken = list(islice(bench.due, 3))
    bench.due.put_back(taken[1:])
    await bench.look()
    assert bench.asked == 5, "there is something left"
    assert list(bench.due) == buckets[1:]


async def test_what_was_put_back_is_found_once_by_the_next_look() -> None:
    bench = Looking(segment_parts=100)
    buckets = bench.in_parts(*range(5))
    await bench.look()
    bench.due.put_back(list(islice(bench.due, 2)))
    bench.end_segment()
    await bench.look()
    assert list(bench.due) == buckets


async def test_the_end_of_a_segment_is_a_reason_to_look_at_once() -> None:
    """The parts of very many buckets become due together."""
    bench = Looking(segment_parts=100)
    buckets = bench.in_parts("a", "b", "c")
    bench.spared = {*buckets[:2]}
    bench.seconds = 1.0
    await bench.look()
    assert list(bench.due) == buckets[2:]
    bench.spared = set()
    await bench.look()
    assert (bench.asked, list(bench.due)) == (3, [])
    bench.end_segment()
    await bench.look()
    assert (bench.asked, list(bench.due)) == (6, buckets)


async def test_looking_takes_a_small_part_of_the_time() -> None:
    """There may be a million buckets in parts, few of which are due."""
    bench = Looking()
    bench.in_parts(*range(10))
    bench.seconds = 0.01
    await bench.look()
    assert list(bench.due)
    bench.clock.now += PAUSE * 0.1 - 0.01
    await bench.look()
    assert (bench.asked, list(bench.due)) == (10, [])
    bench.clock.now += 0.02
    await bench.look()
    assert bench.asked == 20


async def test_others_have_their_turns_while_very_many_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins_due_module, "LOOKED_AT_ONCE", 3)
    bench = Looking()
    bench.in_parts(*range(10))
    asked: list[int] = []

    async def count() -> None:
        while True:
            asked.append(bench.asked)
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count())
    await bench.look()
    counting.cancel()
    assert asked == [3, 6, 9]


async def test_a_bucket_that_gets_its_first_part_meanwhile_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others commit, and end parts, while all are looked at."""
    monkeypatch.setattr(joins_due_module, "LOOKED_AT_ONCE", 2)
    bench = Looking()
    buckets = bench.in_parts(*range(5))
    looking = asyncio.get_running_loop().create_task(bench.look())
    await asyncio.sleep(0)
    assert bench.asked == 2
    late = bench.in_parts("late")
    joined: Sequence[Bucket] = buckets[:1]
    for bucket in joined:
        assert bucket.parts is not None
        bench.catalog.growth.joined(bucket, bucket.parts, bucket.parts.pending(everything=True))
    await looking
    assert list(bench.due) == buckets, "who takes them asks again"
    await bench.look()
    assert list(bench.due) == [*buckets[1:], *late]
