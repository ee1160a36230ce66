"""Of many tasks that rewrite, those run in one turn that have time there."""

from __future__ import annotations

import asyncio

from proxy.reads.rewriting_pace import PACE_SECONDS, WOKEN_IN_A_TURN, RewritingPace


async def turns_of(seconds: float, tasks: int) -> list[int]:
    """How many of these tasks ran in each turn of the event loop, which each take so long."""
    pace = RewritingPace()
    ran: list[int] = []

    async def rewrite() -> None:
        since_seconds = await pace.turn()
        ran[-1] += 1
        pace.took(since_seconds - seconds)

    waiting = [asyncio.ensure_future(rewrite()) for _ in range(tasks)]
    while not all(each.done() for each in waiting):
        ran.append(0)
        await asyncio.sleep(0)
    return [count for count in ran if count]


async def test_one_that_takes_a_turn_is_alone_in_it() -> None:
    assert await turns_of(PACE_SECONDS, 5) == [1] * 5


async def test_short_ones_share_a_turn() -> None:
    assert await turns_of(PACE_SECONDS / 3.5, 10) == [4, 4, 2]


async def test_without_load_nobody_waits() -> None:
    pace = RewritingPace()
    for _ in range(3):
        pace.took(await pace.turn() - PACE_SECONDS)
        await asyncio.sleep(0)


async def test_few_of_many_are_woken_in_a_turn_and_all_go_on() -> None:
    ran = await turns_of(PACE_SECONDS / 1000, 100)
    assert sum(ran) == 100
    # Those that asked while there was time did not wait.
    assert max(ran[1:], default=0) <= WOKEN_IN_A_TURN


async def test_nobody_overtakes_whatever_each_takes() -> None:
    pace = RewritingPace()
    order: list[int] = []

    async def rewrite(number: int) -> None:
        since_seconds = await pace.turn()
        order.append(number)
        pace.took(since_seconds - PACE_SECONDS)

    waiting: list[asyncio.Task[None]] = []
    for number in range(60):
        waiting.append(asyncio.create_task(rewrite(number)))
        if number > 40:
            await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == list(range(60))


async def test_one_that_is_cancelled_holds_up_nobody() -> None:
    pace = RewritingPace()
    pace.took(await pace.turn() - PACE_SECONDS)
    waiting = [asyncio.ensure_future(pace.turn()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    async with asyncio.timeout(1):
        await asyncio.gather(*waiting[1:])
