"""Records which statements of retryable writes were executed (W102).

A driver that has lost a reply sends the statement again with the same session, transaction number and statement id. If
it was written, the reply comes from this record; if it is in progress, the retry waits for it; if it failed, it was not
written and is executed again. A statement whose outcome is unknown at the deadline is *in doubt*: the proxy pursues it,
and a retry waits for the outcome (W127). If the outcome will never be known, the statement is *lost*: a retry is
refused, so that it is not written twice.

Several proxies may get the statements of one session. A session *belongs* to the process that took its latest number;
any other asks for it first (``proxy.peers``), and the process that is asked tells what it knows and gives it away. So a
process that has a session knows everything about its statements, and no statement is in progress in two processes.

A process that others could not ask for a while may have lost its sessions without knowing. Then its statements in
progress are *contested*: none of them is sent, or sent again, before the process has its session for certain
(``catalog.commit.reclaiming``).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from catalog.buckets.write_batch import DoubtfulWriter, Writer
from catalog.commit.number_set import NumberSet
from catalog.commit.tenure import Search, SessionKey, Tenure
from catalog.errors import INVALID_OPTIONS, CommandError
from catalog.ports import Acknowledgement, Confirmation

TRANSACTION_TOO_OLD = 225
NETWORK_TIMEOUT = 89

LOG_BYTES = 64 * 1024 * 1024
"""Limit of the records of all sessions; enough for 50,000 sessions of drivers, whose statements are one run."""
SESSION_BYTES = 1200
"""Size of a session's record: its id and users, and the acknowledgement of an unmet write concern."""
RUN_BYTES = 96
"""Size of one run of statement ids; there are many only if statements between them failed."""


