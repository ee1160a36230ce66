"""An event loop without a clock: time jumps to the next timer, and what is ready runs in a seeded order."""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Callable
from typing import Any


class Stalled(AssertionError):
    """Nothing is ready and no timer runs, but the simulation is not over: somebody waits for ever."""


class _NoSelector:
    """Sockets do not exist; waiting for them makes time pass."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing will ever happen any more")
        if timeout > 0:
            self._loop.now += timeout
        return []


class SeededLoop(asyncio.BaseEventLoop):
    """Every order of callbacks that are ready at one moment may occur; the seed decides."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self._chance = chance
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: a thread takes real time, of which nothing passes here."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  (whoever waits gets it)
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        ready: collections.deque[Any] = self._ready  # type: ignore[attr-defined]
        self.steps += len(ready)
        if len(ready) > 1:
            shuffled = list(ready)
            self._chance.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]
