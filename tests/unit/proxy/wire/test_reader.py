"""Every message is fed whole, byte by byte, and with a trailing tail."""

from __future__ import annotations

import struct

import bson
import pytest

from proxy.wire import op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
from proxy.wire.reader import MessageReader
from tests.support.raw_wire import query

PING = op_msg.build(11, 0, bson.encode({"ping": 1, "$db": "admin"}))
QUERY = query({"isMaster": 1}, request_id=12)
MESSAGES = [PING, QUERY, op_msg.build(13, 0, bson.encode({"x": "y" * 5000}))]


def drain(reader: MessageReader) -> list[bytes]:
    found = []
    while (message := reader.next()) is not None:
        found.append(message.raw)
    return found


@pytest.mark.parametrize("raw", MESSAGES)
def test_whole_message_is_read(raw: bytes) -> None:
    reader = MessageReader()
    reader.feed(raw)
    message = reader.next()
    assert message is not None
    assert (message.raw, message.request_id) == (raw, struct.unpack_from("<i", raw, 4)[0])
    assert reader.next() is None
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize("raw", MESSAGES)
def test_message_byte_by_byte_is_the_same(raw: bytes) -> None:
    reader = MessageReader()
    found = []
    for byte in raw:
        reader.feed(bytes([byte]))
        found += drain(reader)
    assert found == [raw]


@pytest.mark.parametrize("raw", MESSAGES)
def test_tail_of_the_next_message_is_kept(raw: bytes) -> None:
    reader = MessageReader()
    reader.feed(raw + PING[:9])
    assert drain(reader) == [raw]
    assert reader.buffered_bytes == 9
    reader.feed(PING[9:])
    assert drain(reader) == [PING]


def test_second_whole_message_before_the_first_is_taken() -> None:
    reader = MessageReader()
    reader.feed(PING)
    reader.feed(QUERY)
    assert drain(reader) == [PING, QUERY]


@pytest.mark.parametrize("length", [0, 15, -1, MAX_MESSAGE_SIZE_BYTES + 1])
def test_impossible_length_is_refused_before_its_body(length: int) -> None:
    """As 6.0.5, which closes the connection on the header alone."""
    reader = MessageReader()
    reader.feed(struct.pack("<i", length))
    with pytest.raises(ProtocolError):
        reader.next()


def test_lower_limit_applies_to_a_message_in_one_piece() -> None:
    reader = MessageReader(max_size_bytes=len(PING) - 1)
    reader.feed(PING)
    with pytest.raises(ProtocolError):
        reader.next()


def test_unknown_opcode_is_refused_before_its_body() -> None:
    reader = MessageReader()
    reader.feed(struct.pack("<iiii", 1000, 1, 0, 9999))
    with pytest.raises(ProtocolError):
        reader.next()


def test_http_is_told_so() -> None:
    reader = MessageReader()
    reader.feed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with pytest.raises(ProtocolError) as caught:
        reader.next()
    assert caught.value.farewell.startswith(b"HTTP/1.0 200 OK")


@pytest.mark.parametrize("step", [1, 700, 20_000, 300_000])
def test_a_large_message_comes_in_pieces_and_what_follows_it_after_it(step: int) -> None:
    large = op_msg.build(14, 0, bson.encode({"x": bytes(range(250)) * 400}))
    stream = PING + large + QUERY
    reader = MessageReader(large_bytes=50_000)
    found: list[bytes] = []
    in_pieces = 0
    for start in range(0, len(stream), step):
        reader.feed(stream[start : start + step])
        assert sum(map(len, found)) + reader.buffered_bytes == min(start + step, len(stream))
        while (message := reader.next()) is not None:
            in_pieces += message.pieces is not None
            assert len(message.pieces or ()) <= len(large) // 16_000 + 2, "small pieces are put together"
            found.append(message.put_together().raw)
            assert message.put_together().request_id == struct.unpack_from("<i", found[-1], 4)[0]
    assert found == [PING, large, QUERY]
    assert in_pieces == 1


def test_a_large_message_that_came_at_once_is_one_piece() -> None:
    reader = MessageReader(large_bytes=1_000)
    reader.feed(MESSAGES[2])
    message = reader.next()
    assert message is not None
    assert message.pieces == [MESSAGES[2]]


@pytest.mark.parametrize("large_bytes", [10, 1_000_000])
def test_the_length_of_a_message_is_known_from_its_first_bytes_on(large_bytes: int) -> None:
    reader = MessageReader(large_bytes=large_bytes)
    raw = op_msg.build(1, 0, bson.encode({"ping": 1, "comment": "x" * 50_000}))
    expected = []
    for start in range(0, len(raw), 3):
        reader.feed(raw[start : start + 3])
        message = reader.next()
        expected.append(reader.expected_bytes)
    assert message is not None
    assert expected == [0, *[len(raw)] * (len(expected) - 2), 0]
