"""Only who knows the secret can prove it, in its own role and on its own link, and sign frames in their order."""

from __future__ import annotations

import pytest

from proxy.peers.frames import Frame, FrameReader, Kind
from proxy.peers.handshake import (
    ANSWERER,
    ASKER,
    Channel,
    Introduction,
    greeting,
    is_proof,
    key_of,
    nonce,
    proof,
    read_greeting,
    series_key_of,
)

ONE, TWO = Introduction("tsproxy one", 1234), Introduction("tsproxy two", 65535, has_tls=True)
THREE = Introduction("tsproxy three", 1, keeps_readers=True, first_place=0)
KEY = key_of(b"secret")


def test_a_greeting_says_who_sent_it() -> None:
    for introduction in (ONE, TWO, THREE):
        assert read_greeting(greeting(introduction, nonce())) == introduction


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1", greeting(ONE, nonce())[:-1], greeting(ONE, nonce()) + b"x"],
    ids=["empty", "http", "shorter", "longer"],
)
def test_anything_else_is_no_greeting(said: bytes) -> None:
    with pytest.raises(ValueError, match="greeting"):
        read_greeting(said)


def test_a_proof_holds_for_one_secret_one_role_and_one_link() -> None:
    hello, challenge = greeting(ONE, nonce()), greeting(TWO, nonce())
    given = proof(KEY, ASKER, hello, challenge)
    assert is_proof(given, KEY, ASKER, hello, challenge)
    assert not is_proof(given, key_of(b"another"), ASKER, hello, challenge)
    assert not is_proof(given, KEY, ANSWERER, hello, challenge)
    assert not is_proof(given, KEY, ASKER, challenge, hello)
    assert not is_proof(given, KEY, ASKER, hello, greeting(TWO, nonce()))
    assert not is_proof(b"", KEY, ASKER, hello, challenge)


def channels() -> tuple[Channel, Channel]:
    hello, challenge = greeting(ONE, nonce()), greeting(TWO, nonce())
    return Channel(KEY, ASKER, hello, challenge), Channel(KEY, ANSWERER, hello, challenge)


def received(raw: bytes) -> Frame:
    (frame,) = FrameReader().feed(raw)
    return frame


def test_frames_are_genuine_in_their_order_only() -> None:
    asker, answerer = channels()
    for side, other in ((asker, answerer), (answerer, asker)):
        for said in (b"a", b"b"):
            assert other.is_genuine(received(side.seal(Kind.ASK, said)))
    again = asker.seal(Kind.ASK, b"c")
    assert answerer.is_genuine(received(again))
    assert not answerer.is_genuine(received(again))


def test_changed_reflected_and_foreign_frames_are_not_genuine() -> None:
    asker, answerer = channels()
    frame = received(asker.seal(Kind.ASK, b"abc"))
    assert not answerer.is_genuine(frame._replace(said=b"abd"))
    asker, answerer = channels()
    frame = received(asker.seal(Kind.ASK, b"abc"))
    assert not answerer.is_genuine(frame._replace(kind=Kind.PING))
    asker, _ = channels()
    assert not asker.is_genuine(received(asker.seal(Kind.ASK, b"abc")))
    asker, answerer = channels()
    stranger, _ = channels()
    assert not answerer.is_genuine(received(stranger.seal(Kind.ASK, b"abc")))


def test_series_have_a_key_of_their_own() -> None:
    """It says nothing of that of the links, and both are those of the account."""
    assert len({series_key_of(b"secret"), key_of(b"secret"), series_key_of(b"another")}) == 3
    assert series_key_of(b"secret") == series_key_of(b"secret")
