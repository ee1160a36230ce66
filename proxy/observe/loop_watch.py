"""How long the event loop is held: what one client's work costs all others.

A timer that comes late tells that somebody held the loop. Time on the clock says little on a busy machine, so it
counts only as far as the loop's own thread was computing meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

BUSY_SECONDS: Final = 0.005
"""Between two looks while something is done; shorter holds than this may go unnoticed."""
IDLE_SECONDS: Final = 0.04
"""Between two looks while next to nothing is done, so that an idle process sleeps."""
IDLE_SHARE: Final = 0.02
"""Computing for less than this share of the time is next to nothing."""


class Observer(Protocol):
    """Who keeps what was seen (``proxy.observe.metrics``)."""

    def observe(self, value: float) -> None:
        """The loop was held for so many seconds of computing."""
        ...


class LoopWatch:
    """Looks at the loop from within."""

    def __init__(
        self,
        observer: Observer,
        now_seconds: Callable[[], float] = time.monotonic,
        computed_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """``computed_seconds``: the processor time of the thread that runs the loop."""
        self._observer = observer
        self._now_seconds = now_seconds
        self._computed_seconds = computed_seconds
        self._looked_at_seconds = now_seconds()
        self._due_seconds = self._looked_at_seconds
        self._computed_until_seconds = computed_seconds()

    async def run(self) -> None:
        """For ever: look."""
        pause_seconds = BUSY_SECONDS
        while True:
            self._due_seconds = self._now_seconds() + pause_seconds
            await asyncio.sleep(pause_seconds)
            pause_seconds = self.look()

    def look(self) -> float:
        """Note for how long the loop was held; after how many seconds to look again."""
        now_seconds, computed_seconds = self._now_seconds(), self._computed_seconds()
        computed = computed_seconds - self._computed_until_seconds
        since_seconds = now_seconds - self._looked_at_seconds
        self._observer.observe(max(0.0, min(now_seconds - self._due_seconds, computed)))
        self._looked_at_seconds, self._computed_until_seconds = now_seconds, computed_seconds
        return IDLE_SECONDS if computed < IDLE_SHARE * since_seconds else BUSY_SECONDS
