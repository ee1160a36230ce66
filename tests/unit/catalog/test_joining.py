"""When parts are joined (the simulation shows that nothing is lost by it)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from catalog import joining as joining_module
from catalog.backlog import MANY_UNMEASURED
from catalog.bson.codec import decode
from catalog.joining import Joining
from catalog.kernel import compressed
from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import join, part_document
from catalog.ports import Span
from catalog.replacing import Differs, Forms
from tests.support.catalog_parts import START_MS, measurement
from tests.support.joining_bench import OPTIONS, UNTOUCHED, JoiningBench, Nobody, RememberingStore


async def test_parts_are_joined_when_there_are_many() -> None:
    bench = JoiningBench()
    for number in range(8):
        bench.commit(measurement(number))
        await bench.joining.join_due()
    assert not bench.store.joins
    bench.commit(measurement(8))
    await bench.joining.join_due()
    assert len(bench.store.joins) == 1
    assert not bench.catalog.growth.parted


async def test_a_large_document_is_not_rewritten_for_a_few_rows() -> None:
    """It is the last to be joined, when the bucket rests."""
    bench = JoiningBench()
    for number in range(9):
        bench.commit(measurement(number))
    await bench.joining.join_due()
    ((first, large),) = bench.store.joins
    for number in range(9, 17):
        bench.commit(measurement(number))
    await bench.joining.join_due()
    _, (begin, small) = bench.store.joins
    assert first < large < begin < small
    bench.clock.now += 2.1
    assert not await bench.joining.join_due()
    assert bench.store.joins[2] == (large, small)
    assert not bench.catalog.growth.parted


async def test_a_pass_without_time_for_everything_says_so() -> None:
    bench = JoiningBench(
        replace(OPTIONS, group_parts=1, slice_seconds=0.0, gentle_seconds=0.0, window_seconds=0.0, workers=1)
    )
    for meta in range(3):
        for number in range(9):
            bench.commit(measurement(number, meta=meta))
    passes = [await bench.joining.join_due() for _ in range(4)]
    assert passes == [True, True, False, False]
    assert len(bench.store.joins) == 3


async def test_a_few_parts_are_joined_to_learn_how_fast_that_is() -> None:
    bench = JoiningBench()
    for number in range(3):
        bench.commit(measurement(number))
    await bench.joining.join_due()
    assert bench.store.joins == []
    for _ in range(MANY_UNMEASURED):
        bench.catalog.growth.backlog.stored()
    await bench.joining.join_due()
    assert len(bench.store.joins) == 1


async def test_parts_are_joined_when_nothing_was_committed_for_a_while() -> None:
    bench = JoiningBench()
    for number in range(3):
        bench.commit(measurement(number))
    bench.clock.now += 2.1
    await bench.joining.join_due()
    assert len(bench.store.joins) == 1


async def test_parts_are_joined_when_they_are_old_though_others_are_committed() -> None:
    """A series that grows slowly beside busy ones, and readers that look at it."""
    bench = JoiningBench(replace(OPTIONS, many=100))
    slow = bench.commit(measurement(0)).stored_id
    bench.commit(measurement(1))
    bench.commit(measurement(1, meta="busy"))
    for second in range(2, 13):
        bench.clock.now += 1
        bench.commit(measurement(second, meta="busy"))
        await bench.joining.join_due()
        assert [first for first, _ in bench.store.joins if first == slow] == [slow] * (second >= 11)


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
        async def join(self, *arguments: Any) -> Sequence[int | None]:  # type: ignore[override]
            bench.clock.now += 0.015
            return await super().join(*arguments)

    store = SlowStore()
    options = replace(OPTIONS, workers=1, group_parts=1)
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
    assert not bench.catalog.growth.parted
    assert not bench.catalog.growth.unjoined


class HoldingStore(RememberingStore):
    """Holds parts, and merges them where they are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: list[bytes] = []

    async def join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> Sequence[int | None]:
        found = [
            [
                document
                for identity, document in sorted(self.documents.items())
                if span.first_id <= identity <= span.last_id
            ]
            for span in spans
        ]
        merged = [span.merge(parts) for span, parts in zip(spans, found, strict=True)]
        self.joined += merged
        return [len(parts) for parts in found]


def _bench_of_parts(forms: Forms, *, full: bool) -> tuple[JoiningBench, HoldingStore, Joining]:
    bench, store = JoiningBench(), HoldingStore()
    options = replace(OPTIONS, compress=True)
    joining = Joining(bench.catalog, store, bench.clock, Nobody(), options, lambda _: None, forms)
    for number in range(8):
        row = measurement(number, v="x" * 200, w=number)
        batch = bench.commit(row)
        made = (batch.stored_id, b"t", b"m", batch.bucket.state.meta, START_MS, [row])
        store.documents[batch.stored_id] = part_document(*made, sealed=True)
    (bucket,) = bench.catalog.growth.parted
    assert bucket.parts is not None
    bucket.parts.full = full
    bench.clock.now += 3
    return bench, store, joining


