"""When parts are joined (the simulation shows that nothing is lost by it)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from catalog.catalog import Growth
from catalog.joining import Joining, JoiningOptions
from catalog.namespaces import Namespace, VirtualCollection
from tests.support.catalog_parts import CatalogBench, ScriptedStore, measurement

OPTIONS = JoiningOptions(many=8, idle_seconds=2.0, aged_seconds=10.0)


class Nobody:
    """No reader is ever under way."""

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        yield True


class RememberingStore(ScriptedStore):
    """Joins everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.joins: list[tuple[bytes, bytes]] = []

    async def join(
        self,
        collection: VirtualCollection,
        first_id: bytes,
        last_id: bytes,
        merge: Callable[[Sequence[bytes]], bytes],
        deadline_seconds: float,
    ) -> int | None:
        self.joins.append((first_id, last_id))
        return 2


class Bench(CatalogBench):
    def __init__(self, options: JoiningOptions = OPTIONS) -> None:
        super().__init__(growth=Growth(in_parts=True, crowd=1, rows_in_place=1))
        self.store = RememberingStore()
        self.joining = Joining(self.catalog, self.store, self.clock, Nobody(), options, lambda _: None)


async def test_parts_are_joined_when_there_are_many() -> None:
    bench = Bench()
    for number in range(7):
        bench.commit(measurement(number))
        await bench.joining.join_due()
    assert not bench.store.joins
    bench.commit(measurement(7))
    await bench.joining.join_due()
    assert len(bench.store.joins) == 1
    assert not bench.catalog.parted


async def test_parts_are_joined_when_nothing_was_committed_for_a_while() -> None:
    bench = Bench()
    for number in range(3):
        bench.commit(measurement(number))
    bench.clock.now += 2.1
    await bench.joining.join_due()
    assert len(bench.store.joins) == 1


async def test_parts_are_joined_when_they_are_old_though_others_are_committed() -> None:
    """A series that grows slowly beside busy ones, and readers that look at it."""
    bench = Bench(replace(OPTIONS, many=100))
    slow = bench.commit(measurement(0)).stored_id
    bench.commit(measurement(1))
    bench.commit(measurement(1, meta="busy"))
    for second in range(2, 13):
        bench.clock.now += 1
        bench.commit(measurement(second, meta="busy"))
        await bench.joining.join_due()
        assert [first for first, _ in bench.store.joins if first == slow] == [slow] * (second >= 11)
