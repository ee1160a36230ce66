"""Sends commits, but none with a contested statement (``catalog.commit.reclaiming``)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from catalog.buckets.write_batch import Writer
from catalog.commit.reclaiming import Contested, ContestedRow, Reclaiming, taken, taken_over
from catalog.commit.round import PreparedWrite
from catalog.commit.statements import Statement
from catalog.errors import Withheld
from catalog.namespaces import VirtualCollection
from catalog.ports import (
    COPIES_SECONDS,
    BucketStore,
    BulkOutcome,
    Clock,
    MaySend,
    OnOutcome,
    Rejected,
    Unknown,
    WriteConcern,
)

RECLAIM_PAUSE_SECONDS = 0.1
"""Pause before statements that others may have executed are asked about again."""
WITHHELD_PAUSE_SECONDS = 0.01
"""Pause before a commit is sent again that was withheld, and has no contested statement."""


class Commit:
    """Writes that are sent together: new buckets, or growing ones, of one collection with one write concern."""

    __slots__ = ("collection", "deadline_seconds", "since_seconds", "write_concern", "writes")

    def __init__(
        self,
        collection: VirtualCollection,
        write_concern: WriteConcern,
        writes: Sequence[PreparedWrite],
        since_seconds: float,
        deadline_seconds: float,
    ) -> None:
        """``since_seconds``: when the first of the measurements was staged."""
        self.collection = collection
        self.write_concern = write_concern
        self.writes = writes
        self.since_seconds = since_seconds
        self.deadline_seconds = deadline_seconds

    def until(self, deadline_seconds: float) -> Commit:
        """The same commit with another deadline."""
        return Commit(self.collection, self.write_concern, self.writes, self.since_seconds, deadline_seconds)

    def of(self, writes: Sequence[PreparedWrite]) -> Commit:
        """The same commit with only these writes."""
        return Commit(self.collection, self.write_concern, writes, self.since_seconds, self.deadline_seconds)


class CommitSending:
    """Sends commits once."""

    def __init__(self, store: BucketStore, clock: Clock, reclaiming: Reclaiming) -> None:
        self._store = store
        self._clock = clock
        self._reclaiming = reclaiming

    @property
    def is_alone(self) -> bool:
        """Whether no other process can have executed statements of this one."""
        return self._reclaiming.ownership is None

    def begin(self, commit: Commit, told: OnOutcome) -> bool:
        """Send a commit if that takes no wait; ``told`` is called with the outcome."""
        if self._is_contested(commit):
            return False
        statements = [write.statement for write in commit.writes]
        grows = commit.writes[0].batch.base > 0
        return self._store.begin(
            commit.collection, statements, commit.write_concern, commit.deadline_seconds, told, grows=grows
        )

    async def send(self, commit: Commit, *, resent: bool = False) -> BulkOutcome:
        """Send a commit; the outcome. ``resent``: copies of it may have been applied.

        It is ``Rejected`` with ``Contested`` if the commit must not be sent as it is; ``divided`` tells which of its
        writes are concerned.
        """
        if self._reclaiming.ownership is None:
            return self.noted(commit, taken_over(await self._write(commit, None)))
        while True:
            if (contested := await self._reclaimed(commit)) is not None:
                if not resent or _bars(commit, contested):
                    return Rejected(contested)
                await asyncio.sleep(RECLAIM_PAUSE_SECONDS)
                return Unknown(contested)
            outcome = await self._write(commit, lambda: not self._is_contested(commit))
            if not isinstance(outcome, Rejected) or not isinstance(outcome.error, Withheld):
                return self.noted(commit, outcome)
            if self._clock.monotonic_seconds() >= commit.deadline_seconds:
                refused = {statement: taken() for statement, _ in self._contested_rows(commit)}
                return Unknown(outcome.error) if resent else Rejected(Contested((), refused, is_open=True))
            if not self._is_contested(commit):
                await asyncio.sleep(WITHHELD_PAUSE_SECONDS)

    async def _write(self, commit: Commit, may_send: MaySend | None) -> BulkOutcome:
        write = self._store.update if commit.writes[0].batch.base else self._store.insert
        statements = [each.statement for each in commit.writes]
        return await write(commit.collection, statements, commit.write_concern, commit.deadline_seconds, may_send)

    def noted(self, commit: Commit, outcome: BulkOutcome) -> BulkOutcome:
        """The same outcome; if it is unknown, copies of the command may still be under way."""
        if isinstance(outcome, Unknown):
            until_seconds = self._clock.monotonic_seconds() + COPIES_SECONDS
            for write in commit.writes:
                write.batch.bucket.copies_until_seconds = until_seconds
        return outcome

    def _is_contested(self, commit: Commit) -> bool:
        """Whether it has statements that must not be sent at the moment."""
        shares = (write.batch.shares for write in commit.writes)
        return self._reclaiming.is_needed(writer for each in shares for writer, _ in each)

    async def _reclaimed(self, commit: Commit) -> Contested | None:
        """Get its contested statements back; ``None`` if it may be sent."""
        if any(write.is_barred for write in commit.writes):
            return Contested((), {}, is_open=False)
        if not self._is_contested(commit):
            return None
        rows = self._contested_rows(commit)
        return await self._reclaiming.reclaim(commit.collection, commit.write_concern, rows)

    @staticmethod
    def _contested_rows(commit: Commit) -> list[ContestedRow]:
        return [
            (writer, measurement)
            for write in commit.writes
            for measurement, writer, _ in write.batch.rows()
            if isinstance(writer, Statement) and writer.is_contested
        ]


def divided(commit: Commit, contested: Contested) -> tuple[list[PreparedWrite], list[PreparedWrite]]:
    """The writes that must not be sent as they are, and the others."""
    statements = contested.statements
    concerned: list[PreparedWrite] = []
    others: list[PreparedWrite] = []
    for write in commit.writes:
        is_concerned = write.is_barred or _has_any(write, statements)
        (concerned if is_concerned else others).append(write)
    return concerned, others


def _bars(commit: Commit, contested: Contested) -> bool:
    """Whether writes of a commit must not be sent any more, because of statements that were executed elsewhere."""
    settled: set[Writer] = {*contested.executed, *(() if contested.is_open else contested.refused)}
    for write in commit.writes:
        write.is_barred = write.is_barred or _has_any(write, settled)
    return any(write.is_barred for write in commit.writes)


def _has_any(write: PreparedWrite, statements: AbstractSet[Writer]) -> bool:
    return any(writer in statements for writer, _ in write.batch.shares)
