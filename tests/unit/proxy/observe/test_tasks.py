from __future__ import annotations

import asyncio

import pytest

from proxy.observe import tasks as under_test
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


async def test_tasks_that_end_soon_are_not_cancelled() -> None:
    tasks = TaskSet(lambda error: None)
    may_end = asyncio.Event()
    soon, never = tasks.spawn(_wait(may_end)), tasks.spawn(_wait(asyncio.Event()))
    may_end.set()
    await tasks.close(patience_seconds=0.05)
    assert not soon.cancelled()
    assert never.cancelled()


async def test_work_that_is_needed_begins_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "AGAIN_SECONDS", 0.0)
    heard: list[BaseException] = []
    tasks = TaskSet(heard.append)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 4:
            raise ValueError(begun)

    await tasks.keep(work)
    assert [str(error) for error in heard] == ["1", "2", "3"]
    assert begun == 4

    kept = tasks.keep(asyncio.Event().wait)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await tasks.close()
    assert kept.cancelled()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
