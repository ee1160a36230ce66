"""When parts are joined (the simulation shows that nothing is lost by it)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from catalog.background import joining as joining_module
from catalog.background.joining import Joining
from catalog.background.replacing import Forms
from catalog.background.step_size import FEWEST_DOCUMENTS
from catalog.namespaces import Namespace
from catalog.parts import TOGETHER, IdRange
from catalog.ports import COPIES_SECONDS, Span
from tests.support.catalog_parts import HOUR_MS, measurement
from tests.support.eventually import eventually
from tests.support.joining_bench import OPTIONS, UNTOUCHED, JoiningBench, Nobody, RememberingStore, bench_of_parts

HURRIED = replace(
    OPTIONS,
    group_parts=1,
    slice_seconds=0.0,
    gentle_seconds=0.0,
    window_seconds=0.0,
    preparing_seconds=0.0,
    workers=1,
)
"""With time for one bucket in each pass."""
OPTIONS_OF_SHORT_STEPS = replace(OPTIONS, group_parts=FEWEST_DOCUMENTS)


async def test_parts_are_joined_when_there_are_many() -> None:
    """Without waiting for the end of their segment."""
    bench = JoiningBench()
    for number in range(8):
        bench.commit(measurement(number))
        await bench.joining.join_due()
    assert not bench.store.joins
    last = bench.commit(measurement(8)).stored_id
    await bench.joining.join_due()
    assert [end for _, end in bench.store.joins] == [last]
    assert bench.catalog.growth.backlog.fresh == 0


async def test_a_large_document_is_not_rewritten_for_a_few_rows() -> None:
    """It is the last to be joined, when the bucket rests."""
    bench = JoiningBench()
    large = bench.commit(*(measurement(number) for number in range(100))).stored_id
    for number in range(100, 108):
        bench.commit(measurement(number))
    await bench.joining.join_due()
    ((first, small),) = bench.store.joins
    assert large < first < small
    bench.clock.now += 2.1
    assert not await bench.joining.join_due()
    assert bench.store.joins[1] == (large, small)
    assert not bench.catalog.growth.parted


async def test_a_pass_without_time_for_everything_says_so() -> None:
    """It goes on by some joins, however short its time is."""
    bench = JoiningBench(HURRIED)
    for meta in range(3):
        for number in range(9):
            bench.commit(measurement(number, meta=meta))
    passes = [await bench.joining.join_due() for _ in range(4)]
    assert passes == [True, True, False, False]
    assert len(bench.store.joins) == 3


@pytest.mark.parametrize(("sealed", "most"), [(True, FEWEST_DOCUMENTS), (False, 3 * FEWEST_DOCUMENTS)])
async def test_a_bucket_of_very_many_parts_is_joined_in_short_steps_where_these_keep_writers_waiting(
    most: int, *, sealed: bool
) -> None:
    bench = JoiningBench(OPTIONS_OF_SHORT_STEPS, sealed=sealed)
    for number in range(1 + 3 * FEWEST_DOCUMENTS):
        last = bench.commit(measurement(number)).stored_id
    while bench.catalog.growth.backlog.fresh:
        await bench.joining.join_due()
        bench.clock.now += 0.1
    longest = max(sum(each.documents for each in span.ranges) for span in bench.store.spans)
    assert most <= longest < most + TOGETHER, "the parts, and runs of about their size"
    bench.clock.now += 2.1
    await bench.joining.join_due()
    assert not bench.catalog.growth.parted
    assert bench.store.spans[-1].ranges[-1].last_id == last


@pytest.mark.parametrize(("sealed", "gap_seconds"), [(True, 0.009), (False, 0.0)])
async def test_joins_leave_time_to_writers_who_wait_for_their_commits(gap_seconds: float, *, sealed: bool) -> None:
    bench = JoiningBench(sealed=sealed)

    class SlowStore(RememberingStore):
        async def committing(self, spans: Sequence[Span]) -> None:
            bench.clock.now += 0.001

    joining = Joining(bench.catalog, SlowStore(), bench.clock, Nobody(), OPTIONS, lambda _: None, UNTOUCHED)
    for number in range(9):
        bench.commit(measurement(number))
    await joining.join_due()
    assert joining.metrics.joins == 1
    assert joining.metrics.gap_seconds == pytest.approx(gap_seconds)


async def test_the_last_joins_of_a_process_leave_no_parts_however_many_a_bucket_has() -> None:
    bench = JoiningBench(sealed=True)
    for number in range(1 + 3 * FEWEST_DOCUMENTS):
        bench.commit(measurement(number))
    await bench.joining.join_all()
    assert not bench.catalog.growth.parted


async def test_parts_are_joined_when_nothing_was_committed_for_a_while() -> None:
    bench = JoiningBench()
    for number in range(3):
        bench.commit(measurement(number))
    bench.clock.now += 2.1
    await bench.joining.join_due()
    assert len(bench.store.joins) == 1


async def test_parts_are_joined_when_their_segment_is_old_though_others_are_committed() -> None:
    """A series that grows slowly beside busy ones, and readers that look at it."""
    bench = JoiningBench(replace(OPTIONS, many=100), segment_seconds=5.0)
    bench.commit(measurement(0))
    slow = bench.commit(measurement(1)).stored_id
    bench.commit(measurement(2))
    bench.commit(measurement(1, meta="busy"))
    for second in range(2, 13):
        bench.clock.now += 1
        bench.commit(measurement(second, meta="busy"))
        await bench.joining.join_due()
        joined = [each for span in bench.store.spans for each in span.ranges if each.first_id == slow]
        assert [each.documents for each in joined] == [2] * (second >= 6)


def rows_of_ten(bench: JoiningBench, *metas: object) -> list[bytes]:
    """The ids of new buckets with so many rows that a few parts do not become one with them."""
    return [bench.commit(*(measurement(number, meta=meta) for number in range(10))).stored_id for meta in metas]


async def test_parts_are_joined_when_their_segment_has_ended_and_later_ones_stay() -> None:
    """Where more parts come, neighbours would have many of the others between them."""
    bench = JoiningBench(segment_parts=6)
    rows_of_ten(bench, "a", "b", "c")
    ended = [bench.commit(measurement(number, meta=meta)).stored_id for number in (10, 11) for meta in "abc"]
    later = [bench.commit(measurement(12, meta=meta)).stored_id for meta in "ab"]
    await bench.joining.join_due()
    assert bench.store.steps == 1
    assert [list(span.ranges) for span in bench.store.spans] == [
        [IdRange(ended[number], ended[3 + number], 2)] for number in range(3)
    ]
    assert bench.catalog.growth.backlog.fresh == len(later)
    await bench.joining.join_due()
    assert bench.store.steps == 1


async def test_a_part_that_is_alone_in_its_segment_becomes_a_run_without_a_command() -> None:
    """It would become what it is."""
    bench = JoiningBench()
    large = rows_of_ten(bench, "a", "b")
    alone = [bench.commit(measurement(10, meta=meta)).stored_id for meta in "ab"]
    bench.end_segment()
    bench.commit(measurement(11, meta="c"))
    assert bench.catalog.growth.backlog.fresh == 2
    await bench.joining.join_due()
    assert bench.store.steps == 0
    assert (bench.catalog.growth.backlog.fresh, bench.catalog.growth.unjoined) == (0, 2)
    bench.clock.now += 2.1
    await bench.joining.join_due()
    assert bench.store.joins == list(zip(large, alone, strict=True))


class Somebody(Nobody):
    """ReaderBarrier are there when the test says so."""

    def __init__(self) -> None:
        self.reads = True
        self.asked = 0

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        self.asked += 1
        yield not self.reads


async def test_readers_that_stay_end_growth_in_parts_until_they_leave() -> None:
    """Reads of many small buckets are slow: they must not become more while they cannot be joined."""
    bench, readers = JoiningBench(), Somebody()
    joining = Joining(bench.catalog, bench.store, bench.clock, readers, OPTIONS, lambda _: None, UNTOUCHED)
    first = bench.commit(measurement(0))
    assert bench.commit(measurement(1)).stored_id != first.stored_id
    for _ in range(5):
        bench.clock.now += 8
        await joining.join_due()
    assert joining.metrics.readers_in_the_way == 5
    assert not bench.store.joins
    fresh = bench.commit(measurement(0, meta="b"))
    assert bench.commit(measurement(1, meta="b")).stored_id == fresh.stored_id, "in place"
    readers.reads = False
    await joining.join_due()
    assert bench.store.joins
    assert bench.commit(measurement(2, meta="b")).stored_id != fresh.stored_id, "in parts again"


async def test_what_nobody_tries_to_join_any_more_is_no_reason_to_grow_in_place() -> None:
    bench, readers = JoiningBench(), Somebody()
    joining = Joining(bench.catalog, bench.store, bench.clock, readers, OPTIONS, lambda _: None, UNTOUCHED)
    bench.commit(measurement(0))
    bench.commit(measurement(1))
    for _ in range(5):
        bench.clock.now += 8
        await joining.join_due()
    bench.clock.now += 60
    first = bench.commit(measurement(0, meta="b"))
    assert bench.commit(measurement(1, meta="b")).stored_id != first.stored_id


async def test_readers_are_let_in_between_joins_that_take_long() -> None:
    bench, readers = JoiningBench(), Somebody()
    readers.reads = False

    class SlowStore(RememberingStore):
        async def committing(self, spans: Sequence[Span]) -> None:
            bench.clock.now += 0.015

    store = SlowStore()
    options = replace(OPTIONS, workers=1, group_parts=1, window_seconds=0.02)
    joining = Joining(bench.catalog, store, bench.clock, readers, options, lambda _: None, UNTOUCHED)
    for series in range(6):
        bench.commit(measurement(0, meta=series))
        bench.commit(measurement(1, meta=series))
    bench.clock.now += 3
    await joining.join_all()
    assert len(store.joins) == 6
    assert readers.asked == 3, "two joins in a window of 20 ms"


def test_no_parts_are_made_while_others_share_the_backend() -> None:
    bench = JoiningBench()
    first = bench.commit(measurement(0))
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=True)
    assert bench.commit(measurement(1)).stored_id == first.stored_id
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=False)
    assert bench.commit(measurement(2)).stored_id != first.stored_id


def six_in_parts(bench: JoiningBench) -> list[bytes]:
    """The ids of six buckets of as many series, each in two parts."""
    found = []
    for series in range(6):
        found.append(bench.commit(measurement(0, meta=series)).stored_id)
        bench.commit(measurement(1, meta=series))
    bench.clock.now += 3
    return found


async def test_neighbours_are_joined_in_one_step() -> None:
    """A step has its price, whatever it joins."""
    bench = JoiningBench()
    ids = six_in_parts(bench)
    await bench.joining.join_due()
    assert bench.store.steps == 1
    assert [first for first, _ in bench.store.joins] == sorted(ids)


async def test_neighbours_are_those_whose_ids_are_close_to_each_other() -> None:
    """In whatever order they got their parts; those with another start are far away, and so in another step."""
    bench = JoiningBench()
    ids = [bench.commit(measurement(start, meta=meta)).stored_id for meta in "abc" for start in (0, 2 * HOUR_MS)]
    bench.commit(measurement(2 * HOUR_MS + 1, meta="b"))
    for meta in "cab":
        bench.commit(measurement(1, meta=meta))
    for meta in "ca":
        bench.commit(measurement(2 * HOUR_MS + 1, meta=meta))
    bench.clock.now += 3
    await bench.joining.join_due()
    assert [first for first, _ in bench.store.joins] == [*ids[::2], *ids[1::2]]
    assert bench.store.steps == 2


async def test_a_step_is_bounded() -> None:
    bench = JoiningBench(replace(OPTIONS, group_parts=4))
    six_in_parts(bench)
    await bench.joining.join_due()
    assert bench.store.steps == 3
    assert len(bench.store.joins) == 6


async def test_what_cannot_be_joined_is_no_fault_of_its_neighbours() -> None:
    bench = JoiningBench()
    ids = six_in_parts(bench)
    bench.store.refuses = ids[2]
    await bench.joining.join_due()
    assert sorted(first for first, _ in bench.store.joins) == sorted({*ids} - {ids[2]})
    assert bench.store.steps == 1 + 6
    assert bench.joining.metrics.failures == 1
    assert [bucket.state.bucket_id for bucket in bench.catalog.growth.parted] == [ids[2]]


async def test_a_join_whose_readers_no_longer_wait_is_not_written() -> None:
    """This process was stopped after it had told them to wait; another one let its readers go on."""
    bench, store, _ = bench_of_parts(UNTOUCHED, full=False)

    class Impatient(Nobody):
        @asynccontextmanager
        async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
            yield True
            self.still_kept_out = True

    readers = Impatient()
    readers.still_kept_out = False
    joining = Joining(bench.catalog, store, bench.clock, readers, OPTIONS, lambda _: None, UNTOUCHED)
    await joining.join_due()
    assert (store.joined, store.abandoned, store.open) == ([], 1, 0)
    await joining.join_due()
    assert (len(store.joined), store.abandoned, store.open) == (1, 1, 0)
    assert not bench.catalog.growth.parted


async def test_a_pass_joins_so_many_buckets_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining_module, "MOST_DUE", 2)
    bench = JoiningBench()
    ids = six_in_parts(bench)[:5]
    passes = []
    for _ in range(4):
        passes.append((await bench.joining.join_due(), len(bench.store.joins)))
    assert passes == [(True, 2), (True, 4), (True, 6), (False, 6)]
    assert [first for first, _ in bench.store.joins][:5] == ids


async def test_a_write_that_is_sent_twice_while_its_bucket_waits_for_its_turn_puts_the_join_off() -> None:
    """A late copy would store a part again whose rows are elsewhere by then."""
    bench = JoiningBench(HURRIED)
    ids = six_in_parts(bench)
    buckets = list(bench.catalog.growth.parted)
    assert await bench.joining.join_due()
    assert [first for first, _ in bench.store.joins] == ids[:1]
    # The reply to a write of the third was lost, so that it was sent again, and then acknowledged.
    buckets[2].copies_until_seconds = bench.clock.now + COPIES_SECONDS
    for _ in range(8):
        await bench.joining.join_due()
    assert [first for first, _ in bench.store.joins] == [*ids[:2], *ids[3:]]
    bench.clock.now += COPIES_SECONDS
    await bench.joining.join_due()
    assert bench.store.joins[-1][0] == ids[2]


async def test_what_failed_in_one_database_is_not_joined_while_readers_of_another_wait() -> None:
    """It is tried alone, later; its own readers are not kept out now."""

    class ReadersOfOne(Nobody):
        def __init__(self) -> None:
            self.reads = True
            self.kept: list[str] = []

        @asynccontextmanager
        async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
            alone = not self.reads or namespace.database == "other"
            if alone:
                self.kept.append(namespace.database)
            yield alone
            if alone:
                self.kept.pop()

    bench, readers = JoiningBench(), ReadersOfOne()
    joined: list[tuple[bytes, tuple[str, ...]]] = []

    class WatchedStore(RememberingStore):
        async def committing(self, spans: Sequence[Span]) -> None:
            joined.extend((span.ranges[0].first_id, tuple(readers.kept)) for span in spans)

    store = WatchedStore()
    options = replace(OPTIONS, group_parts=4)
    joining = Joining(bench.catalog, store, bench.clock, readers, options, lambda _: None, UNTOUCHED)
    ids = six_in_parts(bench)
    bench.buckets = bench.catalog.collection(replace(bench.virtual, namespace=Namespace("other", "c"), uuid=b"2" * 16))
    others = six_in_parts(bench)
    store.refuses = ids[2]
    for _ in range(3):
        await joining.join_due()
    assert joined == [(each, ("other",)) for each in others]
    readers.reads = False
    for _ in range(3):
        await joining.join_due()
    assert sorted(joined[6:]) == [(each, ("db",)) for each in ids if each != ids[2]]


async def test_what_readers_were_in_the_way_of_is_joined_when_they_have_left() -> None:
    bench, readers = JoiningBench(), Somebody()
    joining = Joining(bench.catalog, bench.store, bench.clock, readers, OPTIONS, lambda _: None, UNTOUCHED)
    ids = six_in_parts(bench)
    assert not await joining.join_due()
    readers.reads = False
    await joining.join_due()
    assert [first for first, _ in bench.store.joins] == ids


async def test_at_the_end_of_the_process_a_bucket_becomes_one_document() -> None:
    """Also one whose latest parts alone would be joined while it grows."""
    bench = JoiningBench()
    for number in range(9):
        bench.commit(measurement(number))
    await bench.joining.join_due()
    last = bench.commit(measurement(9)).stored_id
    bench.end_segment()
    bench.commit(measurement(10))
    await bench.joining.join_all()
    assert last < bench.store.joins[-1][1]
    assert not bench.catalog.growth.parted


@pytest.mark.parametrize("which", ["orphans", "gathering", "join_due"])
async def test_an_error_of_our_own_is_told_and_joining_goes_on(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails does not keep the rest from being done, and is tried again after a pause."""
    monkeypatch.setattr(joining_module, "AFTER_ERROR_SECONDS", 0.01)
    bench, noticed = JoiningBench(), list[Exception]()
    options = replace(OPTIONS, interval_seconds=0.001)
    joining = Joining(bench.catalog, bench.store, bench.clock, Nobody(), options, lambda _: None, Forms(noticed.append))
    calls: dict[str, int] = dict.fromkeys(("orphans", "gathering", "join_due"), 0)
    error = TypeError("a bug")

    def counting(name: str) -> Callable[[], Awaitable[int]]:
        async def call() -> int:
            calls[name] += 1
            if name == which and calls[name] == 1:
                raise error
            return 0

        return call

    monkeypatch.setattr(joining.orphans, "sweep", counting("orphans"))
    monkeypatch.setattr(joining.gathering, "look", counting("gathering"))
    monkeypatch.setattr(joining, "join_due", counting("join_due"))
    running = asyncio.create_task(joining.run())
    await eventually(lambda: min(calls.values()) >= 3)
    running.cancel()
    assert noticed == [error]
    assert set(calls.values()) == {calls[which]}


@pytest.mark.parametrize("together", [2, 4])
async def test_runs_become_one_when_there_are_as_many_as_the_options_say(together: int) -> None:
    bench = JoiningBench(runs_together=together)
    bench.commit(*(measurement(number) for number in range(100)))
    joined = []
    for number in range(100, 100 + together):
        bench.commit(measurement(number))
        bench.end_segment()
        await bench.joining.join_due()
        joined.append(len(bench.store.joins))
    assert joined == [0] * (together - 1) + [1]