class Statement:
    """One measurement of a retryable insert: a ``Writer`` that passes its result to all commands that wait for it."""

    __slots__ = (
        "_has_id",
        "_waiters",
        "contested_at_seconds",
        "contests",
        "is_bulk",
        "is_contested",
        "is_in_doubt",
        "number",
        "reclaimed_seconds",
        "transaction",
    )

    def __init__(self, transaction: Transaction, number: int, *, has_id: bool = True) -> None:
        """Adds itself to the statements in progress of ``transaction``; without an ``_id`` it cannot be looked up."""
        self._has_id = has_id
        self.transaction = transaction
        self._waiters: list[tuple[Writer, int, float]] = []
        self.number = number
        self.is_bulk = False
        """Whether it belongs to a large insert."""
        self.is_contested = False
        """Whether another process may have executed it meanwhile, so that it must not be sent without asking."""
        self.contested_at_seconds = math.inf
        """Since when, if it was contested after it was staged."""
        self.contests = 0
        """How often it was because other processes may have taken any session."""
        self.reclaimed_seconds = -math.inf
        """When it was this process's again after that, latest."""
        self.is_in_doubt = False
        """Whether it was sent, and its outcome was unknown at the deadline."""
        transaction.begin(self)

    def _confirmed(self, outcome: Acknowledgement | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.transaction.remember(self.transaction.lost, self.number)

    def found(self, acknowledgement: Acknowledgement | None) -> None:
        """Its row was found in the stored buckets."""
        self.transaction.search = Search.FOUND
        self.settle((0,), None, acknowledgement)

    def wait(self, writer: Writer, index: int, deadline_seconds: float) -> None:
        """``writer`` gets the result under its own index; if it is in doubt, at the deadline at the latest."""
        self._waiters.append((writer, index, deadline_seconds))

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        transaction = self.transaction
        transaction.end(self)
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
        self.is_in_doubt = True
        self.expire(now_seconds, error)
        return self

    def origins(self) -> Sequence[object]:
        return [origin for writer, _, _ in self._waiters for origin in writer.origins()]

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
        self.transaction.remember(self.transaction.lost, self.number)
        self.settle((), error, None)


class Transaction:
    """The statements of one (session, transaction number).

    ``follows_another``: whether the session was known before. ``unmet_write_concern``: the last acknowledgement of a
    write concern that was not met, or not yet, which a retry gets too. ``is_native``: the backend itself records its
    statements, so it gets retries, too. ``commands``: how many are being staged. ``search``: whether its statements are
    looked up.
    """

    __slots__ = (
        "_is_removed",
        "_log",
        "commands",
        "follows_another",
        "is_native",
        "lost",
        "number",
        "search",
        "tenure",
        "under_way",
        "unmet_write_concern",
        "written",
    )

    def __init__(self, log: StatementLog, session: SessionKey, number: int, *, follows_another: bool) -> None:
        self._log = log
        self._is_removed = False
        """Whether the log has removed it, and counts its size no longer."""
        self.tenure = Tenure(session, log.generation)
        self.number = number
        self.follows_another = follows_another
        self.is_native = False
        self.commands = 0
        self.search = Search.NONE
        self.written = NumberSet()
        self.lost = NumberSet()
        self.under_way: dict[int, Statement] = {}
        self.unmet_write_concern: Acknowledgement | None = None

    def begin(self, statement: Statement) -> None:
        """This statement is in progress from now on; it is contested if the session does not belong here any more."""
        self.under_way[statement.number] = statement
        log = self._log
        log.active[self] = None
        if self.tenure.generation != log.generation:
            log.contest(statement)

    def end(self, statement: Statement) -> None:
        """It has its result."""
        under_way, log = self.under_way, self._log
        if under_way.get(statement.number) is statement:
            del under_way[statement.number]
            if not under_way:
                log.active.pop(self, None)
        if statement.is_contested:
            log.concede(statement)

    def concede(self, statement: Statement, now_seconds: float) -> None:
        """This statement is this process's again."""
        statement.reclaimed_seconds = now_seconds
        self._log.concede(statement)

    def remember(self, numbers: NumberSet, number: int) -> None:
        """Add to one of its sets, and update the size of the log."""
        self._remember_run(numbers, number, number + 1)

    def _remember_run(self, numbers: NumberSet, start: int, end: int) -> None:
        runs = numbers.runs
        numbers.add_run(start, end)
        if not self._is_removed:
            self._log.size_bytes += (numbers.runs - runs) * RUN_BYTES

    def await_write_concern(self, acknowledgement: Acknowledgement) -> None:
        """A statement is stored, and its write concern is not met, or not yet."""
        known = self.unmet_write_concern
        self.unmet_write_concern = acknowledgement
        confirmation = acknowledgement.confirmation
        if confirmation is not None and (known is None or known.confirmation is not confirmation):
            confirmation.when_known(partial(self._confirmed, confirmation), self.is_forgotten)

    def _confirmed(self, confirmation: Confirmation, outcome: Acknowledgement | CommandError) -> None:
        """If another primary was elected meanwhile, it may have the statements or not: a retry looks them up.

        Not if that has found rows before, which do not count a second time.
        """
        if isinstance(outcome, Acknowledgement):
            unmet = self.unmet_write_concern
            if outcome.is_met and unmet is not None and unmet.confirmation is confirmation:
                self.unmet_write_concern = None
            return
        if self.search is not Search.FOUND:
            if not self._is_removed:
                self._log.size_bytes -= self.written.runs * RUN_BYTES
            self.written = NumberSet()
            self.unmet_write_concern = None
            self.search = Search.SOUGHT

    @property
    def is_sought(self) -> bool:
        """Whether its statements may be stored without being recorded, so that they are looked up."""
        return self.search is Search.SOUGHT or self.search is Search.FOUND

    @property
    def may_be_relayed(self) -> bool:
        """Whether its statements need not be looked up before they are relayed."""
        return self.search is Search.NONE

    def is_forgotten(self) -> bool:
        """Whether a newer transaction of its session has begun, or the session was removed."""
        return self._is_removed

    def removed(self) -> None:
        """The log has removed it."""
        self._is_removed = True

    @property
    def is_under_way(self) -> bool:
        """Whether statements are staged, or will be."""
        return bool(self.under_way) or self.commands > 0

    @property
    def is_all_in_doubt(self) -> bool:
        """Whether all that is in progress is in doubt, and may have been executed by other processes, too."""
        return not self.commands and all(each.is_in_doubt and each.is_contested for each in self.under_way.values())

    @property
    def is_untried(self) -> bool:
        """Whether none of its statements is known to have been tried, so that any way is open to them."""
        return not (self.is_native or self.is_under_way or self.written.runs or self.lost.runs)

    def give_away(self) -> None:
        """Another process has asked for the session; nothing of it is in progress here."""
        self.tenure.generation = -1

    def take(
        self, now_seconds: float, search: Search, sent_seconds: float = -math.inf, *, may_be_behind: bool = False
    ) -> None:
        """All other processes were asked, or taken over: it belongs to this one.

        What is being staged at the moment knows nothing of the answers, so it is contested as before.
        ``sent_seconds`` and ``may_be_behind``: see ``Tenure``.
        """
        tenure = self.tenure
        tenure.may_be_behind = may_be_behind
        if not self.commands:
            tenure.generation = self._log.generation
            tenure.taken_seconds = now_seconds
        tenure.sent_seconds = max(tenure.sent_seconds, sent_seconds)
        self._search(search)

    def _search(self, search: Search) -> None:
        if search.value > self.search.value:
            self.search = search

    def learn(
        self, written: Sequence[tuple[int, int]], lost: Sequence[tuple[int, int]], *, is_native: bool, is_sought: bool
    ) -> None:
        """Add what another process knows: runs of statement ids, each the first and the one after the last."""
        for numbers, runs in ((self.written, written), (self.lost, lost)):
            for start, end in runs:
                self._remember_run(numbers, start, end)
        self.is_native = self.is_native or is_native
        if is_sought:
            self._search(Search.SOUGHT)

    @property
    def size_bytes(self) -> int:
        """Its approximate size."""
        return SESSION_BYTES + (self.written.runs + self.lost.runs) * RUN_BYTES


class StatementLog:
    """The record of all sessions, bounded in bytes; the least recently used sessions are removed first."""

    def __init__(self, limit_bytes: int = LOG_BYTES) -> None:
        self._sessions: OrderedDict[SessionKey, Transaction] = OrderedDict()
        self._limit_bytes = limit_bytes
        self.size_bytes = 0
        self.generation = 0
        """Increases when other processes may have taken sessions of this one without asking it."""
        self.active: dict[Transaction, None] = {}
        """Those with statements in progress, also after the log has removed them."""
        self.contested = 0
        """Number of contested statements."""

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
        transaction = self._sessions[session] = Transaction(self, session, number, follows_another=known is not None)
        if known is not None:
            transaction.tenure.follow(known.tenure)
        self.size_bytes += transaction.size_bytes
        while self.size_bytes > self._limit_bytes and len(self._sessions) > 1:
            self._remove(self._sessions.popitem(last=False)[1])
        return transaction

    def belongs(self, session: SessionKey, number: int) -> bool:
        """Whether the session belongs to this process; also true for a number that is older than its latest."""
        known = self._sessions.get(session)
        if known is None or known.number > number:
            return known is not None
        tenure = known.tenure
        return tenure.generation == self.generation and (known.number == number or not tenure.may_be_behind)

    def begun_seconds(self, session: SessionKey, number: int) -> float:
        """See ``Tenure``, also of a number that is not recorded yet."""
        known = self._sessions.get(session)
        if known is None or known.number > number:
            return -math.inf
        tenure = known.tenure
        return tenure.begun_seconds if known.number == number else tenure.next_begun_seconds

    def begin_generation(self) -> None:
        """No session belongs to this process any more."""
        self.generation += 1

    def contest_all(self, now_seconds: float, taken_before_seconds: float = math.inf) -> None:
        """Others may have executed what is in progress, unless it became this process's at this time or later."""
        is_any = taken_before_seconds == math.inf
        for transaction in self.active:
            if transaction.tenure.taken_seconds < taken_before_seconds:
                for statement in transaction.under_way.values():
                    if statement.reclaimed_seconds >= taken_before_seconds:
                        continue
                    self.contest(statement)
                    statement.contests += is_any
                    statement.contested_at_seconds = min(statement.contested_at_seconds, now_seconds)

    def contest(self, statement: Statement) -> None:
        """Another process may have executed it."""
        if not statement.is_contested:
            statement.is_contested = True
            self.contested += 1

    def concede(self, statement: Statement) -> None:
        """It is this process's again, or over."""
        if statement.is_contested:
            statement.is_contested = False
            statement.contested_at_seconds = math.inf
            self.contested -= 1

    def _remove(self, transaction: Transaction) -> None:
        self.size_bytes -= transaction.size_bytes
        transaction.removed()

    def __len__(self) -> int:
        return len(self._sessions)
