"""Limits the concurrent steps of the proxy's own account, in total and for each client.

A step may read a whole collection. So each client, however many connections it opens, has a limited number of places,
and if all places are taken, clients get them in fair turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from proxy.request.fair_queue import FairQueue
from proxy.request.ports import STEPS_AT_ONCE
from proxy.request.times import Times, WaitKind

PLACES_OF_ONE: Final = 32


@dataclass(slots=True)
class _Owner:
    """The places of one client, and how many of its steps have or want one."""

    own: asyncio.Semaphore
    steps: int = 0


class StepPlaces:
    """Allocates the places."""

    def __init__(self, places: int = STEPS_AT_ONCE, places_of_one: int = PLACES_OF_ONE) -> None:
        """``places``: in total; ``places_of_one``: for one client."""
        self._free = places
        self._places_of_one = places_of_one
        self._owners: dict[Hashable, _Owner] = {}
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def place(self, owner: Hashable, times: Times | None = None) -> AsyncIterator[None]:
        """Wait for a place, and keep it inside the context; ``times`` records the wait of a command."""
        since_seconds = time.perf_counter()
        state = self._owners.get(owner)
        if state is None:
            state = self._owners[owner] = _Owner(asyncio.Semaphore(self._places_of_one))
        state.steps += 1
        try:
            async with state.own:
                await self._take(owner)
                if times is not None:
                    times.wait(WaitKind.QUEUE, since_seconds)
                try:
                    yield
                finally:
                    self._give_back()
        finally:
            state.steps -= 1
            if not state.steps:
                del self._owners[owner]

    async def _take(self, owner: Hashable) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        number = self._waiting.add(owner, 1, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(number)
            if turn.done() and not turn.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # one that was cancelled just now is still there
                turn.set_result(None)
                return
        self._free += 1
