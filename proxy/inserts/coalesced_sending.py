"""Sends coalesced commands until their outcome is known.

A command with contested statements is not sent before these are this process's again
(``catalog.commit.reclaiming``). If some were executed elsewhere, the rest of it is sent, unless a copy of it was sent
before: what became of that, only the whole command can tell.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from catalog.commit.committer import CommitterMetrics
from catalog.commit.reclaiming import Contested, Reclaiming, is_fenced, taken, taken_over
from catalog.commit.sending import WITHHELD_PAUSE_SECONDS
from catalog.commit.statements import Statement
from catalog.errors import BackendUnavailable, Withheld
from catalog.ports import Acknowledgement, Applied, BulkOutcome, Clock, MaySend, Rejected, Unknown
from proxy.inserts.coalesced_command import CoalescedCommand
from proxy.inserts.staging import parsed

if TYPE_CHECKING:
    from proxy.inserts.coalescing import NativeStore

PAUSE_SECONDS: Final = 0.1
_INTERRUPTED: Final = 11601
"""Somebody has killed the command, of which a server may have inserted a part."""


class CoalescedSending:
    """Sends the commands of a ``Coalescer``."""

    def __init__(self, store: NativeStore, clock: Clock, metrics: CommitterMetrics, reclaiming: Reclaiming) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._reclaiming = reclaiming

    async def resolved(self, command: CoalescedCommand, deadline_seconds: float) -> BulkOutcome:
        """Send a command, again while its outcome is unknown and there is time."""
        self._metrics.commands += 1
        outcome = await self._send(command, deadline_seconds)
        if isinstance(outcome, Rejected) and outcome.error.code == _INTERRUPTED:
            outcome = Unknown(outcome.error)
        while isinstance(outcome, Unknown):
            self._metrics.unknown_outcomes += not command.is_doubtful
            command.is_doubtful = True
            # What was executed is not executed again under this number, and what was not is, despite an error before.
            command.is_ordered = False
            if command.number is None or self._clock.monotonic_seconds() >= deadline_seconds:
                return outcome
            again = await self._send(command, deadline_seconds)
            if not isinstance(again, Rejected):
                outcome = again
            elif not isinstance(again.error, BackendUnavailable):
                # The server does not know any more what became of the first copy, or it must not be sent again.
                return Unknown(again.error)
            else:
                await asyncio.sleep(PAUSE_SECONDS)
        return outcome

    async def _send(self, command: CoalescedCommand, deadline_seconds: float) -> BulkOutcome:
        if self._reclaiming.ownership is None:
            outcome = await self._insert(command, deadline_seconds, None)
            return _lost(command) if command.is_doubtful and is_fenced(outcome) else taken_over(outcome)
        while True:
            contested = await self._reclaimed(command)
            if contested is not None and command.is_doubtful:
                # Statements that were executed elsewhere must not be sent with it, later either.
                command.is_barred = command.is_barred or bool(contested.executed) or not contested.is_open
                return Rejected(contested if command.is_barred else BackendUnavailable(contested.message))
            if contested is not None and not command.leave(contested):
                return Applied(0, {}, Acknowledgement())
            outcome = await self._insert(command, deadline_seconds, lambda: not self._is_contested(command))
            if not isinstance(outcome, Rejected) or not isinstance(outcome.error, Withheld):
                return outcome
            if is_fenced(outcome) and command.is_doubtful:
                return _lost(command)
            if self._clock.monotonic_seconds() >= deadline_seconds:
                return Rejected(taken())
            if not command.is_doubtful:
                # This number is too low, or its session has no fence.
                self._store.settled(command.number)
                command.number = self._store.next_number()
            if not self._is_contested(command):
                await asyncio.sleep(WITHHELD_PAUSE_SECONDS)

    def _is_contested(self, command: CoalescedCommand) -> bool:
        return self._reclaiming.is_needed(entry.writer for entry in command.entries)

    async def _reclaimed(self, command: CoalescedCommand) -> Contested | None:
        """Get its contested statements back; ``None`` if it may be sent."""
        if command.is_barred:
            return Contested((), {}, is_open=False)
        if not self._is_contested(command):
            return None
        rows = [
            (entry.writer, parsed(entry.document, command.collection))
            for entry in command.entries
            if isinstance(entry.writer, Statement) and entry.writer.is_contested
        ]
        return await self._reclaiming.reclaim(command.collection, command.write_concern, rows)

    async def _insert(
        self, command: CoalescedCommand, deadline_seconds: float, may_send: MaySend | None
    ) -> BulkOutcome:
        documents = [entry.document for entry in command.entries]
        return await self._store.insert(
            command.collection,
            documents,
            command.write_concern,
            command.number,
            deadline_seconds,
            may_send,
            ordered=command.is_ordered,
        )


def _lost(command: CoalescedCommand) -> Rejected:
    """A fence has kept out another copy of it, so nobody can tell what became of the first one."""
    command.is_barred = True
    return Rejected(Contested((), {}, is_open=False))
