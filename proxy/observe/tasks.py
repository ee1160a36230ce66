"""Tasks with an owner: protected from the garbage collector, counted, cancelled at shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

END_SECONDS: Final = 2.0
"""Time in which a cancelled task must end; one that does not is abandoned."""
AGAIN_SECONDS: Final = 5.0
"""Pause before work that goes on for as long as the process, and has ended with an error, begins again."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs a coroutine in its own task, as ``TaskSet.spawn`` does."""


class TaskSet:
    """The only place that starts tasks. ``on_error`` is called when a task ends with an exception."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_error = on_error

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in its own task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run the work that ``begin`` makes, and again if it ends with an exception, which ``on_error`` gets."""
        return self.spawn(self._kept(begin))

    async def _kept(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await begin()
            except Exception as error:  # noqa: BLE001  (whatever it is, the work is still needed)
                self._on_error(error)
            else:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

    async def close(self, patience_seconds: float = 0.0) -> None:
        """Cancel the tasks that still run after ``patience_seconds``, and wait ``END_SECONDS`` for their end."""
        if self._tasks and patience_seconds:
            await asyncio.wait(list(self._tasks), timeout=patience_seconds)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)
