"""Which statements of retryable writes were executed (W102).

A driver that lost an answer sends the statement again with the same session, transaction number and statement
id. What was written is answered from this record; what is still under way is waited for; what failed is known
not to be written and runs again. An outcome that could not be found out in time stays *in doubt*: it is pursued,
and a statement that is sent again waits for the verdict (W127). One whose verdict will never come is *lost*, and
refused rather than written a second time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

from catalog.errors import CommandError
from catalog.identity import Identity
from catalog.ports import Acknowledgement
from catalog.write_batch import DoubtfulWriter, Writer

TRANSACTION_TOO_OLD = 225

LOG_BYTES = 64 * 1024 * 1024
"""For the records of all sessions together; more than 50,000 of drivers, whose statements are one run."""
SESSION_BYTES = 1200
"""A session's id and user, its record and the acknowledgement of an unmet write concern."""
RUN_BYTES = 96
"""Of numbers that do not touch, as of every other statement of a command that failed."""

ClientSession: TypeAlias = tuple[bytes, Identity]
"""A raw ``lsid`` and whose it is: equal ids of two users are two sessions."""


class NumberSet:
    """Integers that come in runs, as statement ids do."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Just after each run."""

    def __contains__(self, number: int) -> bool:
        run = bisect_right(self._starts, number) - 1
        return run >= 0 and number < self._ends[run]

    def add(self, number: int) -> None:
        """Runs that touch become one."""
        starts, ends = self._starts, self._ends
        run = bisect_right(starts, number)
        if run and number < ends[run - 1]:
            return
        after_previous = run > 0 and ends[run - 1] == number
        before_next = run < len(starts) and starts[run] == number + 1
        if after_previous and before_next:
            ends[run - 1] = ends.pop(run)
            del starts[run]
        elif after_previous:
            ends[run - 1] = number + 1
        elif before_next:
            starts[run] = number
        else:
            starts.insert(run, number)
            ends.insert(run, number + 1)

    @property
    def runs(self) -> int:
        """How many runs it holds, which is what it costs."""
        return len(self._starts)


class Statement:
    """One measurement of a retryable insert: a ``Writer`` that passes the outcome to all who asked for it."""

    __slots__ = ("_transaction", "_waiters", "is_bulk", "number")

    def __init__(self, transaction: Transaction, number: int) -> None:
        """It is under way in ``transaction`` from now on."""
        self._transaction = transaction
        self._waiters: list[tuple[Writer, int, float]] = []
        self.number = number
        self.is_bulk = False
        """Whether a large insert brought it."""
        transaction.under_way[number] = self

    def wait(self, writer: Writer, index: int, deadline_seconds: float) -> None:
        """``writer`` is told the outcome under his own index; if it is in doubt, at the deadline at the latest."""
        self._waiters.append((writer, index, deadline_seconds))

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        transaction = self._transaction
        if transaction.under_way.get(self.number) is self:
            del transaction.under_way[self.number]
        if error is None:
            transaction.remember(transaction.written, self.number)
            if acknowledgement is not None and not acknowledgement.is_met:
                transaction.unmet_write_concern = acknowledgement
        waiters, self._waiters = self._waiters, []
        for writer, index, _ in waiters:
            writer.settle((index,), error, acknowledgement)

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """See ``Writer``: those who asked late go on waiting."""
        self.expire(now_seconds, error)
        return self

    @property
    def is_wanted(self) -> bool:
        return bool(self._waiters)

    def expire(self, now_seconds: float, error: CommandError) -> None:
        over = [waiter for waiter in self._waiters if waiter[2] <= now_seconds]
        if over:
            self._waiters = [waiter for waiter in self._waiters if waiter[2] > now_seconds]
            for writer, index, _ in over:
                writer.settle((index,), error, None)

    def lose(self, error: CommandError) -> None:
        self._transaction.remember(self._transaction.lost, self.number)
        self.settle((), error, None)


class Transaction:
    """The statements of one (session, transaction number).

    ``follows_another`` tells whether the session was known before. ``unmet_write_concern`` is the last acknowledgement
    that says that a write concern was not met, or not yet: a retry must not hear better than that.
    """

    __slots__ = ("follows_another", "log", "lost", "number", "under_way", "unmet_write_concern", "written")

    def __init__(self, log: StatementLog, number: int, *, follows_another: bool) -> None:
        self.log: StatementLog | None = log
        """Where it counts; ``None`` once it is not kept there any more."""
        self.number = number
        self.follows_another = follows_another
        self.written = NumberSet()
        self.lost = NumberSet()
        self.under_way: dict[int, Statement] = {}
        self.unmet_write_concern: Acknowledgement | None = None

    def remember(self, numbers: NumberSet, number: int) -> None:
        """Add to one of its sets, and to what the log weighs."""
        runs = numbers.runs
        numbers.add(number)
        if self.log is not None:
            self.log.size_bytes += (numbers.runs - runs) * RUN_BYTES

    @property
    def size_bytes(self) -> int:
        """What it takes, about."""
        return SESSION_BYTES + (self.written.runs + self.lost.runs) * RUN_BYTES


class StatementLog:
    """The record of all sessions, bounded in bytes; the sessions not heard of for longest are forgotten first."""

    def __init__(self, limit_bytes: int = LOG_BYTES) -> None:
        self._sessions: OrderedDict[ClientSession, Transaction] = OrderedDict()
        self._limit_bytes = limit_bytes
        self.size_bytes = 0

    def transaction(self, session: ClientSession, number: int) -> Transaction:
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
            self._let_go(known)
        transaction = self._sessions[session] = Transaction(self, number, follows_another=known is not None)
        self.size_bytes += transaction.size_bytes
        while self.size_bytes > self._limit_bytes and len(self._sessions) > 1:
            self._let_go(self._sessions.popitem(last=False)[1])
        return transaction

    def _let_go(self, transaction: Transaction) -> None:
        self.size_bytes -= transaction.size_bytes
        transaction.log = None

    def __len__(self) -> int:
        return len(self._sessions)