async def test_a_join_whose_readers_no_longer_wait_is_not_written() -> None:
    """This process was stopped after it had read the parts; another one let its readers go on."""
    bench, store, _ = _bench_of_parts(UNTOUCHED, full=False)
    readers, read = Nobody(), store.join
    joining = Joining(bench.catalog, store, bench.clock, readers, OPTIONS, lambda _: None, UNTOUCHED)

    async def stopped(*arguments: Any) -> Sequence[int | None]:
        readers.still_kept_out = False
        return await read(*arguments)

    store.join = stopped  # type: ignore[method-assign]
    await joining.join_due()
    assert store.joined == []
    assert joining.metrics.failures == 1
    bench.clock.now += 3
    store.join, readers.still_kept_out = read, True  # type: ignore[method-assign]
    await joining.join_due()
    assert len(store.joined) == 1


def _loses_a_row(documents: Sequence[bytes], *others: Any) -> bytes:
    return join(documents[1:], *others)


def _gives_a_row_twice(documents: Sequence[bytes], *others: Any) -> bytes:
    return join([*documents, documents[-1]], *others)


def _changes_a_value(documents: Sequence[bytes], *others: Any) -> bytes:
    return join(documents, *others).replace(b"\x107\0\7", b"\x107\0\6")


@pytest.mark.parametrize("broken", [_loses_a_row, _gives_a_row_twice, _changes_a_value])
async def test_a_join_that_does_not_hold_its_parts_is_not_written(broken: Any) -> None:
    """The parts stay, it is told once, nobody tries again."""
    noticed: list[Differs] = []
    bench, store, joining = _bench_of_parts(Forms(noticed.append, merge=broken), full=True)
    await joining.join_due()
    await joining.join_due()
    assert store.joined == []
    assert ["does not hold its parts" in str(fault) for fault in noticed] == [True]
    assert (joining.metrics.joins, joining.metrics.failures) == (0, 1)
    assert not bench.catalog.growth.unjoined


async def test_a_join_that_is_compressed_wrongly_is_written_uncompressed() -> None:
    noticed: list[Differs] = []
    documents: list[bytes] = []

    def compress(document: bytes, time_field: bytes) -> bytes | None:
        documents.append(document)
        smaller = compressed(document, time_field)
        assert smaller is not None
        return smaller.replace(b"x" * 200, b"x" * 199 + b"y")

    bench, store, joining = _bench_of_parts(Forms(noticed.append, compress), full=True)
    await joining.join_due()
    assert store.joined == documents
    assert len(documents) == 1
    assert len(noticed) == 1
    assert joining.metrics.joins == 1
    assert bench.buckets.counters.numCompressedBuckets == 0


async def test_what_is_joined_and_compressed_rightly_is_written() -> None:
    bench, store, joining = _bench_of_parts(UNTOUCHED, full=True)
    await joining.join_due()
    (written,) = store.joined
    assert decode(written)["control"]["version"] == 2
    assert bench.buckets.counters.numCompressedBuckets == 1


async def test_a_pass_takes_no_more_than_it_has_time_for_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at all of very many buckets at once would hold everybody."""
    monkeypatch.setattr(joining_module, "MOST_DUE", 2)
    monkeypatch.setattr(joining_module, "LOOKED_AT_ONCE", 3)
    bench, readers = JoiningBench(), Somebody()
    joining = Joining(bench.catalog, bench.store, bench.clock, readers, OPTIONS, lambda _: None, UNTOUCHED)
    for meta in "abcde":
        for number in range(3):
            bench.commit(measurement(number, meta=meta))
    bench.clock.now += 2.1
    seen = [[bucket.series.meta for bucket in await joining._find_due(bench.clock.now)] for _ in range(5)]
    assert [len(metas) for metas in seen] == [2] * 5
    assert len({meta for metas in seen[:3] for meta in metas}) == 5
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(joining_module, "MOST_DUE", 100)
    counting = asyncio.get_running_loop().create_task(count())
    assert len(await joining._find_due(bench.clock.now)) == 5
    counting.cancel()
    assert turns >= 1


async def test_at_the_end_of_the_process_a_bucket_becomes_one_document() -> None:
    """Also one whose latest parts alone would be joined while it grows."""
    bench = JoiningBench()
    for number in range(9):
        bench.commit(measurement(number))
    await bench.joining.join_due()
    bench.commit(measurement(9))
    await bench.joining.join_all()
    assert not bench.catalog.growth.parted
