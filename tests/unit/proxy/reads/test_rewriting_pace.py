"""Of many tasks that rewrite, those run in one turn that have time there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from proxy.reads.rewriting_pace import PACE_SECONDS, WOKEN_IN_A_TURN, RewritingPace


class Clock:
    """Time that passes only while somebody works."""

    def __init__(self) -> None:
        self.now_seconds = 0.0

    def work(self, seconds: float) -> None:
        self.now_seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now_seconds)
    return clock


async def turns_of(work: Callable[[], None], tasks: int) -> list[int]:
    """How many of these tasks ran in each turn of the event loop."""
    pace = RewritingPace()
    ran: list[int] = []

    def rewrite() -> None:
        ran[-1] += 1
        work()

    waiting = [asyncio.ensure_future(pace.run(rewrite)) for _ in range(tasks)]
    while not all(each.done() for each in waiting):
        ran.append(0)
        await asyncio.sleep(0)
    return [count for count in ran if count]


async def test_one_that_takes_a_turn_is_alone_in_it(clock: Clock) -> None:
    assert await turns_of(lambda: clock.work(PACE_SECONDS), 5) == [1] * 5


async def test_short_ones_share_a_turn(clock: Clock) -> None:
    assert await turns_of(lambda: clock.work(PACE_SECONDS / 3.5), 10) == [4, 4, 2]


async def test_without_load_nobody_waits(clock: Clock) -> None:
    pace = RewritingPace()
    for _ in range(3):
        task = asyncio.ensure_future(pace.run(lambda: clock.work(PACE_SECONDS)))
        await asyncio.sleep(0)
        assert task.done()
        await asyncio.sleep(0)


async def test_the_time_of_the_beginning_is_told_at_the_end(clock: Clock) -> None:
    told: list[float] = []
    clock.work(5.0)
    assert await RewritingPace().run(lambda: "plan", told.append) == "plan"
    assert told == [5.0]


async def test_few_of_many_are_woken_in_a_turn_and_all_go_on(clock: Clock) -> None:
    ran = await turns_of(lambda: clock.work(PACE_SECONDS / 32), 200)
    assert sum(ran) == 200
    # Those that asked while there was time did not wait.
    assert ran[0] == 32
    assert max(ran[1:]) == WOKEN_IN_A_TURN


async def test_nobody_overtakes_whatever_each_takes(clock: Clock) -> None:
    pace = RewritingPace()
    order: list[int] = []

    def rewrite(number: int) -> None:
        order.append(number)
        clock.work(PACE_SECONDS)

    waiting: list[asyncio.Task[None]] = []
    for number in range(60):
        waiting.append(asyncio.create_task(pace.run(lambda number=number: rewrite(number))))  # type: ignore[misc]
        if number > 40:
            await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == list(range(60))


async def test_one_that_is_cancelled_or_fails_holds_up_nobody(clock: Clock) -> None:
    pace = RewritingPace()

    def fail() -> None:
        clock.work(PACE_SECONDS)
        raise ValueError("not a command")

    with pytest.raises(ValueError, match="not a command"):
        await pace.run(fail)
    waiting = [asyncio.ensure_future(pace.run(lambda: None)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    async with asyncio.timeout(20):
        await asyncio.gather(*waiting[1:])
