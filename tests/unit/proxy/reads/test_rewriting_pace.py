"""Of many tasks that rewrite, those run in one turn that have time there."""

from __future__ import annotations

import asyncio

from proxy.reads.rewriting_pace import PACE_SECONDS, RewritingPace


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
