"""No client takes all places, and places that become free go round."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from proxy.request.step_places import StepPlaces
from proxy.request.times import Times


class Work:
    """Steps that end when they are told to."""

    def __init__(self, places: StepPlaces) -> None:
        self.places = places
        self.under_way: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def step(self, owner: str) -> None:
        async with self.places.place(owner, Times()):
            end = asyncio.Event()
            self.under_way.append((owner, end))
            await end.wait()

    async def begin(self, owner: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self.step(owner)) for _ in range(count)]
        await self.turns()

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def end_first(self) -> None:
        self.under_way.pop(0)[1].set()
        await self.turns()

    @property
    def who(self) -> Counter[str]:
        return Counter(owner for owner, _ in self.under_way)


async def test_nobody_takes_more_than_its_own_places() -> None:
    work = Work(StepPlaces(8, 3))
    await work.begin("many", 20)
    await work.begin("few")
    assert work.who == {"many": 3, "few": 1}


async def test_free_places_go_round() -> None:
    work = Work(StepPlaces(4, 4))
    await work.begin("many", 20)
    await work.begin("few")
    await work.end_first()
    await work.end_first()
    assert work.who["few"] == 1
    while work.under_way:
        await work.end_first()
    assert all(task.done() for task in work.tasks)
    assert (work.places._free, work.places._owners) == (4, {})


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_who_leaves_gives_its_place_back(cancelled: int) -> None:
    """While it works, while it waits, and when it was just told that it has one."""
    work = Work(StepPlaces(1, 2))
    await work.begin("a")
    await work.begin("b")
    await work.begin("c")
    if cancelled == 2:
        work.under_way.pop(0)[1].set()
        await asyncio.wait({work.tasks[0]})
        work.tasks[1].cancel()
    else:
        work.tasks[cancelled].cancel()
        work.under_way = work.under_way[cancelled == 0 :]
    await work.turns()
    while work.under_way:
        await work.end_first()
    assert all(task.done() for task in work.tasks)
    assert (work.places._free, work.places._owners) == (1, {})
