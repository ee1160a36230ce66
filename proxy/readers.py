"""Which commands read a database at the moment, so that joins of bucket parts can find a quiet one.

Every command that is not an insert into the catalog counts as a reader of its database while it is under way, and
so does every open cursor of a collection until it is exhausted, killed, or as old as servers let cursors be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from catalog.namespaces import Namespace

WAIT_FOR_READERS_SECONDS = 0.25
"""How long new readers are kept waiting for those under way."""


class ReaderRegister:
    """Counts readers by database and keeps new ones out for a moment."""

    def __init__(self, has_open_cursors: Callable[[Namespace], bool]) -> None:
        """``has_open_cursors(collection)``: whether a reader may come back to a cursor on it."""
        self._has_open_cursors = has_open_cursors
        self._reading: Counter[str] = Counter()
        self._kept_out: dict[str, asyncio.Future[None]] = {}
        self._left: dict[str, asyncio.Event] = {}

    def barrier(self, database: str) -> asyncio.Future[None] | None:
        """What a new reader of the database has to wait for; ``None``: nothing."""
        return self._kept_out.get(database)

    def enter(self, database: str) -> None:
        """A reader begins."""
        self._reading[database] += 1

    def leave(self, database: str) -> None:
        """A reader has ended."""
        self._reading[database] -= 1
        if self._reading[database] <= 0:
            del self._reading[database]
            if (left := self._left.get(database)) is not None:
                left.set()

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        """See ``catalog.joining.Readers``."""
        database = namespace.database
        if database in self._kept_out or self._has_open_cursors(namespace):
            yield False
            return
        barrier = self._kept_out[database] = asyncio.get_running_loop().create_future()
        try:
            alone = await self._emptied(database)
            yield alone and not self._has_open_cursors(namespace)
        finally:
            del self._kept_out[database]
            barrier.set_result(None)

    async def _emptied(self, database: str) -> bool:
        if database not in self._reading:
            return True
        left = self._left[database] = asyncio.Event()
        try:
            async with asyncio.timeout(WAIT_FOR_READERS_SECONDS):
                await left.wait()
        except TimeoutError:
            return False
        finally:
            del self._left[database]
        return True
