"""What proxies tell one another survives its way through bytes, in any pieces; anything else is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.background.absorbing import Order
from catalog.background.families import MOST_OF_A_SERIES
from catalog.bson.codec import encode
from catalog.buckets.resting import Given, Rested
from catalog.identity import NOBODY, identity_of
from proxy.peers.frames import (
    BUSY,
    CODE_BYTES,
    KNOWN_USERS_BYTES,
    LONGEST_GREETING_BYTES,
    LONGEST_SESSION_BYTES,
    MOST_QUESTIONS,
    NEWER,
    UNKNOWN,
    Answer,
    FrameReader,
    Kind,
    Question,
    Told,
    answer_bytes,
    answers_in,
    ask_bytes,
    encoded_users,
    frame_bytes,
    given_bytes,
    given_in,
    held_bytes,
    held_in,
    hold_bytes,
    hold_in,
    identities,
    ids_bytes,
    ids_in,
    is_askable,
    number_bytes,
    number_in,
    orders_bytes,
    orders_in,
    questions_in,
    rested_bytes,
    rested_in,
)

IDENTITIES = st.sampled_from([NOBODY, identity_of([("ann", "admin")]), identity_of([("ann", "x"), ("bob\0", "ü")])])
QUESTIONS = st.lists(
    st.builds(
        Question,
        st.tuples(st.binary(max_size=60), IDENTITIES),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=20,
)
STATEMENT_IDS = st.one_of(st.integers(0, 1000), st.integers(-(2**31), 2**31 - 1), st.just(2**31 - 1))
RUNS = st.lists(st.tuples(STATEMENT_IDS, STATEMENT_IDS).map(lambda ids: (min(ids), max(ids) + 1)), max_size=5).map(
    tuple
)
ANSWERS = st.lists(
    st.one_of(
        st.sampled_from([UNKNOWN, BUSY, NEWER]),
        st.builds(Answer, st.just(Told.KNOWN), st.booleans(), st.booleans(), RUNS, RUNS),
    ),
    max_size=20,
)


@given(QUESTIONS)
def test_questions_arrive_as_they_were_asked(questions: list[Question]) -> None:
    assert questions_in(ask_bytes(questions)) == questions


@given(ANSWERS)
def test_answers_arrive_as_they_were_given(answers: list[Answer]) -> None:
    assert answers_in(answer_bytes(answers)) == answers


IDS = st.binary(min_size=12, max_size=12)
DIGESTS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(0, 2**32 - 1)
GIVEN = st.builds(Given, IDS, NUMBERS)


@given(
    st.lists(st.builds(Rested, DIGESTS, DIGESTS, IDS, NUMBERS, NUMBERS), max_size=5),
    st.lists(IDS, max_size=5),
    st.lists(GIVEN, max_size=5),
    st.lists(st.builds(Order, IDS, st.lists(GIVEN, max_size=3)), max_size=5),
)
def test_what_concerns_buckets_arrives_as_it_was_said(
    rested: list[Rested], ids: list[bytes], given_up: list[Given], orders: list[Order]
) -> None:
    assert rested_in(rested_bytes(rested)) == rested
    assert ids_in(ids_bytes(7, ids)) == (7, ids)
    assert given_in(given_bytes(7, given_up)) == (7, given_up)
    assert orders_in(orders_bytes(orders)) == orders


def test_larger_numbers_than_a_frame_can_tell_are_the_largest() -> None:
    (told,) = rested_in(rested_bytes([Rested(bytes(16), bytes(16), bytes(12), 1 << 40, 1 << 40)]))
    assert told.rows == told.size_bytes == (1 << 32) - 1


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (rested_in, bytes(51)),
        (ids_in, bytes(3)),
        (ids_in, bytes(15)),
        (given_in, bytes(3)),
        (given_in, bytes(15)),
        (orders_in, orders_bytes([Order(bytes(12), [Given(bytes(12), 1)] * (MOST_OF_A_SERIES + 1))])),
        (orders_in, bytes(13)),
        (orders_in, bytes(12) + b"\1\0"),
    ],
)
def test_other_bytes_concern_no_buckets(read: Callable[[bytes], object], said: bytes) -> None:
    with pytest.raises(ValueError, match=r"not|cut short"):
        read(said)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read(said: bytes) -> None:
    for read in (questions_in, answers_in, rested_in, ids_in, given_in, orders_in):
        with suppress(ValueError):
            read(said)


def test_more_questions_than_a_frame_may_have_are_refused() -> None:
    questions = [Question((b"s", NOBODY), 1)] * (MOST_QUESTIONS + 1)
    with pytest.raises(ValueError, match="not a question"):
        questions_in(ask_bytes(questions))


@pytest.mark.parametrize("seed", range(5))
def test_frames_are_found_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    sent = [(Kind.PING, b""), (Kind.ASK, b"abc"), (Kind.ANSWER, bytes(900)), (Kind.PING, b"x")]
    raw = b"".join(frame_bytes(kind, said, bytes([place]) * CODE_BYTES) for place, (kind, said) in enumerate(sent))
    reader, found = FrameReader(), []
    while raw:
        size = chance.randrange(1, 40)
        found += list(reader.feed(raw[:size]))
        raw = raw[size:]
    assert [(frame.kind, frame.said) for frame in found] == sent
    assert [frame.code[0] for frame in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("said", [bytes(LONGEST_GREETING_BYTES)])
def test_a_frame_of_a_stranger_is_short(said: bytes) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        list(FrameReader().feed(frame_bytes(Kind.HELLO, said)))
    with pytest.raises(ValueError, match="a frame of"):
        list(FrameReader().feed(bytes(30)))


def test_holds_are_read_as_they_were_written() -> None:
    assert hold_in(hold_bytes(7, "d\u00e9")) == (7, "d\u00e9")
    assert held_in(held_bytes((1 << 32) - 1, is_granted=True)) == ((1 << 32) - 1, True)
    assert held_in(held_bytes(7, is_granted=False)) == (7, False)
    assert number_in(number_bytes(7)) == 7


@pytest.mark.parametrize(
    ("read", "said"),
    [(hold_in, b"123"), (hold_in, b"1234\xff"), (held_in, b"1234"), (held_in, bytes(7)), (number_in, bytes(5))],
)
def test_other_bytes_are_no_holds(read: Callable[[bytes], object], said: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a|codec"):
        read(said)


def question_of(session_bytes: int, users: bytes) -> bytes:
    return struct.pack("<IqHH", 1, 7, session_bytes, len(users)) + bytes(session_bytes) + users


def test_a_question_longer_than_is_ever_asked_is_none() -> None:
    """Its users would be kept, and nobody else limits how many of them there are."""
    users = encode({"users": [["x" * 300, "admin"]]})
    longest = LONGEST_SESSION_BYTES - len(users)
    assert len(questions_in(question_of(longest, users))) == 1
    with pytest.raises(ValueError, match="too long"):
        questions_in(question_of(longest + 1, users))


def test_known_users_are_bounded_in_bytes() -> None:
    for number in range(3_000):
        users = encode({"users": [[f"{number} {'x' * 3_000}", "admin"]]})
        (asked,) = questions_in(question_of(1, users))
        assert is_askable(asked.client)
        assert ask_bytes([asked]) == question_of(1, users)
        for cache in (identities, encoded_users):
            assert 0 < cache.size_bytes <= KNOWN_USERS_BYTES


def test_users_that_cannot_be_asked_about_are_not_kept() -> None:
    before = len(encoded_users)
    assert not is_askable((b"session", identity_of([("x" * LONGEST_SESSION_BYTES, "admin")])))
    assert len(encoded_users) == before
