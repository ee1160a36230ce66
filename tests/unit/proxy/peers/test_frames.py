"""What proxies tell one another survives its way through bytes, in any pieces; anything else is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.identity import NOBODY, identity_of
from proxy.peers.frames import (
    BUSY,
    CODE_BYTES,
    LONGEST_GREETING_BYTES,
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
    frame_bytes,
    held_bytes,
    held_in,
    hold_bytes,
    hold_in,
    questions_in,
    release_bytes,
    release_in,
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
RUNS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=5).map(tuple)
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


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read(said: bytes) -> None:
    for read in (questions_in, answers_in):
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
    assert held_in(held_bytes((1 << 32) - 1, 50)) == ((1 << 32) - 1, 50)
    assert held_in(held_bytes(7, 0)) == (7, 0)
    assert release_in(release_bytes(7)) == 7


@pytest.mark.parametrize(
    ("read", "said"),
    [(hold_in, b"123"), (hold_in, b"1234\xff"), (held_in, b"1234"), (held_in, bytes(7)), (release_in, bytes(5))],
)
def test_other_bytes_are_no_holds(read: Callable[[bytes], object], said: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a|codec"):
        read(said)
