"""Limits how long commands are rewritten for in one turn of the event loop, where they are rewritten in tasks.

All tasks that are ready run in the same turn. So many new connections that each begin with a command that is dear to
rewrite would hold the loop for as long as all of them take together. Commands that are started by their connections
have the limits of ``proxy.clients.turns``.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

PACE_SECONDS: Final = 0.001
"""After this time, no further command is rewritten in a turn."""


class RewritingPace:
    """Gives tasks their turns, in the order in which they ask for it."""

    def __init__(self) -> None:
        self._spent_seconds = 0.0

    async def turn(self) -> float:
        """Wait until a command may be rewritten; returns that time."""
        while self._spent_seconds >= PACE_SECONDS:  # noqa: ASYNC110  (the next turn is what it waits for)
            await asyncio.sleep(0)
        return time.perf_counter()

    def took(self, since_seconds: float) -> None:
        """A command has been rewritten since then."""
        if not self._spent_seconds:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._spent_seconds += time.perf_counter() - since_seconds

    def _end_turn(self) -> None:
        self._spent_seconds = 0.0
