"""Records which statements of retryable writes were executed (W102).

A driver that has lost a reply sends the statement again with the same session, transaction number and statement id. If
it was written, the reply comes from this record; if it is in progress, the retry waits for it; if it failed, it was not
written and is executed again. A statement whose outcome is unknown at the deadline is *in doubt*: the proxy pursues it,
and a retry waits for the outcome (W127). If the outcome will never be known, the statement is *lost*: a retry is
refused, so that it is not written twice.

Several proxies may get the statements of one session. A session *belongs* to the process that took its latest number;
any other asks for it first (``proxy.peers``), and the process that is asked tells what it knows and gives it away. So a
process that has a session knows everything about its statements, and no statement is in progress in two processes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from catalog.buckets.write_batch import DoubtfulWriter, Writer
from catalog.commit.open_transactions import OpenTransactions
from catalog.errors import INVALID_OPTIONS, BackendUnavailable, CommandError
from catalog.identity import Identity
from catalog.ports import Acknowledgement

TRANSACTION_TOO_OLD = 225
NETWORK_TIMEOUT = 89

LOG_BYTES = 64 * 1024 * 1024
"""Limit of the records of all sessions; enough for 50,000 sessions of drivers, whose statements are one run."""
SESSION_BYTES = 1200
"""Size of a session's record: its id and users, and the acknowledgement of an unmet write concern."""
RUN_BYTES = 96
"""Size of one run of statement ids; there are many only if statements between them failed."""

SessionKey: TypeAlias = tuple[bytes, Identity]
"""A raw ``lsid`` and its users: equal ids of different users are different sessions."""


