"""The tasks in which commits run: their errors are reported, and the end of the process waits for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from catalog.ports import Clock

CANCEL_ROUNDS = 5
CANCEL_SECONDS = 0.3
"""Number and length of the waits for cancelled tasks when a stop has used up its time."""


class CommitTasks:
    """Tasks that nobody else waits for, so a client that disconnects does not cancel a commit."""

    def __init__(
        self, clock: Clock, report: Callable[[BaseException], None], ended: Callable[[], None] | None = None
    ) -> None:
        """``report`` gets the errors of tasks; ``ended`` is called after each of them."""
        self._clock = clock
        self._report = report
        self._ended = ended
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this. It starts in the same turn of the event loop as a callback would."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)
        if self._ended is not None:
            self._ended()

    async def drain(self, is_waiting: Callable[[], bool], linger_seconds: float, patience_seconds: float) -> bool:
        """Wait until no task runs and nothing waits for a round, which begins after ``linger_seconds`` at the latest.

        Tasks that are in progress after ``patience_seconds`` are cancelled; then the result is false.
        """
        until_seconds = self._clock.monotonic_seconds() + patience_seconds
        while (self._running or is_waiting()) and self._clock.monotonic_seconds() < until_seconds:
            # Without a task, what is ready waits for the end of a linger.
            await asyncio.sleep(0 if self._running else linger_seconds)
            if self._running:
                left_seconds = until_seconds - self._clock.monotonic_seconds()
                timeout_seconds = None if math.isinf(left_seconds) else max(left_seconds, 0.0)
                await asyncio.wait(set(self._running), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        drained = not self._running and not is_waiting()
        for _ in range(CANCEL_ROUNDS):  # the end of one round starts the next
            if not self._running:
                break
            for task in self._running:
                task.cancel()
            await asyncio.wait(set(self._running), timeout=CANCEL_SECONDS)
        return drained
