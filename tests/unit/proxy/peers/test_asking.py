"""A session belongs to one process: who asks whom, who goes first, and what is learned (W102)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from catalog.commit.statements import TRANSACTION_TOO_OLD, Statement, StatementLog
from catalog.errors import CommandError
from catalog.identity import NOBODY
from catalog.ports import Acknowledgement
from proxy.observe.peer_numbers import PeerNumbers
from proxy.peers.asking import Asking
from proxy.peers.frames import BUSY, LONGEST_SESSION_BYTES, MOST_RUNS, NEWER, UNKNOWN, Answer, Question, Told
from proxy.peers.link import LinkLost
from tests.support.eventually import eventually

CLIENT = (b"session", NOBODY)


class Process:
    """One process of a world in which all can be asked at once; others are reached through ``Way``."""

    def __init__(self, name: str, patience_seconds: float = 10.0) -> None:
        self.own_name = name
        self.others: list[Way] = []
        self.log = StatementLog()
        self.are_lately_gone = False
        self.is_doubtful = False
        self.waited_for: list[str] = []
        self.are_quiet = self.are_over = True
        self.over_seconds = math.inf
        self.reported: list[BaseException] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.went_on: list[tuple[int, CommandError | None]] = []
        self.numbers = PeerNumbers()
        now_seconds = asyncio.get_running_loop().time
        self.heard = 0
        self.asking = Asking(
            self.log, self, self.numbers, now_seconds, patience_seconds, self._spawn, self.reported.append, self._hear
        )

    async def _hear(self) -> None:
        self.heard += 1
        raise CommandError(6, "the backend is gone")

    def _spawn(self, work: object) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))  # type: ignore[arg-type]

    def is_uncertain(self) -> bool:
        return self.is_doubtful

    def members(self) -> Sequence[Way]:
        return self.others

    def answered(self, name: str) -> bool:
        return not any(way.is_cut for way in self.others if way.name == name)

    def rules_out(self, names: Sequence[str], begun_seconds: float) -> bool:
        return bool(names) and begun_seconds >= self.over_seconds

    async def quiet(self, names: Sequence[str]) -> bool:
        self.waited_for += names
        return self.are_quiet

    async def over(self, sessions: Sequence[bytes]) -> bool:
        self.waited_for += [each.decode() for each in sessions]
        return self.are_over

    def ask(self, number: int, then: Callable[[], None] = lambda: None, sent_seconds: float = -math.inf) -> None:
        def go_on(error: CommandError | None) -> None:
            self.went_on.append((number, error))
            if error is None:
                then()

        self.asking.ask(CLIENT, number, go_on, sent_seconds)

    async def asked(self, number: int, sent_seconds: float = -math.inf) -> CommandError | None:
        count = len(self.went_on)
        self.ask(number, sent_seconds=sent_seconds)
        await eventually(lambda: len(self.went_on) > count)
        assert self.went_on[-1][0] == number
        return self.went_on[-1][1]

    def begin(self, number: int, statement: int = 0) -> Statement:
        return Statement(self.log.transaction(CLIENT, number), statement)

    def write(self, number: int, *statements: int) -> None:
        for statement in statements:
            self.begin(number, statement).settle((0,), None, None)


class Way:
    """From one process to another."""

    def __init__(self, own: Process, other: Process) -> None:
        self.name = other.own_name
        self.is_cut = False
        self.before_answer: Callable[[], None] = lambda: None
        self.asked = 0
        self._own = own
        self._other = other

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += len(questions)
        await asyncio.sleep(0)
        if self.is_cut:
            raise LinkLost("cut")
        answers = self._other.asking.answer(self._own.own_name, questions)
        self.before_answer()
        for _ in range(10):  # the answer is on its way
            await asyncio.sleep(0)
        return answers


def processes(count: int = 2) -> list[Process]:
    found = [Process(name) for name in "abcd"[:count]]
    for each in found:
        each.others = [Way(each, other) for other in found if other is not each]
    return found


async def test_w90_the_time_of_the_backend_is_asked_for_where_something_was_written() -> None:
    """It is not needed to go on."""
    one, two = processes()
    one.write(1, 0)
    assert await two.asked(1) is None
    assert 0 in two.log.transaction(CLIENT, 1).written
    assert two.heard == 1
    assert await one.asked(2) is None
    assert one.heard == 0


async def test_a_session_is_asked_for_once_until_another_process_gets_it() -> None:
    one, two = processes()
    assert one.asking.concerns(CLIENT, 1)
    assert await one.asked(1) is None
    assert not one.asking.concerns(CLIENT, 1)
    assert not one.asking.concerns(CLIENT, 2)
    assert two.asking.concerns(CLIENT, 2)
    assert await two.asked(2) is None
    assert not two.asking.concerns(CLIENT, 2)
    assert one.asking.concerns(CLIENT, 2)
    assert one.asking.concerns(CLIENT, 3)


async def test_what_another_process_has_written_is_known() -> None:
    one, two = processes()
    one.write(5, 0, 1, 2, 7)
    assert await two.asked(5) is None
    known = two.log.transaction(CLIENT, 5)
    assert [number for number in range(9) if number in known.written] == [0, 1, 2, 7]
    assert not known.is_sought
    assert not known.is_native
    assert two.numbers.prevented == 1


async def test_lost_and_native_statements_stay_so() -> None:
    one, two = processes()
    one.begin(5, 3).lose(CommandError(6, "unknown"))
    assert await two.asked(5) is None
    assert 3 in two.log.transaction(CLIENT, 5).lost
    one.log.transaction(CLIENT, 6).is_native = True
    assert await two.asked(6) is None
    assert two.log.transaction(CLIENT, 6).is_native


async def test_what_is_not_met_or_too_much_is_looked_up() -> None:
    one, two = processes()
    one.begin(1).settle((0,), None, Acknowledgement(write_concern_error={"code": 64}))
    assert await two.asked(1) is None
    assert two.log.transaction(CLIENT, 1).is_sought
    assert not two.log.transaction(CLIENT, 1).written.runs
    two.write(2, *range(0, 3 * MOST_RUNS, 2))
    assert await one.asked(2) is None
    assert one.log.transaction(CLIENT, 2).is_sought


async def test_statements_under_way_are_waited_for() -> None:
    one, two = processes()
    statement = one.begin(1)
    two.ask(1)
    way = two.others[0]
    await eventually(lambda: way.asked > 2)
    assert two.went_on == []
    statement.settle((0,), None, None)
    await eventually(lambda: two.went_on)
    assert 0 in two.log.transaction(CLIENT, 1).written
    # Also those of a command that has not staged all of them yet.
    transaction = two.log.transaction(CLIENT, 1)
    transaction.commands = 1
    assert two.asking.answer("a", [Question(CLIENT, 1)]) == [BUSY]


async def test_who_executes_a_statement_gets_its_session_back_before_others() -> None:
    """It cannot go on without the session, and the others cannot have the session before it has gone on."""
    one, two = processes()
    statement = two.begin(1)
    one.ask(1)
    await eventually(lambda: one.others[0].asked > 2)
    two.log.begin_generation()
    two.log.contest_all(0.0)
    assert two.asking.is_contested()
    assert await two.asked(1) is None
    assert not two.asking.concerns(CLIENT, 1)
    assert one.went_on == []
    statement.settle((0,), None, None)
    assert not two.asking.is_contested()
    await eventually(lambda: one.went_on)
    assert 0 in one.log.transaction(CLIENT, 1).written


async def test_of_two_that_have_lost_the_outcome_one_gives_the_statement_up() -> None:
    """Each waits for the other, for ever. What their copies have done, only the stored buckets tell."""
    one, two = processes()
    error = CommandError(6, "connection reset")
    for each in (one, two):
        statement = each.begin(1)
        assert statement.doubt((0,), error, 0.0) is statement
        each.log.begin_generation()
        each.log.contest_all(0.0)
    one.ask(1)
    two.ask(1)
    await eventually(lambda: one.went_on)
    assert one.went_on == [(1, None)]
    lost = one.log.transaction(CLIENT, 1)
    assert 0 in lost.lost
    assert two.went_on == []
    lost.under_way[0].lose(error)
    await eventually(lambda: two.went_on)
    assert two.went_on == [(1, None)]
    assert 0 in two.log.transaction(CLIENT, 1).lost


async def test_answers_about_an_older_number_do_not_make_a_session_belong_to_two_processes() -> None:
    """While they are on their way, both get the next number, and the other one asks about it."""
    one, two = processes()
    one.write(1, 0)
    of_both: list[bool] = []

    def look() -> None:
        of_both.append(not any(each.asking.concerns(CLIENT, 3) for each in (one, two)))

    def overtake() -> None:
        two.others[0].before_answer = lambda: None
        for each in (two, one):
            each.ask(2, look)

    two.others[0].before_answer = overtake
    two.ask(1, look)
    await eventually(lambda: len(one.went_on + two.went_on) == 3)
    assert of_both == [False] * 2
    error = two.went_on[0][1]
    assert error is not None
    assert error.code == TRANSACTION_TOO_OLD


async def test_a_number_that_others_were_asked_about_meanwhile_is_too_old() -> None:
    """Its session belongs to the other process, which cannot be asked, and can ask itself."""
    one, two = processes()
    two.others[0].is_cut = True
    two.are_quiet = False
    two.ask(1)
    await eventually(lambda: two.waited_for)
    assert await one.asked(2) is None
    two.are_quiet = True
    await eventually(lambda: two.went_on)
    error = two.went_on[0][1]
    assert error is not None
    assert error.code == TRANSACTION_TOO_OLD
    assert two.asking.concerns(CLIENT, 2)


async def test_a_number_that_comes_after_the_question_about_the_next_one_is_too_old() -> None:
    one, two = processes()
    two.others[0].is_cut = True
    assert await one.asked(2) is None
    error = await two.asked(1)
    assert error is not None
    assert error.code == TRANSACTION_TOO_OLD
    assert two.asking.concerns(CLIENT, 2)
    assert await two.asked(2) is None
    assert two.log.transaction(CLIENT, 2).is_sought


async def test_a_statement_of_an_older_number_does_not_hide_that_a_newer_one_is_asked_about() -> None:
    """It is asked about once more before it is sent; the client has gone on with its session meanwhile."""
    one, two = processes()
    one.begin(1)
    one.log.begin_generation()
    asked = two.others[0].asked

    def retried() -> None:
        # Its answer is on the way, and the client sends the statement to the other process, too.
        one.others[0].before_answer = lambda: None
        one.ask(1)
        two.ask(2)

    one.others[0].before_answer = retried
    one.ask(2)
    await eventually(lambda: len(one.went_on) == 2 and two.others[0].asked > asked)
    assert isinstance(one.went_on[0][1], CommandError)
    assert one.went_on[0][1].code == TRANSACTION_TOO_OLD
    assert one.went_on[1] == (2, None)
    taken = [each.asking.concerns(CLIENT, 2) for each in (one, two)]
    assert taken.count(False) < 2, "both have the session"


async def test_an_internal_error_ends_all_that_wait() -> None:
    _, two = processes()
    two.others[0].is_cut = True

    async def broken(sessions: Sequence[bytes]) -> bool:
        raise ValueError("broken")

    two.over = broken  # type: ignore[method-assign]
    error = await two.asked(1)
    assert error is not None
    assert error.code == 1
    assert [str(each) for each in two.reported] == ["broken"]


@pytest.mark.parametrize("what", ["are_quiet", "are_over"])
async def test_what_cannot_be_known_in_time_is_refused_retryably(what: str) -> None:
    """What another process has sent to the backend is not over."""
    one, two = Process("a"), Process("b", patience_seconds=0.05)
    two.others = [Way(two, one)]
    two.others[0].is_cut = True
    setattr(two, what, False)
    error = await two.asked(1)
    assert error is not None
    assert "RetryableWriteError" in error.labels
    assert two.log.latest(CLIENT) is None


async def test_a_statement_that_does_not_end_is_refused_retryably() -> None:
    one, two = Process("a"), Process("b", patience_seconds=0.05)
    two.others = [Way(two, one)]
    one.begin(1)
    error = await two.asked(1)
    assert error is not None
    assert "RetryableWriteError" in error.labels


async def test_a_later_number_elsewhere_refuses_an_earlier_one() -> None:
    one, two = processes()
    one.write(9, 0)
    error = await two.asked(8)
    assert error is not None
    assert error.code == TRANSACTION_TOO_OLD
    assert await two.asked(9) is None
    error = await two.asked(3)
    assert error is not None
    assert error.code == TRANSACTION_TOO_OLD


@pytest.mark.parametrize("count", [2, 3, 4])
async def test_if_all_ask_at_once_each_statement_is_written_once(count: int) -> None:
    found = processes(count)
    for number in range(1, 20):
        assert await written_by(found, number) == 1


async def written_by(processes: Sequence[Process], number: int) -> int:
    """How many of them write a statement that all get at the same moment."""
    written: list[str] = []

    def write(process: Process) -> None:
        transaction = process.log.transaction(CLIENT, number)
        if 0 not in transaction.written:
            written.append(process.own_name)
            statement = Statement(transaction, 0)
            asyncio.get_running_loop().call_later(0.001, statement.settle, (0,), None, None)

    for process in processes:
        process.went_on.clear()
        process.ask(number, partial(write, process))
    await eventually(lambda: all(process.went_on for process in processes))
    await eventually(lambda: not any(process.log.transaction(CLIENT, number).under_way for process in processes))
    return len(written)


async def test_an_answer_that_was_overtaken_does_not_count() -> None:
    """The answer is on its way when the other process gets the statement and asks, too."""
    one, two = processes()
    way = two.others[0]

    def overtake() -> None:
        way.before_answer = lambda: None
        one.ask(1, lambda: one.write(1, 0))

    way.before_answer = overtake
    assert await two.asked(1) is None
    assert 0 in two.log.transaction(CLIENT, 1).written


async def test_who_cannot_be_asked_is_waited_for_and_looked_up() -> None:
    one, two, _ = processes(3)
    two.others[0].is_cut = True
    assert await two.asked(1) is None
    assert two.waited_for == ["a", "session"]
    assert two.log.transaction(CLIENT, 1).is_sought
    assert two.numbers.unanswered == 1
    assert one.log.latest(CLIENT) is None


async def test_what_a_client_has_begun_behind_fences_is_not_looked_up() -> None:
    one, two = processes()
    two.others[0].is_cut = True
    two.over_seconds = 10.0
    two.is_doubtful = True
    for number, sent_seconds, is_sought in ((1, 10.0, True), (2, -math.inf, False), (3, 9.0, False), (4, 11.0, False)):
        waited = len(two.waited_for)
        assert await two.asked(number, sent_seconds) is None
        transaction = two.log.transaction(CLIENT, number)
        assert (transaction.is_sought, transaction.may_be_relayed) == (is_sought, False)
        assert two.waited_for[waited:] == (["a", "session"] if is_sought else [])
    two.over_seconds = 12.0
    assert await two.asked(5, 13.0) is None
    assert two.log.transaction(CLIENT, 5).is_sought
    assert (two.numbers.unanswered, two.numbers.sought) == (5, 2)
    assert one.log.latest(CLIENT) is None


async def test_a_late_copy_of_an_older_number_gets_no_newer_ones() -> None:
    """Who could not be asked may have executed these."""
    one, two = processes()
    one.write(6, 0)
    two.others[0].is_cut = True
    assert await two.asked(5) is None
    two.others[0].is_cut = False
    assert not two.asking.concerns(CLIENT, 5)
    assert two.asking.concerns(CLIENT, 6)
    assert await two.asked(6) is None
    assert 0 in two.log.transaction(CLIENT, 6).written
    assert not two.asking.concerns(CLIENT, 7)


async def test_what_others_know_counts_behind_fences_as_well() -> None:
    one, two, _ = processes(3)
    two.over_seconds = 10.0
    assert await two.asked(1, 11.0) is None
    one.log.transaction(CLIENT, 2)
    one.write(2, 0)
    two.others[1].is_cut = True
    assert await two.asked(2) is None
    transaction = two.log.transaction(CLIENT, 2)
    assert 0 in transaction.written
    assert not transaction.is_sought


async def test_while_others_have_gone_lately_all_is_looked_up() -> None:
    one = Process("a")
    one.are_lately_gone = True
    assert await one.asked(1) is None
    assert one.waited_for == ["session"]
    assert one.log.transaction(CLIENT, 1).is_sought
    assert not one.asking.concerns(CLIENT, 2)


async def test_answers_of_an_earlier_era_do_not_count() -> None:
    """The process stood still, or a link was made anew: others may have taken the session meanwhile."""
    one, two = processes()
    way = two.others[0]

    def generation() -> None:
        way.before_answer = lambda: None
        two.log.begin_generation()

    way.before_answer = generation
    assert await two.asked(1) is None
    assert way.asked == 2
    assert not two.asking.concerns(CLIENT, 1)
    two.is_doubtful = True
    assert two.asking.concerns(CLIENT, 1)
    assert one.reported == two.reported == []


async def test_commands_that_wait_for_the_same_answer_all_go_on() -> None:
    one, two = processes()
    error = ValueError("of a caller")

    def broken(_: CommandError | None) -> None:
        raise error

    two.asking.ask(CLIENT, 1, broken)
    two.ask(1)
    await eventually(lambda: two.went_on)
    assert two.reported == [error]
    assert two.others[0].asked == 1
    assert one.asking.answer("b", [Question(CLIENT, 2)]) == [UNKNOWN]
    one.log.transaction(CLIENT, 3)
    assert one.asking.answer("b", [Question(CLIENT, 2), Question(CLIENT, 3)]) == [NEWER, UNKNOWN]
    assert one.asking.answer("b", [Question(CLIENT, 3)])[0].told is Told.UNKNOWN


async def test_an_internal_error_and_a_session_that_cannot_be_asked_about_are_told() -> None:
    one = Process("a")
    one.members = lambda: 1 / 0  # type: ignore[method-assign,return-value,assignment]
    error = await one.asked(1)
    assert error is not None
    assert "internal error while asking other proxies, reference " in error.message
    assert "division" not in error.message
    (reported,) = one.reported
    assert error.message.endswith(reported.__notes__[0])
    told: list[CommandError | None] = []
    one.asking.ask((bytes(LONGEST_SESSION_BYTES + 1), NOBODY), 1, told.append)
    assert told[0] is not None
