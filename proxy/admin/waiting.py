"""Commands that are held: until they are let go, their time is up, or their client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from catalog.errors import BackendUnavailable
from proxy.request.attempt import Refused
from proxy.request.exchange import Exchange
from proxy.request.times import WaitKind

STARTED_AT_ONCE: Final = 64
"""Held commands that are started in one turn of the event loop."""
EXPIRY_SECONDS: Final = 0.05
"""Shortest interval between checks for commands whose time is up: each looks at all commands."""


class HeldCommand:
    """The held commands, in the order of their arrival; a client has at most one.

    It is a collection of exchanges.
    """

    def __init__(self, error: Callable[[], BackendUnavailable]) -> None:
        """``error`` is for commands whose time is up."""
        self._error = error
        self._until_seconds: dict[Exchange, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._until_seconds)

    def __contains__(self, exchange: object) -> bool:
        return exchange in self._until_seconds

    def __iter__(self) -> Iterator[Exchange]:
        return iter(list(self._until_seconds))

    def add(self, exchange: Exchange, limit_seconds: float) -> None:
        """Hold a command for at most this time."""
        exchange.not_sent()
        loop = asyncio.get_running_loop()
        until_seconds = self._until_seconds[exchange] = loop.time() + limit_seconds
        exchange.on_abandon = lambda: self._discard(exchange)
        if self._timer is None or until_seconds < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(until_seconds, self._expire)

    def take(self) -> Exchange | None:
        """The command that has waited longest, which no longer waits; ``None`` if there is none."""
        exchange = next(iter(self._until_seconds), None)
        if exchange is not None:
            self._discard(exchange)
            exchange.times().wait(WaitKind.PAUSE, exchange.started_seconds)
        return exchange

    async def let_go(self, *, while_true: Callable[[], bool]) -> None:
        """Start all commands, a few in each turn of the event loop, as long as ``while_true``."""
        started = 0
        while while_true() and (exchange := self.take()) is not None:
            exchange.go_on()
            started += 1
            if not started % STARTED_AT_ONCE:
                await asyncio.sleep(0)

    def refuse_all(self, error: BackendUnavailable | None = None) -> None:
        """End all commands with this error, or the usual one."""
        while (exchange := self.take()) is not None:
            self._refuse(exchange, error)

    def _refuse(self, exchange: Exchange, error: BackendUnavailable | None = None) -> None:
        exchange.end(Refused(error or self._error()))

    def _discard(self, exchange: Exchange) -> None:
        self._until_seconds.pop(exchange, None)
        exchange.on_abandon = None
        if not self._until_seconds and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        first = min(self._until_seconds.values(), default=None)
        self._timer = None if first is None else loop.call_at(max(first, loop.time() + EXPIRY_SECONDS), self._expire)

    def _expire(self) -> None:
        now_seconds = asyncio.get_running_loop().time()
        for exchange, until_seconds in list(self._until_seconds.items()):
            if until_seconds <= now_seconds:
                self._until_seconds.pop(exchange, None)
                exchange.on_abandon = None
                exchange.times().wait(WaitKind.PAUSE, exchange.started_seconds)
                self._refuse(exchange)
        self._schedule()
