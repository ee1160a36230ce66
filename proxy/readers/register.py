"""Active readers by database, so that joins of bucket parts can wait for a moment without any.

Every running command that may read buckets counts as a reader of its database, also if it names another collection (a
view, a pipeline with ``$lookup``). So does every cursor that it leaves open, until the cursor is exhausted, killed, or
unused for as long as servers keep cursors. Change streams and tailable cursors read no buckets and do not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from catalog.namespaces import Namespace
from proxy.readers.active_readers import ActiveReaders, CountedReader
from proxy.reads.cursor_names import CursorNames
from proxy.request.command import Command
from proxy.request.command_table import OPENS_CURSOR, READS_BUCKETS, TABLE

WAIT_FOR_READERS_SECONDS = 0.25
"""Maximum time that new readers wait for the active ones, and a join for the joins of other processes."""

LONGEST_PAUSE_SECONDS = 8.0
"""If waiting for long readers was in vain, others do not wait for a while, at most for this time."""


def may_read_buckets(command: Command) -> bool:
    """Whether a relayed command may read or write buckets."""
    if command.name in READS_BUCKETS:
        return not _waits_for_changes(command)
    return command.namespace.collection.startswith("system.")


def of_continued(command: Command, active: ActiveReaders, cursors: CursorNames) -> CountedReader | None:
    """What the command reads if it continues one of these cursors; otherwise ``None``."""
    cursor_id = command.get("getMore") if command.name == "getMore" else None
    if not isinstance(cursor_id, int) or cursors.backend_namespace(cursor_id) is None:
        return None
    return CountedReader(active, command.namespace, cursors, more_of=int(cursor_id))


def _waits_for_changes(command: Command) -> bool:
    endless = TABLE[command.name].endless
    if not endless or endless not in command.body:
        return False
    return command.name != "find" or bool(command.get("tailable"))


class OutsideReaders(Protocol):
    """Readers past this process."""

    def kept_out(self, database: str) -> AbstractAsyncContextManager[bool]:
        """Make readers of other proxies wait, where possible; true if nobody else reads the database."""
        ...

    @property
    def lasts(self) -> bool:
        """Whether these readers still wait."""
        ...


class Nobody:
    """There are none; implements ``OutsideReaders``."""

    lasts = True

    @asynccontextmanager
    async def kept_out(self, database: str) -> AsyncIterator[bool]:
        yield True


class ReaderRegister:
    """Counts readers by database, and can make new ones wait."""

    def __init__(
        self,
        has_open_cursors: Callable[[str], bool],
        killed: Callable[[int], object] = lambda _: None,
        elsewhere: OutsideReaders | None = None,
    ) -> None:
        """``has_open_cursors(database)``: whether there is an open cursor on a time-series collection.

        ``killed`` is called with cursors that clients have killed.
        """
        self.active = ActiveReaders()
        self.relayed = CursorNames()
        """Cursors of relayed commands."""
        self._closed = False
        self._has_open_cursors = has_open_cursors
        self._killed = killed
        self._elsewhere = elsewhere or Nobody()
        self._pauses: dict[str, tuple[float, float]] = {}
        """By database: length of the latest pause, and its end."""
        self._joins: dict[str, int] = {}
        """By database: how often nobody was reading it, so that it was joined."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By database: joins of this process and of others take turns, in the order in which they asked."""

    def close(self) -> None:
        """There are no more readers, not even of open cursors."""
        self._closed = True

    def of_relayed(self, command: Command) -> CountedReader | None:
        """What this relayed command reads, ``None`` if it reads no buckets; also records killed cursors."""
        if command.name == "killCursors":
            cursors = command.get("cursors")
            for cursor_id in cursors if isinstance(cursors, list) else ():
                if isinstance(cursor_id, int):
                    self.relayed.ended(cursor_id)
                    self._killed(cursor_id)
            return None
        if (continued := of_continued(command, self.active, self.relayed)) is not None:
            return continued
        if may_read_buckets(command):
            return CountedReader(self.active, command.namespace, self.relayed if command.name in OPENS_CURSOR else None)
        return None

    def of_rewritten(self, namespace: Namespace) -> CountedReader:
        """What a rewritten command reads; its cursors are known to who rewrites it."""
        return CountedReader(self.active, namespace)

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        async with self.kept_out_here(namespace.database) as none_here:
            if not none_here:
                yield False
                return
            async with self._elsewhere.kept_out(namespace.database) as alone:
                yield alone

    def joins(self, database: str) -> int:
        """How many joins of a database there were that readers through this process waited for, by whatever process."""
        return self._joins.get(database, 0)

    @property
    def still_kept_out(self) -> bool:
        return self._elsewhere.lasts

    @asynccontextmanager
    async def kept_out_here(self, database: str) -> AsyncIterator[bool]:
        """Keep readers through this process waiting, for a short time; true if none is active."""
        turn = self._turns.setdefault(database, asyncio.Lock())
        if self._is_paused(database) or self._may_come_back(database) or not await _acquired(turn):
            yield False
            return
        try:
            await self.active.let_in(database)
            self.active.keep_out(database)
            try:
                alone = await self.active.emptied(database, WAIT_FOR_READERS_SECONDS)
                self._pause(database, needed=not alone)
                alone = alone and not self._may_come_back(database)
                if alone:
                    self._joins[database] = self.joins(database) + 1
                yield alone
            finally:
                self.active.admit(database)
        finally:
            turn.release()

    def _may_come_back(self, database: str) -> bool:
        return not self._closed and (self.relayed.is_open_in(database) or self._has_open_cursors(database))

    def _is_paused(self, database: str) -> bool:
        _, until_seconds = self._pauses.get(database, (0.0, 0.0))
        return not self._closed and asyncio.get_running_loop().time() < until_seconds

    def _pause(self, database: str, *, needed: bool) -> None:
        """Pause waiting for long readers, so that new readers do not wait again and again."""
        if not needed:
            self._pauses.pop(database, None)
            return
        pause_seconds, _ = self._pauses.get(database, (WAIT_FOR_READERS_SECONDS, 0.0))
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
        self._pauses[database] = (pause_seconds, asyncio.get_running_loop().time() + pause_seconds)


async def _acquired(turn: asyncio.Lock) -> bool:
    if not turn.locked():
        return await turn.acquire()
    try:
        async with asyncio.timeout(WAIT_FOR_READERS_SECONDS):
            return await turn.acquire()
    except TimeoutError:
        return False
