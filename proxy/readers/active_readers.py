"""The readers of each database that are active now, and those that have to wait until parts are joined."""

from __future__ import annotations

import asyncio
from typing import Final

from catalog.bson.raw import pack_int32, unpack_int64
from catalog.errors import UNAUTHORIZED
from catalog.namespaces import Namespace
from proxy.reads.cursor_names import CursorNames

_CURSOR_ID: Final = b"\x12id\0"
_CURSOR_NAME: Final = b"\x02ns\0"
_NO_CURSOR: Final = _CURSOR_ID + bytes(8) + _CURSOR_NAME
_UNAUTHORIZED: Final = b"\x10code\0" + pack_int32(UNAUTHORIZED)
_NO_CURSOR_BYTES: Final[int] = len(_NO_CURSOR)


def cursor_left_by(tail: bytes) -> int:
    """The cursor that a reply with these last bytes leaves open, 0 for none."""
    at = tail.rfind(_CURSOR_ID)
    # Compiled, a slice must not begin behind its end, as it would for -1.
    if at < 0 or tail[at : at + _NO_CURSOR_BYTES] == _NO_CURSOR:
        return 0
    while at >= 0:
        after = at + len(_CURSOR_ID) + 8
        if tail.startswith(_CURSOR_NAME, after):
            return int(unpack_int64(tail, after - 8)[0])
        at = tail.rfind(_CURSOR_ID, 0, at)
    return 0


class _Counts:
    """Counts by database, with a wait until a count is zero again; one at a time waits for a database."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._emptied: dict[str, asyncio.Event] = {}

    def add(self, database: str) -> None:
        """One more."""
        self._numbers[database] = self._numbers.get(database, 0) + 1

    def remove(self, database: str) -> None:
        """One less."""
        number = self._numbers.get(database, 0) - 1
        if number > 0:
            self._numbers[database] = number
            return
        self._numbers.pop(database, None)
        if (emptied := self._emptied.get(database)) is not None:
            emptied.set()

    async def emptied(self, database: str) -> None:
        """Wait until there is none."""
        if database not in self._numbers:
            return
        emptied = self._emptied[database] = asyncio.Event()
        try:
            await emptied.wait()
        finally:
            del self._emptied[database]


class ActiveReaders:
    """Counts readers by database, and keeps new ones waiting."""

    def __init__(self) -> None:
        self._reading = _Counts()
        self._waiting = _Counts()
        """Readers that wait for a join to end, or were let in and have not begun yet."""
        self._kept_out: dict[str, asyncio.Future[None]] = {}

    def enter(self, database: str) -> None:
        """Count a new reader."""
        self._reading.add(database)

    def leave(self, database: str) -> None:
        """Count the end of a reader."""
        self._reading.remove(database)

    def keeps_out(self, database: str) -> bool:
        """Whether new readers of the database have to wait (``admitted``), because parts are being joined."""
        return database in self._kept_out

    async def admitted(self, database: str) -> None:
        """Wait until no join keeps readers of the database out."""
        while (barrier := self._kept_out.get(database)) is not None:
            self._waiting.add(database)
            try:
                # Many wait for the same: one of them that is cancelled must not end it for all.
                await asyncio.shield(barrier)
            finally:
                self._waiting.remove(database)

    # --- a join asks ---------------------------------------------------------------------------------------

    async def let_in(self, database: str) -> None:
        """Wait until those that the last join has kept waiting are reading, so that the next one does not, too."""
        # Each begins to read in the turn of the event loop in which it wakes up.
        await self._waiting.emptied(database)

    def keep_out(self, database: str) -> None:
        """New readers of the database have to wait until ``admit``."""
        self._kept_out[database] = asyncio.get_running_loop().create_future()

    def admit(self, database: str) -> None:
        """The join has ended."""
        self._kept_out.pop(database).set_result(None)

    async def emptied(self, database: str, patience_seconds: float) -> bool:
        """Wait for the active readers; whether none is left."""
        try:
            async with asyncio.timeout(patience_seconds):
                await self._reading.emptied(database)
        except TimeoutError:
            return False
        return True


class CountedReader:
    """What a command reads: a database, and the cursors that it leaves open there. See ``proxy.request.exchange``."""

    __slots__ = ("_active", "_cursors", "_more_of", "namespace")

    def __init__(
        self,
        active: ActiveReaders,
        namespace: Namespace,
        cursors: CursorNames | None = None,
        *,
        more_of: int = 0,
    ) -> None:
        """``cursors`` records a cursor that the relayed reply leaves open, ``None`` if there can be none.

        ``more_of``: the cursor that the command continues, 0 for none.
        """
        self._active = active
        self._cursors = cursors
        self._more_of = more_of
        self.namespace = namespace

    def enter(self) -> None:
        """A command begins to read."""
        self._active.enter(self.namespace.database)

    def leave(self, tail: bytes, process: bytes = b"") -> None:
        """It has ended, with these last bytes of its relayed reply from this server process."""
        if self._cursors is not None:
            if cursor_id := cursor_left_by(tail):
                self._cursors.opened(cursor_id, self.namespace, process)
            elif self._more_of and (_NO_CURSOR in tail or _UNAUTHORIZED not in tail):
                # Who is refused has not ended it.
                self._cursors.ended(self._more_of)
        self._active.leave(self.namespace.database)

    @property
    def leaves_cursor(self) -> bool:
        """Whether its relayed reply may leave a cursor open."""
        return self._cursors is not None

    @property
    def is_kept_out(self) -> bool:
        """Whether a new command has to wait, because parts are being joined."""
        return self._active.keeps_out(self.namespace.database)

    async def admitted(self) -> None:
        """Wait until no join keeps readers of the database out."""
        await self._active.admitted(self.namespace.database)
