"""Asks other proxies about retryable statements, and answers them (W102).

A session belongs to at most one process (``catalog.commit.statements``). A process that gets a number of a session that
does not belong to it asks all others; each tells what it knows of this number, and gives the session away. So no
process can execute a statement that another one has executed, or is executing. Questions that arrive while one is being
asked share the next one.

If two processes ask one another about the same statement, the one with the smaller name goes first, unless the other is
executing it: one of them lets the other pass, and asks again. What a process knows that cannot be asked is looked up in
the stored rows (``catalog.commit.restart_dedup``), after what it has sent to the backend is over.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from catalog.commit.number_set import NumberSet
from catalog.commit.statements import NETWORK_TIMEOUT, TRANSACTION_TOO_OLD, StatementLog, Transaction
from catalog.commit.tenure import Search, SessionKey
from catalog.errors import BackendUnavailable, CommandError
from catalog.internal_errors import internal_error
from proxy.observe.peer_numbers import PeerNumbers
from proxy.peers.frames import BUSY, MOST_QUESTIONS, MOST_RUNS, NEWER, UNKNOWN, Answer, Question, Told, is_askable
from proxy.peers.link import LinkLost
from proxy.request.ports import GoOn

PAUSES_SECONDS: Final = (0.005, 0.1)
"""The first and the longest pause before a process is asked again that is executing a statement."""

BAD_VALUE: Final = 2


class Member(Protocol):
    """Another process."""

    @property
    def name(self) -> str:
        """Its name at the backend."""
        ...

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Its answers, within a bound; raises ``LinkLost``."""
        ...


class Peers(Protocol):
    """The other processes (``proxy.peers.membership``)."""

    @property
    def own_name(self) -> str:
        """The name of this process."""
        ...

    def is_uncertain(self) -> bool:
        """Whether another process may have given this one up, so that it may take any session.

        If so, statements in progress are contested.
        """
        ...

    def members(self) -> Sequence[Member]:
        """All that are connected to the backend."""
        ...

    @property
    def are_lately_gone(self) -> bool:
        """Whether some of them have gone in the time in which drivers retry."""
        ...

    def answered(self, name: str) -> bool:
        """The process with this name was told something, and may execute statements that it has asked about.

        Whether it can be asked, too.
        """
        ...

    def rules_out(self, names: Sequence[str], begun_seconds: float) -> bool:
        """Whether none of these processes can have executed a statement that nobody was sent before this time.

        Only writes that fences refuse may rely on it.
        """
        ...

    async def quiet(self, names: Sequence[str]) -> bool:
        """Wait, within a bound, until what these processes have sent to the backend is over; whether it is."""
        ...

    async def over(self, sessions: Sequence[bytes]) -> bool:
        """Wait, within a bound, until the backend executes nothing of these sessions, raw; whether that is so."""
        ...


@dataclass(slots=True, eq=False)
class _Pending:
    """A number of a session that is being asked about, and what waits for it."""

    client: SessionKey
    number: int
    deadline_seconds: float
    sent_seconds: float
    """Clients have sent the latest copy of it at this time, or later."""
    waiting: list[GoOn] = field(default_factory=list)
    is_yielded: bool = False
    """Whether another process was let pass since it was asked last."""
    busy: frozenset[str] = frozenset()
    """The names of those that were executing it when they were asked last."""
    pause_seconds: float = PAUSES_SECONDS[0]

    def is_in_vain(self, name: str) -> bool:
        """Whether the process with this name goes on executing it, however often it is asked."""
        return name in self.busy and self.pause_seconds >= PAUSES_SECONDS[1]


_Answered: TypeAlias = tuple[_Pending, list[Answer]]


