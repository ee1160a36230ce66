"""Limits how many requests are under way."""

from __future__ import annotations

import asyncio
from collections import deque


class RequestPlaces:
    """A number of places, which are given in the order of arrival. Unlike a semaphore, it can be asked at once."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a place."""
        if self.take():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it was given a place at the same moment
            raise

    def release(self) -> None:
        """Give a place back; the first who waits gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
