from __future__ import annotations

import asyncio

from proxy.observe.tasks import TaskSet


async def test_errors_of_tasks_are_heard_and_cancelled_ones_are_not() -> None:
    heard: list[BaseException] = []
    tasks = TaskSet(heard.append)

    async def fail() -> None:
        raise ValueError("x")

    async def wait() -> None:
        await asyncio.Event().wait()

    await asyncio.gather(tasks.spawn(fail()), return_exceptions=True)
    waiting = tasks.spawn(wait())
    assert len(tasks) == 1
    await tasks.close()
    assert waiting.cancelled()
    assert len(tasks) == 0
    assert [str(error) for error in heard] == ["x"]
