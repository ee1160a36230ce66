"""Limits how long commands are rewritten for in one turn of the event loop, where they are rewritten in tasks.

All tasks that are ready run in the same turn. If many new connections begin with a command that is expensive to
rewrite, they would hold the loop for as long as all of them take together. Commands that are started by their
connections have the limits of ``proxy.clients.turns``.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

PACE_SECONDS: Final = 0.001
"""After this time, no further command is rewritten in a turn."""
WOKEN_IN_A_TURN: Final = 16
"""Maximum number of waiting tasks that run in a turn to see whether they may go on; waking costs time, too."""


T = TypeVar("T")


class RewritingPace:
    """Gives tasks their turns, in the order in which they ask for it."""

    def __init__(self) -> None:
        self._spent_seconds = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._too_late: deque[asyncio.Future[None]] = deque()
        """Those that were woken in this turn when its time was already spent; they are the first of the next turn."""
        self._is_scheduled = False

    async def run(self, work: Callable[[], T], ended: Callable[[float], None] = lambda since_seconds: None) -> T:
        """The result of ``work``, a step of rewriting; ``ended`` is called after it with the time of its beginning."""
        await self._turn()
        since_seconds = time.perf_counter()
        try:
            result = work()
        finally:
            self._schedule()
            self._spent_seconds += time.perf_counter() - since_seconds
        ended(since_seconds)
        return result

    async def _turn(self) -> None:
        """Wait until there is time in a turn."""
        if self._waiting or self._too_late or self._spent_seconds >= PACE_SECONDS:
            await self._woken(self._waiting)
            while self._spent_seconds >= PACE_SECONDS:
                await self._woken(self._too_late)

    async def _woken(self, queue: deque[asyncio.Future[None]]) -> None:
        woken = asyncio.get_running_loop().create_future()
        queue.append(woken)
        self._schedule()
        await woken

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._spent_seconds = 0.0
        while self._too_late:
            self._waiting.appendleft(self._too_late.pop())
        for _ in range(min(WOKEN_IN_A_TURN, len(self._waiting))):
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
        if self._waiting:
            self._schedule()
