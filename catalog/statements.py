"""Which statements of retryable writes were executed (W102).

A driver that lost an answer sends the statement again with the same session, transaction number and statement
id. What was written is answered from this record; what is still under way is waited for; what failed is known
not to be written and runs again. An outcome that could not be found out stays *in doubt* until it is (W127).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum

from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from catalog.write_batch import Writer

TRANSACTION_TOO_OLD = 225


class StatementState(IntEnum):
    """What is known of a statement."""

    PENDING = 0
    WRITTEN = 1
    FAILED = 2


class Statement:
    """One measurement of a retryable insert: a ``Writer`` that passes the outcome to all who asked for it."""

    __slots__ = ("_transaction", "_waiters", "number", "state")

    def __init__(self, transaction: Transaction, number: int) -> None:
        self._transaction = transaction
        self._waiters: list[tuple[Writer, int]] = []
        self.number = number
        self.state = StatementState.PENDING

    def wait(self, writer: Writer, index: int) -> None:
        """``writer`` is told when the outcome is known, under his own index."""
        self._waiters.append((writer, index))

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """See ``Writer``."""
        if error is None:
            self.state = StatementState.WRITTEN
        else:
            self.state = StatementState.FAILED
            self._transaction.statements.pop(self.number, None)
        waiters, self._waiters = self._waiters, []
        for writer, index in waiters:
            writer.settle((index,), error, acknowledgement)


class Transaction:
    """The statements of one (session, transaction number)."""

    __slots__ = ("number", "statements")

    def __init__(self, number: int) -> None:
        self.number = number
        self.statements: dict[int, Statement] = {}


class StatementLog:
    """The record of all sessions, bounded; the sessions not heard of for longest are forgotten first."""

    def __init__(self, sessions_limit: int = 100_000) -> None:
        self._sessions: OrderedDict[bytes, Transaction] = OrderedDict()
        self._sessions_limit = sessions_limit

    def transaction(self, session: bytes, number: int) -> Transaction:
        """The record of this transaction number; raises ``CommandError`` 225 for one older than the latest."""
        known = self._sessions.get(session)
        if known is not None:
            self._sessions.move_to_end(session)
            if known.number == number:
                return known
            if number < known.number:
                raise CommandError(
                    TRANSACTION_TOO_OLD,
                    f"Cannot start transaction {number} on session because a newer transaction "
                    f"{known.number} has already started on the session.",
                )
        transaction = self._sessions[session] = Transaction(number)
        if len(self._sessions) > self._sessions_limit:
            self._sessions.popitem(last=False)
        return transaction

    def __len__(self) -> int:
        return len(self._sessions)
