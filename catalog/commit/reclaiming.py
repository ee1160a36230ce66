"""Asks about contested statements before they are sent (W102).

A statement is contested if another process may have executed it since this one has accepted it: because that process
could not ask (``catalog.commit.statements``). Most are in progress at the backend then, and their replies end the
matter. One that waits to be sent, or to be sent again, first gets its session back: the others tell what they know of
it, and its row is looked up in the stored buckets, because those that know it may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from catalog.buckets.write_batch import Writer
from catalog.commit.restart_dedup import Found, RestartDedup
from catalog.commit.statements import NETWORK_TIMEOUT, Statement, Transaction
from catalog.commit.tenure import SessionKey
from catalog.errors import BackendUnavailable, CommandError, Fenced
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import BulkOutcome, Rejected, WriteConcern

_TAKEN = "another proxy may have executed this statement"

T = TypeVar("T")

ContestedRow: TypeAlias = tuple[Statement, Measurement | None]
"""A contested statement and its row; ``None`` if the document is no measurement."""


class Ownership(Protocol):
    """To which process sessions belong (``proxy.peers.asking``)."""

    def is_contested(self) -> bool:
        """Whether any statement in progress is contested, at this moment."""
        ...

    def now_seconds(self) -> float:
        """The clock of ``Statement.contested_at_seconds``."""
        ...

    def ask(self, client: SessionKey, number: int, go_on: Callable[[CommandError | None], None]) -> None:
        """Ask all others about a number of a session. ``go_on`` is called once: with an error, or when it is known."""
        ...


class Contested(CommandError):
    """A command cannot be sent as it is: some of its statements were executed elsewhere, or that is not known.

    ``refused`` has the latter, with their errors; the former have their results. ``is_open``: another attempt may
    succeed.
    """

    def __init__(
        self, executed: Sequence[Statement], refused: Mapping[Statement, CommandError], *, is_open: bool
    ) -> None:
        super().__init__(NETWORK_TIMEOUT, _TAKEN, labels=("RetryableWriteError",), fails_command=True)
        self.executed = executed
        self.refused = refused
        self.is_open = is_open

    @property
    def statements(self) -> AbstractSet[Writer]:
        """All that must not be sent."""
        return {*self.executed, *self.refused}

    def settle(self) -> AbstractSet[Writer]:
        """Tell the refused ones, too, why; all that must not be sent."""
        for statement, error in self.refused.items():
            statement.settle((0,), error, None)
        return self.statements


class Reclaiming:
    """Gets contested statements back."""

    def __init__(self, restart_dedup: RestartDedup) -> None:
        self.ownership: Ownership | None = None
        """Set once there were other processes."""
        self.restart_dedup = restart_dedup

    def is_needed(self, writers: Iterable[Writer]) -> bool:
        """Whether statements of these are contested, at this moment."""
        ownership = self.ownership
        return ownership is not None and ownership.is_contested() and any(map(is_contested, writers))

    async def reclaim(
        self, collection: VirtualCollection, write_concern: WriteConcern, rows: Sequence[ContestedRow]
    ) -> Contested | None:
        """Get these back; ``None`` if the command may be sent as it is."""
        assert self.ownership is not None
        # Later, a look-up no longer tells what others have executed.
        verdicts = _Verdicts(self.ownership.now_seconds() - self.restart_dedup.window_seconds)
        contests = {statement: statement.contests for statement, _ in rows}
        transactions = list(dict.fromkeys(statement.transaction for statement, _ in rows))
        errors = await asyncio.gather(*(_asked(self.ownership, transaction) for transaction in transactions))
        failed = {each: error for each, error in zip(transactions, errors, strict=True) if error is not None}
        sought: list[tuple[Statement, Measurement]] = []
        for statement, measurement in rows:
            transaction = statement.transaction
            if (error := failed.get(transaction)) is not None:
                verdicts.refuse(statement, error)
            elif statement.number in transaction.written:
                statement.settle((0,), None, transaction.unmet_write_concern)
                verdicts.executed.append(statement)
            elif statement.number in transaction.lost:
                verdicts.refuse(statement, taken())
            elif measurement is not None:
                sought.append((statement, measurement))
        if sought:
            await self._seek(collection, write_concern, sought, verdicts)
        now_seconds = self.ownership.now_seconds()
        for statement, _ in rows:
            # If others may have taken any session meanwhile, all this is out of date. That it took a while is no
            # reason: the next look-up takes as long.
            if statement not in verdicts.refused and statement.contests == contests[statement]:
                statement.transaction.concede(statement, now_seconds)
        return verdicts.contested()

    async def _seek(
        self,
        collection: VirtualCollection,
        write_concern: WriteConcern,
        sought: Sequence[tuple[Statement, Measurement]],
        verdicts: _Verdicts,
    ) -> None:
        """Look the rows up: processes that have gone tell nothing."""
        answer: asyncio.Future[Found | CommandError] = asyncio.get_running_loop().create_future()
        measurements = [measurement for _, measurement in sought]
        self.restart_dedup.ask(collection, measurements, write_concern, partial(_tell, answer), until_now=True)
        found = await answer
        for position, (statement, _) in enumerate(sought):
            if isinstance(found, CommandError):
                verdicts.refuse(statement, BackendUnavailable(found.message, code=found.code))
            elif position in found.written:
                statement.found(found.acknowledgement)
                verdicts.executed.append(statement)
            elif statement.contested_at_seconds < verdicts.oldest_seconds:
                verdicts.refuse(statement, taken())


class _Verdicts:
    """What became of the statements of one command."""

    def __init__(self, oldest_seconds: float) -> None:
        """Of statements that were contested before ``oldest_seconds``, a look-up does not tell enough."""
        self.oldest_seconds = oldest_seconds
        self.executed: list[Statement] = []
        self.refused: dict[Statement, CommandError] = {}
        self.is_open = False

    def refuse(self, statement: Statement, error: CommandError) -> None:
        """It cannot be sent now."""
        self.refused[statement] = error
        is_late = statement.contested_at_seconds < self.oldest_seconds
        self.is_open = self.is_open or (
            isinstance(error, BackendUnavailable) and error.message != _TAKEN and not is_late
        )

    def contested(self) -> Contested | None:
        """Why the command cannot be sent as it is, if so."""
        if not self.executed and not self.refused:
            return None
        return Contested(self.executed, self.refused, is_open=self.is_open)


def taken() -> BackendUnavailable:
    """The error of a statement that another process may have executed, for its driver to send it again."""
    return BackendUnavailable(_TAKEN, code=NETWORK_TIMEOUT)


def taken_over(outcome: BulkOutcome) -> BulkOutcome:
    """The outcome for writers who cannot ask: another process that this one does not know has set up a fence."""
    return Rejected(taken()) if is_fenced(outcome) else outcome


def is_fenced(outcome: BulkOutcome) -> bool:
    """Whether a fence of another process has kept a command out."""
    return isinstance(outcome, Rejected) and isinstance(outcome.error, Fenced)


def is_contested(writer: Writer) -> bool:
    """Whether its statement is contested; only writers of retryable writes have one."""
    return isinstance(writer, Statement) and writer.is_contested


def _tell(waiter: asyncio.Future[T], answer: T) -> None:
    # A stop of the process may have cancelled the commit.
    if not waiter.done():
        waiter.set_result(answer)


async def _asked(ownership: Ownership, transaction: Transaction) -> CommandError | None:
    """Ask the others about a transaction; why it does not belong to this process, or ``None``."""
    answer: asyncio.Future[CommandError | None] = asyncio.get_running_loop().create_future()
    ownership.ask(transaction.tenure.session, transaction.number, partial(_tell, answer))
    error = await answer
    if error is None and transaction.is_forgotten():
        # Its session has a newer number, which its client has begun knowing how this one has ended.
        return taken()
    return error
