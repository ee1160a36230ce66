from __future__ import annotations

import pytest

from proxy.clients.left_client import LeftClient, wants_reply
from proxy.wire.message import Message
from proxy.wire.op_msg import MORE_TO_COME
from tests.support.raw_wire import command, compressed, framed

PING = command({"ping": 1, "$db": "admin"})
SILENT = command({"ping": 1, "$db": "admin"}, flags=MORE_TO_COME)


def test_nothing_is_written_and_the_end_is_told_once() -> None:
    told: list[str] = []
    transport = LeftClient(("203.0.113.9", 5), lambda: told.append("closed"))
    transport.write(b"dropped")
    transport.pause_reading()
    transport.resume_reading()
    assert transport.get_write_buffer_size() == 0
    assert transport.get_extra_info("peername") == ("203.0.113.9", 5)
    assert not transport.is_closing()
    transport.close()
    transport.abort()
    assert transport.is_closing()
    assert told == ["closed"]


@pytest.mark.parametrize(
    ("raw", "expected"), [(PING, True), (SILENT, False), (compressed(PING, 2), False), (framed(2013, b""), False)]
)
def test_what_a_message_shows_of_its_reply(raw: bytes, expected: bool) -> None:
    assert wants_reply(Message.from_bytes(raw)) is expected