class NumberSet:
    """A set of integers, stored as runs of consecutive ones."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The number after the last of each run."""

    def __contains__(self, number: int) -> bool:
        run = bisect_right(self._starts, number) - 1
        return run >= 0 and number < self._ends[run]

    def add(self, number: int) -> None:
        """Add a number; adjacent runs become one."""
        self.add_run(number, number + 1)

    def add_run(self, start: int, end: int) -> None:
        """Add the numbers from ``start`` to before ``end``."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        # The runs from ``first`` to before ``last`` overlap the new one, or are adjacent to it.
        first, last = bisect_left(ends, start), bisect_right(starts, end)
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]

    @property
    def runs(self) -> int:
        """The number of runs, which determines its size."""
        return len(self._starts)

    def spans(self) -> list[tuple[int, int]]:
        """The runs: the first number of each, and the one after its last."""
        return list(zip(self._starts, self._ends, strict=True))


class Statement:
    """One measurement of a retryable insert: a ``Writer`` that passes its result to all commands that wait for it."""

    __slots__ = ("_has_id", "_transaction", "_waiters", "is_bulk", "number")

    def __init__(self, transaction: Transaction, number: int, *, has_id: bool = True) -> None:
        """Adds itself to the statements in progress of ``transaction``; without an ``_id`` it cannot be looked up."""
        self._has_id = has_id
        self._transaction = transaction
        self._waiters: list[tuple[Writer, int, float]] = []
        self.number = number
        self.is_bulk = False
        """Whether it belongs to a large insert."""
        transaction.under_way[number] = self

    def _confirmed(self, outcome: Acknowledgement | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self._transaction.remember(self._transaction.lost, self.number)

    def found(self, acknowledgement: Acknowledgement | None) -> None:
        """Its row was found in the stored buckets."""
        self._transaction.search = Search.FOUND
        self.settle((0,), None, acknowledgement)

    def wait(self, writer: Writer, index: int, deadline_seconds: float) -> None:
        """``writer`` gets the result under its own index; if it is in doubt, at the deadline at the latest."""
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
                transaction.await_write_concern(acknowledgement)
                if acknowledgement.confirmation is not None and not self._has_id:
                    acknowledgement.confirmation.when_known(self._confirmed, transaction.is_forgotten)
        waiters, self._waiters = self._waiters, []
        for writer, index, _ in waiters:
            writer.settle((index,), error, acknowledgement)

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """See ``Writer``: commands whose deadline has not passed go on waiting."""
        self.expire(now_seconds, error)
        return self

    def origins(self) -> Sequence[object]:
        return [origin for writer, _, _ in self._waiters for origin in writer.origins()]

    @property
    def is_wanted(self) -> bool:
        return bool(self._waiters)

    @property
    def is_withdrawn(self) -> bool:
        """Whether another process may have executed it meanwhile, so that it must not be written without asking."""
        return self._transaction.is_withdrawn

    def expire(self, now_seconds: float, error: CommandError) -> None:
        over = [waiter for waiter in self._waiters if waiter[2] <= now_seconds]
        if over:
            self._waiters = [waiter for waiter in self._waiters if waiter[2] > now_seconds]
            for writer, index, _ in over:
                writer.settle((index,), error, None)

    def lose(self, error: CommandError) -> None:
        self._transaction.remember(self._transaction.lost, self.number)
        self.settle((), error, None)


class Search(Enum):
    """Whether the statements of a transaction are looked up in the stored buckets."""

    NONE = 0
    SOUGHT = 1
    FOUND = 2
    """They are, and rows were found for some, which do not count for another statement."""


class Transaction:
    """The statements of one (session, transaction number).

    ``follows_another``: whether the session was known before. ``unmet_write_concern``: the last acknowledgement of a
    write concern that was not met, or not yet, which a retry gets too. ``is_native``: the backend itself records its
    statements, so it gets retries, too. ``generation``: that of the log when the session came to this process, -1 if it
    was given away. ``commands``: how many are being staged. ``search``: whether its statements are looked up.
    ``is_withdrawn``: see ``Statement``.
    """

    __slots__ = (
        "commands",
        "follows_another",
        "generation",
        "is_native",
        "is_withdrawn",
        "log",
        "lost",
        "number",
        "search",
        "under_way",
        "unmet_write_concern",
        "written",
    )

    def __init__(self, log: StatementLog, number: int, *, follows_another: bool) -> None:
        self.log: StatementLog | None = log
        """The log that counts its size; ``None`` after the log has removed it."""
        self.number = number
        self.follows_another = follows_another
        self.is_native = False
        self.generation = log.generation
        self.commands = 0
        self.search = Search.NONE
        self.is_withdrawn = False
        self.written = NumberSet()
        self.lost = NumberSet()
        self.under_way: dict[int, Statement] = {}
        self.unmet_write_concern: Acknowledgement | None = None

    def remember(self, numbers: NumberSet, number: int) -> None:
        """Add to one of its sets, and update the size of the log."""
        self._remember_run(numbers, number, number + 1)

    def _remember_run(self, numbers: NumberSet, start: int, end: int) -> None:
        runs = numbers.runs
        numbers.add_run(start, end)
        if self.log is not None:
            self.log.size_bytes += (numbers.runs - runs) * RUN_BYTES

    def await_write_concern(self, acknowledgement: Acknowledgement) -> None:
        """A statement is stored, and its write concern is not met, or not yet."""
        known = self.unmet_write_concern
        self.unmet_write_concern = acknowledgement
        confirmation = acknowledgement.confirmation
        if confirmation is not None and (known is None or known.confirmation is not confirmation):
            confirmation.when_known(self._confirmed, self.is_forgotten)

    def _confirmed(self, outcome: Acknowledgement | CommandError) -> None:
        """If another primary was elected meanwhile, it may have the statements or not: a retry looks them up.

        Not if that has found rows before, which do not count a second time.
        """
        if isinstance(outcome, CommandError) and self.search is not Search.FOUND:
            if self.log is not None:
                self.log.size_bytes -= self.written.runs * RUN_BYTES
            self.written = NumberSet()
            self.unmet_write_concern = None
            self.search = Search.SOUGHT

    @property
    def is_sought(self) -> bool:
        """Whether its statements may be stored without being recorded, so that they are looked up."""
        return self.search is not Search.NONE

    def is_forgotten(self) -> bool:
        """Whether a newer transaction of its session has begun, or the session was removed."""
        return self.log is None

    @property
    def is_under_way(self) -> bool:
        """Whether statements are staged, or will be."""
        return bool(self.under_way) or self.commands > 0

    @property
    def is_untried(self) -> bool:
        """Whether none of its statements is known to have been tried, so that any way is open to them."""
        return not (self.is_native or self.is_under_way or self.written.runs or self.lost.runs)

    def take(self, *, sought: bool) -> None:
        """All other processes were asked: it belongs to this one. ``sought``: some of them could not be."""
        assert self.log is not None
        self.generation = self.log.generation
        if sought and not self.is_sought:
            self.search = Search.SOUGHT
        self.is_withdrawn = False

    def learn(
        self, written: Sequence[tuple[int, int]], lost: Sequence[tuple[int, int]], *, is_native: bool, is_sought: bool
    ) -> None:
        """Add what another process knows: runs of statement ids, each the first and the one after the last."""
        for numbers, runs in ((self.written, written), (self.lost, lost)):
            for start, end in runs:
                self._remember_run(numbers, start, end)
        self.is_native = self.is_native or is_native
        if is_sought and not self.is_sought:
            self.search = Search.SOUGHT

    def check(self) -> None:
        """Raise ``BackendUnavailable`` if its statements must not be staged now, but when they are sent again."""
        if self.is_withdrawn:
            raise withdrawn()

    @property
    def size_bytes(self) -> int:
        """Its approximate size."""
        return SESSION_BYTES + (self.written.runs + self.lost.runs) * RUN_BYTES


class StatementLog:
    """The record of all sessions, bounded in bytes; the least recently used sessions are removed first."""

    def __init__(self, limit_bytes: int = LOG_BYTES) -> None:
        self._sessions: OrderedDict[SessionKey, Transaction] = OrderedDict()
        self._limit_bytes = limit_bytes
        self.open_transactions = OpenTransactions()
        self.size_bytes = 0
        self.generation = 0
        """Increases when other processes may have taken sessions of this one without asking it."""

    def latest(self, session: SessionKey) -> Transaction | None:
        """The record of the latest transaction number of a session."""
        return self._sessions.get(session)

    def transaction(self, session: SessionKey, number: int) -> Transaction:
        """The record of a transaction number; raises ``CommandError``: 225 if there is a later one, 72 if negative."""
        if number < 0:
            raise CommandError(INVALID_OPTIONS, "Transaction number cannot be negative")
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
            self._remove(known)
        transaction = self._sessions[session] = Transaction(self, number, follows_another=known is not None)
        self.size_bytes += transaction.size_bytes
        while self.size_bytes > self._limit_bytes and len(self._sessions) > 1:
            self._remove(self._sessions.popitem(last=False)[1])
        return transaction

    def belongs(self, session: SessionKey, number: int) -> bool:
        """Whether the session belongs to this process; also true for a number that is older than its latest."""
        known = self._sessions.get(session)
        return known is not None and (known.generation == self.generation or known.number > number)

    def begin_generation(self) -> None:
        """No session belongs to this process any more."""
        self.generation += 1

    def withdraw(self) -> None:
        """As ``begin_generation``; statements that are under way, or being staged, are withdrawn."""
        self.begin_generation()
        for transaction in self._sessions.values():
            if transaction.is_under_way:
                transaction.is_withdrawn = True

    def _remove(self, transaction: Transaction) -> None:
        self.size_bytes -= transaction.size_bytes
        transaction.log = None

    def __len__(self) -> int:
        return len(self._sessions)


def withdrawn() -> BackendUnavailable:
    """The error for a withdrawn statement."""
    return BackendUnavailable("the proxy was suspended; the statement was not executed", code=NETWORK_TIMEOUT)
