"""Tasks of commits: reported errors, and what a stop waits for."""

from __future__ import annotations

import asyncio
import math

import pytest

from catalog.commit.commit_tasks import BegunWork, CommitTasks
from catalog.ports import Applied, BulkOutcome
from tests.support.catalog_parts import ACKNOWLEDGED
from tests.support.committer_bench import LoopClock


class Bench:
    """Tasks, their errors, and how often one has ended."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.ends = 0
        self.waiting = False
        self.tasks = CommitTasks(LoopClock(), self.errors.append, self._ended)

    def _ended(self) -> None:
        self.ends += 1

    async def drain(self, patience_seconds: float = math.inf, linger_seconds: float = 0.0) -> bool:
        async with asyncio.timeout(20):
            return await self.tasks.drain(lambda: self.waiting, linger_seconds, patience_seconds)


async def test_errors_are_reported_and_cancellations_are_not() -> None:
    async def fail() -> None:
        raise ValueError("x")

    bench = Bench()
    bench.tasks.spawn(fail())
    bench.tasks.spawn(asyncio.sleep(100))
    await asyncio.sleep(0)
    for task in list(bench.tasks):
        task.cancel()
    assert await bench.drain()
    assert [str(error) for error in bench.errors] == ["x"]
    assert (bench.ends, len(bench.tasks)) == (2, 0)


async def test_draining_waits_for_tasks_and_for_what_has_none_yet() -> None:
    bench = Bench()
    bench.waiting = True
    steps: list[str] = []

    async def commit() -> None:
        await asyncio.sleep(0.01)
        steps.append("committed")
        bench.waiting = False

    asyncio.get_running_loop().call_later(0.02, lambda: bench.tasks.spawn(commit()))
    assert await bench.drain(linger_seconds=0.005)
    assert steps == ["committed"]


@pytest.mark.parametrize("again", [0, 3])
async def test_what_is_left_at_the_end_of_patience_is_cancelled(again: int) -> None:
    """Also tasks that begin when others end."""
    bench = Bench()
    bench.waiting = True

    async def stuck(rounds: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            if rounds:
                bench.tasks.spawn(stuck(rounds - 1))

    bench.tasks.spawn(stuck(again))
    assert not await bench.drain(0.01)
    assert len(bench.tasks) == 0


class Begun:
    """A commit without a task, and what became of it."""

    def __init__(self, bench: Bench) -> None:
        self.heard: list[BulkOutcome | None] = []
        self.work = BegunWork(self.heard.append, lambda: self.heard.append(None))
        bench.tasks.begun(self.work)


APPLIED = Applied(1, {}, ACKNOWLEDGED)


async def test_draining_waits_for_what_was_sent_without_a_task() -> None:
    bench = Bench()
    begun, told_before = Begun(bench), Begun(bench)
    told_before.work.told(APPLIED)
    asyncio.get_running_loop().call_later(0.02, begun.work.told, APPLIED)
    assert await bench.drain()
    assert begun.heard == told_before.heard == [APPLIED]
    assert not bench.tasks.without_task


@pytest.mark.parametrize("patience_seconds", [0.0, 0.02])
async def test_what_was_sent_without_a_task_is_given_up_once(patience_seconds: float) -> None:
    bench = Bench()
    begun = Begun(bench)
    assert not await bench.drain(patience_seconds)
    assert begun.heard == [None]
    begun.work.told(APPLIED)
    assert begun.heard == [None]
    assert not bench.tasks.without_task
