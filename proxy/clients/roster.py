"""The admitted client connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

from proxy.clients.connection import ClientConnection
from proxy.request.session import Session


class Roster:
    """All connections from their admission to their end. It iterates over those of the moment."""

    def __init__(self, ids: Iterator[int] | None = None) -> None:
        """``ids``: of the connections; from 1 on by default."""
        self._clients: set[ClientConnection] = set()
        self._ids = ids or count(1)
        self._all_left = asyncio.Event()
        self.is_closed = False
        """Whether no connection is admitted any more. The event loop may accept some after a listener was closed."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(list(self._clients))

    def enter(self, connection: ClientConnection) -> int:
        """A connection is admitted; returns its id."""
        self._clients.add(connection)
        self._all_left.clear()
        return next(self._ids)

    def leave(self, connection: ClientConnection) -> None:
        """An admitted connection has ended."""
        self._clients.discard(connection)
        if not self._clients:
            self._all_left.set()

    def abort(self, keep: Callable[[Session], bool] = lambda session: False) -> None:
        """Close all connections at once; ``keep``: those that stay."""
        for client in self:
            if client.session is None or not keep(client.session):
                client.abort()

    async def changed(self, seconds: float) -> None:
        """Wait for this time, or until there are no connections any more."""
        if not self._clients:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_left.wait()
