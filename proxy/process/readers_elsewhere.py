"""Readers past this process: those of other proxies, which keep them waiting, and those that the backend shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Protocol

from proxy.peers.holding import Holding


class OtherConnections(Protocol):
    """What the backend knows of other readers (``proxy.backend.current_op``)."""

    def read(
        self, database: str, *, or_are_proxies: bool = False, but: AbstractSet[str] = frozenset()
    ) -> Awaitable[bool]:
        """Whether another connection reads this database; ``but``: those of these proxies do not count."""
        ...


class ReadersElsewhere:
    """Implements ``proxy.readers.register.OutsideReaders``."""

    def __init__(self, others: OtherConnections | None, *, proxies_count: Callable[[], bool]) -> None:
        """``others``: ``None`` if the account may not ask for them.

        ``proxies_count``: whether a process of the proxy that does not keep its readers waiting counts as a reader.
        """
        self._holding: Holding | None = None
        """Asks other processes of the proxy; ``None`` until ``proxy.process.peering`` has begun."""
        self._others = others
        self._proxies_count = proxies_count

    def ask(self, holding: Holding) -> None:
        """Ask other processes of the proxy from now on."""
        self._holding = holding

    def names(self) -> AbstractSet[str]:
        """The processes that keep their readers waiting when they are asked."""
        return frozenset() if self._holding is None else self._holding.names()

    @property
    def lasts(self) -> bool:
        return self._holding is None or self._holding.lasts

    @asynccontextmanager
    async def kept_out(self, database: str) -> AsyncIterator[bool]:
        if self._holding is None:
            yield not await self._read(database, frozenset())
            return
        async with self._holding.held(database) as names:
            yield names is not None and not await self._read(database, names)

    async def _read(self, database: str, names: AbstractSet[str]) -> bool:
        if self._others is None:
            return False
        return await self._others.read(database, or_are_proxies=self._proxies_count(), but=names)
