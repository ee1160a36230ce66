"""The tasks in which commits run: their errors are reported, and the end of the process waits for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from catalog.ports import BulkOutcome, Clock, OnOutcome

CANCEL_ROUNDS = 5
CANCEL_SECONDS = 0.3
"""Number and length of the waits for cancelled tasks when a stop has used up its time."""


class BegunWork:
    """A commit that was sent without a task."""

    __slots__ = ("_give_up", "_on_outcome", "_tasks", "_waiter")

    def __init__(self, on_outcome: OnOutcome, give_up: Callable[[], None]) -> None:
        """``on_outcome`` or ``give_up`` is called once: the latter if the end of the process waits no longer."""
        self._on_outcome = on_outcome
        self._give_up = give_up
        self._tasks: set[BegunWork] | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_waited_for(self) -> bool:
        """Whether a task waits for the outcome."""
        return self._waiter is not None

    def joins(self, tasks: set[BegunWork]) -> None:
        """It is under way, as the others of these."""
        self._tasks = tasks
        tasks.add(self)

    def told(self, outcome: BulkOutcome) -> None:
        """Called by the bucket store."""
        if self._leave():
            self._on_outcome(outcome)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def wait(self) -> Coroutine[Any, Any, None]:
        """What waits for the outcome, and gives up when it is cancelled."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._until_told(self._waiter)

    async def _until_told(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            if self._leave():
                self._give_up()
            raise

    def _leave(self) -> bool:
        """Whether it was under way."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return False
        tasks.discard(self)
        return True


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
        self.without_task: set[BegunWork] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this. It starts in the same turn of the event loop as a callback would."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)

    def begun(self, work: BegunWork) -> None:
        """This was sent without a task; the end of the process waits for it, too."""
        work.joins(self.without_task)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)
        if self._ended is not None:
            self._ended()

    def _wait_for_begun(self) -> None:
        for work in self.without_task:
            if not work.is_waited_for:
                self.spawn(work.wait())

    async def drain(self, is_waiting: Callable[[], bool], linger_seconds: float, patience_seconds: float) -> bool:
        """Wait until no task runs and nothing waits for a round, which begins after ``linger_seconds`` at the latest.

        Tasks that are in progress after ``patience_seconds`` are cancelled; then the result is false.
        """
        until_seconds = self._clock.monotonic_seconds() + patience_seconds
        while (self._running or self.without_task or is_waiting()) and self._clock.monotonic_seconds() < until_seconds:
            self._wait_for_begun()
            # Without a task, what is ready waits for the end of a linger.
            await asyncio.sleep(0 if self._running else linger_seconds)
            if self._running:
                left_seconds = until_seconds - self._clock.monotonic_seconds()
                timeout_seconds = None if math.isinf(left_seconds) else max(left_seconds, 0.0)
                await asyncio.wait(set(self._running), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        drained = not self._running and not self.without_task and not is_waiting()
        if self.without_task:
            self._wait_for_begun()
            await asyncio.sleep(0)  # a task that is cancelled before it has started gives nothing up
        for _ in range(CANCEL_ROUNDS):  # the end of one round starts the next
            if not self._running:
                break
            for task in self._running:
                task.cancel()
            await asyncio.wait(set(self._running), timeout=CANCEL_SECONDS)
        return drained
