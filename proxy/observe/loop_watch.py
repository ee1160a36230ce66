"""Measures how long the event loop is blocked, which is how long one client's work delays all others.

A late timer shows that the loop was blocked. On a busy machine the thread may also have been waiting for the CPU, so
only the CPU time of the loop's thread in that period counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

BUSY_SECONDS: Final = 0.005
"""Interval of the timer while the process is busy; shorter delays may not be noticed."""
IDLE_SECONDS: Final = 0.04
"""Interval of the timer while the process is idle, so that it rarely wakes."""
IDLE_SHARE: Final = 0.02
"""A process that computes for less than this share of the time is idle."""


class Observer(Protocol):
    """Records the delays (``proxy.observe.metrics``)."""

    def observe(self, value: float) -> None:
        """The loop was blocked for this time, in seconds of CPU."""
        ...


class LoopWatch:
    """A timer in the event loop that measures its own delay."""

    def __init__(
        self,
        observer: Observer,
        now_seconds: Callable[[], float] = time.monotonic,
        computed_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """``computed_seconds`` returns the CPU time of the thread that runs the loop."""
        self._observer = observer
        self._now_seconds = now_seconds
        self._computed_seconds = computed_seconds
        self._looked_at_seconds = now_seconds()
        self._due_seconds = self._looked_at_seconds
        self._computed_until_seconds = computed_seconds()

    async def run(self) -> None:
        """Measure until the task is cancelled."""
        pause_seconds = BUSY_SECONDS
        while True:
            self._due_seconds = self._now_seconds() + pause_seconds
            await asyncio.sleep(pause_seconds)
            pause_seconds = self.look()

    def look(self) -> float:
        """Record how long the loop was blocked; returns the interval to the next measurement in seconds."""
        now_seconds, computed_seconds = self._now_seconds(), self._computed_seconds()
        computed = computed_seconds - self._computed_until_seconds
        since_seconds = now_seconds - self._looked_at_seconds
        self._observer.observe(max(0.0, min(now_seconds - self._due_seconds, computed)))
        self._looked_at_seconds, self._computed_until_seconds = now_seconds, computed_seconds
        return IDLE_SECONDS if computed < IDLE_SHARE * since_seconds else BUSY_SECONDS
