"""What both sides of a link do with what comes: frames in any pieces, and an end with the first one that is wrong."""

from __future__ import annotations

from typing import Any

from proxy.peers.frames import Frame, Kind, frame_bytes
from proxy.peers.handshake import ANSWERER, ASKER, Channel
from proxy.peers.side import MOST_UNSENT_BYTES, Side


class Transport:
    """Remembers what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_aborted = False

    def write(self, raw: bytes) -> None:
        self.written += raw

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_extra_info(self, name: str) -> Any:
        return None


class Remembering(Side):
    """Remembers what comes."""

    def __init__(self, role: bytes | None = None) -> None:
        super().__init__()
        self.taken: list[tuple[int, bytes]] = []
        self.reasons: list[str] = []
        if role is not None:
            self._channel = Channel(b"key", role, b"hello", b"challenge")

    def say(self, said: bytes) -> None:
        self._say(Kind.PING, said)

    def _take(self, frame: Frame) -> None:
        self.taken.append((frame.kind, frame.said))

    def _broken(self, reason: str) -> None:
        self.reasons.append(reason)


def connected(role: bytes | None = None) -> tuple[Remembering, Transport]:
    side, transport = Remembering(role), Transport()
    side.connection_made(transport)  # type: ignore[arg-type]
    return side, transport


def test_what_one_side_says_the_other_takes() -> None:
    asker, transport = connected(ASKER)
    answerer, _ = connected(ANSWERER)
    for said in (b"a", b"b"):
        asker.say(said)
    for position in range(len(transport.written)):
        answerer.data_received(transport.written[position : position + 1])
    assert answerer.taken == [(Kind.PING, b"a"), (Kind.PING, b"b")]
    assert answerer.is_open


def test_a_frame_of_somebody_else_ends_the_link() -> None:
    side, transport = connected(ANSWERER)
    side.data_received(frame_bytes(Kind.PING, b""))
    assert side.reasons == ["frame with an invalid code"]
    assert transport.is_aborted
    assert not side.is_open


def test_a_side_that_has_not_proved_who_it_is_is_not_open() -> None:
    side, _ = connected()
    assert not side.is_open
    side.data_received(frame_bytes(Kind.HELLO, b"x"))
    assert side.taken == [(Kind.HELLO, b"x")]


def test_nothing_is_written_after_the_end() -> None:
    side, transport = connected(ASKER)
    side.connection_lost(None)
    side.say(b"a")
    side.close()
    assert side.reasons == ["connection closed"]
    assert transport.written == b""
    assert not transport.is_aborted


def test_what_the_other_side_leaves_unread_is_noticed() -> None:
    side, transport = Remembering(ASKER), Transport()
    assert not side.is_unread
    side.connection_made(transport)  # type: ignore[arg-type]
    side.say(bytes(100))
    assert not side.is_unread
    transport.written = bytes(MOST_UNSENT_BYTES + 1)
    assert side.is_unread
