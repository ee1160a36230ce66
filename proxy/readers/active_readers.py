"""The readers of each database that are active now, and those that have to wait until parts are joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from catalog.namespaces import Namespace

Answered: TypeAlias = "Callable[[CountedReader, bytes], None]"
"""Processes the last bytes of a relayed reply, ``b""`` for none."""


class ActiveReaders:
    """Counts readers by database, and keeps new ones waiting."""

    def __init__(self) -> None:
        self._reading: dict[str, int] = {}
        self._kept_out: dict[str, asyncio.Future[None]] = {}
        self._left: dict[str, asyncio.Event] = {}

    def enter(self, database: str) -> None:
        """Count a new reader."""
        self._reading[database] = self._reading.get(database, 0) + 1

    def leave(self, database: str) -> None:
        """Count the end of a reader."""
        reading = self._reading.get(database, 0) - 1
        if reading > 0:
            self._reading[database] = reading
            return
        self._reading.pop(database, None)
        if (left := self._left.get(database)) is not None:
            left.set()

    def keeps_out(self, database: str) -> bool:
        """Whether new readers of the database have to wait (``admitted``), because parts are being joined."""
        return database in self._kept_out

    async def admitted(self, database: str) -> None:
        """Wait until no join keeps readers of the database out."""
        while (barrier := self._kept_out.get(database)) is not None:
            # Many wait for the same: one of them that is cancelled must not end it for all.
            await asyncio.shield(barrier)

    # --- a join asks ---------------------------------------------------------------------------------------

    def keep_out(self, database: str) -> None:
        """New readers of the database have to wait until ``admit``."""
        self._kept_out[database] = asyncio.get_running_loop().create_future()

    def admit(self, database: str) -> None:
        """The join has ended."""
        self._kept_out.pop(database).set_result(None)

    async def emptied(self, database: str, patience_seconds: float) -> bool:
        """Wait for the active readers; whether none is left."""
        if database not in self._reading:
            return True
        left = self._left[database] = asyncio.Event()
        try:
            async with asyncio.timeout(patience_seconds):
                await left.wait()
        except TimeoutError:
            return False
        finally:
            del self._left[database]
        return True


class CountedReader:
    """What a command reads: a database, and the cursors that it leaves open there. See ``proxy.request.exchange``."""

    __slots__ = ("_active", "_answered", "leaves_cursor", "more_of", "namespace")

    def __init__(
        self,
        active: ActiveReaders,
        namespace: Namespace,
        answered: Answered,
        *,
        leaves_cursor: bool = False,
        more_of: int = 0,
    ) -> None:
        """``leaves_cursor``: its relayed reply may leave one; ``more_of``: the cursor that it continues, 0 for none."""
        self._active = active
        self._answered = answered
        self.namespace = namespace
        self.leaves_cursor = leaves_cursor
        self.more_of = more_of

    def enter(self) -> None:
        """A command begins to read."""
        self._active.enter(self.namespace.database)

    def leave(self, tail: bytes) -> None:
        """It has ended, with these last bytes of its relayed reply."""
        if self.leaves_cursor:
            self._answered(self, tail)
        self._active.leave(self.namespace.database)

    @property
    def is_kept_out(self) -> bool:
        """Whether a new command has to wait, because parts are being joined."""
        return self._active.keeps_out(self.namespace.database)

    async def admitted(self) -> None:
        """Wait until no join keeps readers of the database out."""
        await self._active.admitted(self.namespace.database)
