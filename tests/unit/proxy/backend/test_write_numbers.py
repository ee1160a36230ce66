"""The numbers of writes, which others can get ahead of (W102)."""

from __future__ import annotations

import bson
import pytest

from catalog.commit.statements import TRANSACTION_TOO_OLD
from catalog.errors import BackendUnavailable, CommandError
from catalog.ports import Acknowledgement, Applied, Rejected, Unknown
from proxy.backend.write_numbers import (
    LOWEST,
    MOST_SPARE,
    SESSIONS,
    TERM,
    WriteNumbers,
    known_number,
    next_term,
    session_of,
)

APPLIED = Applied(1, {}, Acknowledgement())


def too_old(known: int) -> Rejected:
    text = (
        f"Retryable write with txnNumber 6 is prohibited … with txnNumber {known} has already started on this session."
    )
    return Rejected(CommandError(TRANSACTION_TOO_OLD, text))


def numbers() -> WriteNumbers:
    return WriteNumbers(b"secret", "tsproxy a")


def test_each_write_has_a_higher_number_in_its_session() -> None:
    made = numbers()
    one, two = made.take(), made.take()
    assert one.session != two.session
    first = one.number
    assert first > LOWEST
    made.free(one)
    again = made.take()
    assert again is one
    assert again.number == first + 1


def test_a_command_gets_its_session_and_number() -> None:
    number = numbers().take()
    body = bson.encode({"insert": "c", "ordered": False, "$db": "x"})
    assert bson.decode(number.numbered(body)) == {
        "insert": "c",
        "ordered": False,
        "$db": "x",
        "lsid": number.session,
        "txnNumber": number.number,
    }


def test_sessions_can_be_derived_by_those_who_know_the_secret() -> None:
    made = numbers()
    assert [made.take().session for _ in range(SESSIONS)] == [
        session_of(b"secret", "tsproxy a", place) for place in range(SESSIONS)
    ]
    others = {bytes(session_of(*of, 0)["id"]) for of in ((b"secret", "tsproxy b"), (b"other", "tsproxy a"))}
    assert len(others | {bytes(session_of(b"secret", "tsproxy a", 0)["id"])}) == 3


def test_a_session_whose_write_was_not_answered_rests_longest() -> None:
    made = numbers()
    silent, *answered = [made.take() for _ in range(3)]
    for each in answered:
        made.free(each)
    made.free(silent, is_answered=False)
    assert [made.take() for _ in range(3)][-1] is silent


def test_more_writes_than_sessions_have_some_without_fences() -> None:
    made = numbers()
    taken = [made.take() for _ in range(SESSIONS + 2 * MOST_SPARE)]
    assert [each.has_fence for each in taken] == [True] * SESSIONS + [False] * (2 * MOST_SPARE)
    for each in taken:
        made.free(each)
    again = [made.take() for _ in range(SESSIONS + 2 * MOST_SPARE)]
    assert [each.has_fence for each in again] == [each.has_fence for each in taken]
    assert len({id(each) for each in again} & {id(each) for each in taken}) == SESSIONS + MOST_SPARE


def test_while_others_may_take_over_only_sessions_with_fences_are_used() -> None:
    made, is_uncertain = numbers(), [False]
    made.must_have_fences = lambda: is_uncertain[0]
    taken = [made.take() for _ in range(SESSIONS + 1)]
    assert made.may_take()
    assert all(map(made.may_send, taken))
    is_uncertain[0] = True
    assert not made.may_take()
    assert [made.may_send(each) for each in taken] == [True] * SESSIONS + [False]
    made.free(taken[-1])
    assert not made.may_take()
    made.free(taken[0])
    assert made.may_take()
    assert made.take() is taken[0]


def test_after_a_fence_numbers_are_higher_in_every_session() -> None:
    made, fenced = numbers(), []
    made.on_fence = lambda: fenced.append(1)
    one, two = made.take(), made.take()
    made.free(two)
    assert made.ended([one], too_old(5 * TERM))
    assert fenced == [1]
    assert made.take().number == made.take().number == 5 * TERM + 1


def test_the_refusals_of_one_fence_are_told_once() -> None:
    made, fenced = numbers(), []
    made.on_fence = lambda: fenced.append(1)
    taken = [made.take() for _ in range(3)]
    assert [made.meets_fence(each, too_old(TERM)) for each in taken] == [True] * 3
    assert fenced == [1]
    assert made.meets_fence(taken[0], too_old(2 * TERM))
    assert fenced == [1, 1]


@pytest.mark.parametrize(
    "outcome", [APPLIED, Rejected(CommandError(13, "no")), Unknown(BackendUnavailable("lost")), None]
)
def test_other_outcomes_are_of_no_fence(outcome: Applied | Rejected | Unknown | None) -> None:
    made = numbers()
    made.on_fence = lambda: pytest.fail("there is none")
    assert not made.ended([made.take()], outcome)


def test_what_the_message_does_not_tell_is_the_next_fence() -> None:
    assert known_number("Cannot start transaction 1 because a newer transaction 77 has already started.", 1) == 77
    assert known_number("too old", 3 * TERM + 5) == 4 * TERM == next_term(3 * TERM)