class Asking:
    """Implements ``proxy.inserts.insert_port.PeerStatements`` and ``catalog.commit.reclaiming.Ownership``.

    It also answers other processes.
    """

    def __init__(
        self,
        log: StatementLog,
        company: Peers,
        numbers: PeerNumbers,
        now_seconds: Callable[[], float],
        patience_seconds: float,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        report: Callable[[BaseException], None],
        hear: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """``patience_seconds``: how long a command may wait; ``report`` gets internal errors.

        ``hear`` asks the backend for its present cluster time; it raises ``CommandError``.
        """
        self._hear = hear
        self.numbers = numbers
        self._log = log
        self._company = company
        self._now_seconds = now_seconds
        self._patience_seconds = patience_seconds
        self._spawn = spawn
        self._report = report
        self._pending: dict[SessionKey, _Pending] = {}
        self._queue: list[_Pending] = []
        self._is_running = False

    # --- Ownership ------------------------------------------------------------------------------------------

    def is_contested(self) -> bool:
        self._company.is_uncertain()
        return self._log.contested > 0

    def now_seconds(self) -> float:
        return self._now_seconds()

    # --- Elsewhere ------------------------------------------------------------------------------------------

    def concerns(self, client: SessionKey, number: int) -> bool:
        return self._company.is_uncertain() or not self._log.belongs(client, number)

    def ask(self, client: SessionKey, number: int, go_on: GoOn, sent_seconds: float = -math.inf) -> None:
        pending = self._pending.get(client)
        if pending is not None and pending.number > number:
            # As ``answer``. Others must go on hearing that the newer one is being asked about.
            go_on(CommandError(TRANSACTION_TOO_OLD, _too_old(number)))
            return
        if pending is None or pending.number != number:
            if not is_askable(client):
                go_on(CommandError(BAD_VALUE, "the session id is too long"))
                return
            pending = _Pending(client, number, self._now_seconds() + self._patience_seconds, sent_seconds)
            self._pending[client] = pending
            self._enqueue(pending)
        pending.sent_seconds = max(pending.sent_seconds, sent_seconds)
        pending.waiting.append(go_on)

    def _enqueue(self, pending: _Pending) -> None:
        self._queue.append(pending)
        if not self._is_running:
            self._is_running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._queue:
                asked, self._queue = self._queue[:MOST_QUESTIONS], self._queue[MOST_QUESTIONS:]
                try:
                    await self._ask_all(asked)
                except Exception as error:  # noqa: BLE001 - reported; nobody must wait for ever
                    self._failed(asked, error)
        finally:
            self._is_running = False

    def _failed(self, asked: Iterable[_Pending], error: Exception) -> None:
        told = internal_error("asking other proxies", error)
        self._report(error)
        for pending in asked:
            self._end(pending, told)

    async def _ask_all(self, asked: Sequence[_Pending]) -> None:
        members, generation = self._company.members(), self._log.generation
        for pending in asked:
            pending.is_yielded = False
        questions = [Question(pending.client, pending.number) for pending in asked]
        self.numbers.asked += 1
        self.numbers.questions += len(questions)
        if len(members) == 1:
            replies = [await self._answers_of(members[0], questions)]
        else:
            replies = list(await asyncio.gather(*(self._answers_of(member, questions) for member in members)))
        silent = [member.name for member, reply in zip(members, replies, strict=True) if reply is None]
        said = {member.name: reply for member, reply in zip(members, replies, strict=True) if reply is not None}
        told = list(said.values())
        if self._hear is not None and any(answer.written for reply in told for answer in reply):
            # The replies to these retries must not be older than the writes (W90).
            with suppress(CommandError):
                await self._hear()
        answered = [(pending, [reply[place] for reply in told]) for place, pending in enumerate(asked)]
        for place, pending in enumerate(asked):
            pending.busy = frozenset(name for name, reply in said.items() if reply[place].told is Told.BUSY)
        if silent:
            self.numbers.unanswered += len(questions)
            answered = self._finish_new(answered, generation, silent)
        if not answered:
            return
        if silent or self._company.are_lately_gone:
            self._spawn(self._finish_when_over(answered, generation, silent))
        else:
            self._finish(answered, generation, Search.NONE, silent)

    def _finish_new(self, answered: Sequence[_Answered], generation: int, silent: Sequence[str]) -> list[_Answered]:
        """Those of them that the silent processes may have executed; the others are finished."""
        new, old = list[_Answered](), list[_Answered]()
        for pending, answers in answered:
            begun_seconds = self._log.begun_seconds(pending.client, pending.number)
            is_new = self._company.rules_out(silent, begun_seconds)
            (new if is_new else old).append((pending, answers))
        if new:
            self._finish(new, generation, Search.FENCED, silent)
        return old

    @staticmethod
    async def _answers_of(member: Member, questions: Sequence[Question]) -> list[Answer] | None:
        try:
            return await member.ask(questions)
        except LinkLost:
            return None

    async def _finish_when_over(self, answered: Sequence[_Answered], generation: int, silent: Sequence[str]) -> None:
        sessions = [pending.client[0] for pending, _ in answered]
        try:
            is_over = await self._company.quiet(silent) and await self._company.over(sessions)
        except Exception as error:  # noqa: BLE001 - reported; nobody must wait for ever
            self._failed((pending for pending, _ in answered), error)
            return
        if is_over:
            self._finish(answered, generation, Search.SOUGHT, silent)
            return
        for pending, _ in answered:
            self._again(pending)

    def _finish(self, answered: Sequence[_Answered], generation: int, search: Search, silent: Sequence[str]) -> None:
        # A process that stood still may hear answers that are no longer true; this begins another generation.
        self._company.is_uncertain()
        for pending, answers in answered:
            told = {answer.told for answer in answers}
            # Once the session has a newer number, only the answers about that one tell to whom it belongs.
            if Told.NEWER in told or self._pending.get(pending.client) is not pending:
                self._end(pending, CommandError(TRANSACTION_TOO_OLD, _too_old(pending.number)))
            elif Told.BUSY in told or pending.is_yielded or generation != self._log.generation:
                self._again(pending)
            else:
                self._take(pending, answers, search, may_be_behind=bool(silent))

    def _again(self, pending: _Pending) -> None:
        if self._now_seconds() >= pending.deadline_seconds:
            text = "another proxy may be executing this statement, and its outcome is not known yet"
            self._end(pending, BackendUnavailable(text, code=NETWORK_TIMEOUT))
            return
        asyncio.get_running_loop().call_later(pending.pause_seconds, self._enqueue, pending)
        pending.pause_seconds = min(pending.pause_seconds * 2, PAUSES_SECONDS[1])

    def _take(self, pending: _Pending, answers: Sequence[Answer], search: Search, *, may_be_behind: bool) -> None:
        """The session belongs to this process from now on."""
        try:
            transaction = self._log.transaction(pending.client, pending.number)
        except CommandError as error:
            self._end(pending, error)
            return
        before = transaction.written.runs
        for answer in answers:
            if answer.told is Told.KNOWN:
                transaction.learn(answer.written, answer.lost, is_native=answer.is_native, is_sought=answer.is_sought)
        self.numbers.prevented += transaction.written.runs > before
        self.numbers.sought += search is Search.SOUGHT
        transaction.take(self._now_seconds(), search, pending.sent_seconds, may_be_behind=may_be_behind)
        self._end(pending, None)

    def _end(self, pending: _Pending, error: CommandError | None) -> None:
        if self._pending.get(pending.client) is pending:
            del self._pending[pending.client]
        waiting, pending.waiting = pending.waiting, []
        for go_on in waiting:
            try:
                go_on(error)
            except Exception as raised:  # noqa: BLE001 - reported; the others must not wait for ever
                self._report(raised)

    # --- answering ------------------------------------------------------------------------------------------

    def answer(self, name: str, questions: Sequence[Question]) -> list[Answer]:
        """What this process knows; sessions that it tells of belong to the asking process, which has this name."""
        self.numbers.answered += len(questions)
        can_ask = self._company.answered(name)
        return [self._answer(name, client, number, can_ask=can_ask) for client, number in questions]

    def _answer(self, name: str, client: SessionKey, number: int, *, can_ask: bool) -> Answer:
        pending = self._pending.get(client)
        if pending is not None:
            if pending.number > number:
                return NEWER
            if pending.number == number and self._company.own_name < name and name not in pending.busy:
                return BUSY
            pending.is_yielded = True
        known = self._log.latest(client)
        if known is not None and known.number > number:
            return NEWER
        is_overtaken = pending is not None and pending.number < number
        if (known is None or known.number < number) and number >= 0 and (is_overtaken or not can_ask):
            # An older number would get the session back otherwise, without hearing of this one.
            self._log.transaction(client, number).give_away()
            return UNKNOWN
        if known is None:
            return UNKNOWN
        if known.number == number and known.is_under_way:
            if pending is None or name > self._company.own_name or not pending.is_in_vain(name):
                return BUSY
            if not known.is_all_in_doubt:
                return BUSY
            return _abandoned(known)
        known.give_away()
        if known.number < number or (known.is_untried and not known.is_sought):
            return UNKNOWN
        if known.unmet_write_concern is not None or known.written.runs + known.lost.runs > MOST_RUNS:
            # The look-up confirms the write concern.
            return Answer(Told.KNOWN, is_native=known.is_native, is_sought=True)
        written, lost = tuple(known.written.spans()), tuple(known.lost.spans())
        return Answer(Told.KNOWN, known.is_native, known.is_sought, written, lost)


def _abandoned(known: Transaction) -> Answer:
    """Two processes have sent the same statements, lost their outcomes, and wait for one another.

    The one that goes first must not send them again either; then each looks for its own in the stored buckets.
    """
    written, lost = known.written.spans(), NumberSet()
    for start, end in known.lost.spans():
        lost.add_run(start, end)
    for number in known.under_way:
        lost.add(number)
    if len(written) + lost.runs > MOST_RUNS:
        return BUSY
    known.give_away()
    return Answer(Told.KNOWN, known.is_native, True, tuple(written), tuple(lost.spans()))


def _too_old(number: int) -> str:
    return (
        f"Cannot start transaction {number} on session because a newer transaction has already started on the session."
    )
