"""Time passes as the work says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from math import ceil

import pytest

from proxy.inserts.slices import FIRST_SLICE_SECONDS, SLICE_SECONDS, TURN_SECONDS, SliceResult, Slices, ThreadCall


class Workshop:
    def __init__(self) -> None:
        self.now_seconds = 100.0
        self.slices = Slices(lambda: self.now_seconds)
        self.done: list[str] = []
        self.pauses: list[str] = []

    def start(self, name: str, steps: int, seconds: float) -> None:
        self.slices.start(self.work(name, steps, seconds), lambda: self.pauses.append(name))

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def work(self, name: str, steps: int, seconds: float) -> Iterator[SliceResult]:
        for _ in range(steps):
            yield False
            self.now_seconds += seconds
            self.done.append(name)


async def test_what_is_short_is_done_at_once() -> None:
    workshop = Workshop()
    workshop.start("a", 3, FIRST_SLICE_SECONDS / 4)
    assert workshop.done == ["a"] * 3
    assert workshop.pauses == []


async def test_of_what_is_long_a_slice_is_done_at_once_and_others_are_served_before_the_rest() -> None:
    workshop = Workshop()
    workshop.start("long", 100, TURN_SECONDS * 0.6)
    at_once = ceil(FIRST_SLICE_SECONDS / (TURN_SECONDS * 0.6))
    assert workshop.done == ["long"] * at_once
    asyncio.get_running_loop().call_soon(workshop.done.append, "another")
    await asyncio.sleep(0)
    assert workshop.done == ["long"] * (at_once + 2) + ["another"]
    await workshop.turns(100)
    assert len(workshop.done) == 101
    assert workshop.pauses == ["long"] * len(workshop.pauses)


async def test_each_has_a_slice_of_a_turn_in_order() -> None:
    workshop = Workshop()
    for name in "abc":
        workshop.start(name, 100, SLICE_SECONDS * 1.1)
    workshop.done.clear()
    in_a_turn = ceil(TURN_SECONDS / (SLICE_SECONDS * 1.1))
    for turns in range(1, 6):
        await asyncio.sleep(0)
        assert "".join(workshop.done) == ("abc" * 10)[: turns * in_a_turn]
    await workshop.turns(400)


async def test_a_turn_is_bounded_however_many_there_are() -> None:
    workshop = Workshop()
    for number in range(50):
        workshop.start(str(number), 10, SLICE_SECONDS)
    before_seconds = workshop.now_seconds
    await asyncio.sleep(0)
    assert workshop.now_seconds - before_seconds <= TURN_SECONDS + SLICE_SECONDS
    await workshop.turns(500)
    assert len(workshop.done) == 500


async def test_who_asks_for_the_next_turn_has_it() -> None:
    slices, done = Slices(lambda: 0.0), []

    def work() -> Iterator[SliceResult]:
        done.append(1)
        yield True
        done.append(2)

    slices.start(work(), lambda: done.append(0))
    assert done == [1, 0]
    await asyncio.sleep(0)
    assert done == [1, 0, 2]


async def test_what_is_done_aside_is_done_in_another_thread() -> None:
    slices, ended = Slices(), asyncio.Event()
    threads: list[int] = []

    def work() -> Iterator[SliceResult]:
        here = ThreadCall(threading.get_ident)
        yield here
        failing = ThreadCall(int, "no number")
        yield failing
        threads.append(here.result)
        with pytest.raises(ValueError, match="no number"):
            _ = failing.result
        ended.set()

    slices.start(work(), lambda: None)
    await asyncio.wait_for(ended.wait(), 10)
    assert threads != [threading.get_ident()]
