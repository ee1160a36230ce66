"""Whatever the parts and however the stream is cut, what is read is what was sent; noise is refused, never a crash."""

from __future__ import annotations

from contextlib import suppress

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import CommandError
from proxy.request.command import parse_command
from proxy.wire import op_compressed, op_msg, op_query
from proxy.wire.errors import ProtocolError
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import Message, Opcode
from proxy.wire.reader import MessageReader
from tests.support.raw_wire import query as query_bytes

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=6).map(bson.encode)
SEQUENCES = st.lists(st.tuples(NAMES, st.lists(DOCUMENTS, max_size=4)), max_size=2, unique_by=lambda pair: pair[0])
REQUEST_IDS = st.integers(-(2**31), 2**31 - 1)
FLAGS = st.sets(st.sampled_from([1, 2, 1 << 16, 1 << 31])).map(sum)


@st.composite
def op_msgs(draw: st.DrawFn) -> bytes:
    return op_msg.build(draw(REQUEST_IDS), 0, draw(DOCUMENTS), draw(SEQUENCES), draw(FLAGS))


OP_QUERIES = st.builds(query_bytes, DOCUMENTS, NAMES, st.sampled_from([1, -1, 0]), REQUEST_IDS)
OP_REPLIES = st.builds(op_query.build_reply, REQUEST_IDS, REQUEST_IDS, DOCUMENTS)
PLAIN = op_msgs() | OP_QUERIES | OP_REPLIES
OP_COMPRESSED = st.builds(op_compressed.wrap, PLAIN, st.sampled_from([1, 2, 3]))


@given(REQUEST_IDS, DOCUMENTS, SEQUENCES, FLAGS)
def test_op_msg_is_read_as_built(
    request_id: int, body: bytes, sequences: list[tuple[str, list[bytes]]], flags: int
) -> None:
    message = Message.from_bytes(op_msg.build(request_id, 0, body, sequences, flags))
    parts = op_msg.parse(message)
    assert (message.request_id, parts.flags, parts.body) == (request_id, flags, body)
    assert parts.sequences == tuple((name, tuple(documents)) for name, documents in sequences)


@given(REQUEST_IDS, NAMES, DOCUMENTS, st.integers(-(2**31), 2**31 - 1))
def test_op_query_is_read_as_built(request_id: int, collection: str, query: bytes, number: int) -> None:
    parts = op_query.parse(Message.from_bytes(query_bytes(query, collection, number, request_id)))
    assert (parts.collection, parts.query, parts.number_to_return) == (collection, query, number)


@given(OP_REPLIES)
def test_op_reply_is_read_as_built(raw: bytes) -> None:
    message = Message.from_bytes(raw)
    assert raw.endswith(op_query.reply_document(message))


@given(PLAIN, st.sampled_from([1, 2, 3]))
def test_compressed_message_is_unwrapped_to_itself(raw: bytes, compressor: int) -> None:
    wrapped = Message.from_bytes(op_compressed.wrap(raw, compressor))
    if wrapped.opcode == Opcode.COMPRESSED:
        assert op_compressed.unwrap(wrapped, MAX_MESSAGE_SIZE_BYTES).raw == raw
    else:
        assert wrapped.raw == raw


@given(st.lists(PLAIN | OP_COMPRESSED, max_size=6), st.binary(max_size=3), st.data())
def test_any_cut_of_the_stream_gives_the_same_messages(messages: list[bytes], tail: bytes, data: st.DataObject) -> None:
    stream = b"".join(messages) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader, found = MessageReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        # Some chunks are looked at before the next comes, some are not.
        if data.draw(st.booleans()):
            while (message := reader.next()) is not None:
                found.append(message.raw)
    while (message := reader.next()) is not None:
        found.append(message.raw)
    assert found == messages
    assert reader.buffered_bytes == len(tail)


def read_all(stream: bytes) -> None:
    """Everything a connection does with bytes before it routes a command."""
    reader = MessageReader()
    reader.feed(stream)
    while (message := reader.next()) is not None:
        if message.opcode == Opcode.COMPRESSED:
            message = op_compressed.unwrap(message, MAX_MESSAGE_SIZE_BYTES)
        if message.opcode == Opcode.MSG:
            parse_command(message)
        elif message.opcode == Opcode.QUERY:
            op_query.parse(message)
        elif message.opcode == Opcode.REPLY:
            op_query.reply_document(message)


@given(PLAIN | OP_COMPRESSED, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6))
def test_damaged_messages_are_refused_in_words(raw: bytes, damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(raw)
    for position, value in damage:
        damaged[position % len(damaged)] = value
    with suppress(ProtocolError, CommandError):
        read_all(bytes(damaged))


@given(st.binary(max_size=300))
def test_noise_is_refused_in_words(noise: bytes) -> None:
    for stream in (noise, (16 + len(noise)).to_bytes(4, "little") + bytes(8) + b"\xdd\x07\0\0" + noise):
        with suppress(ProtocolError, CommandError):
            read_all(stream)


@pytest.mark.parametrize("raw", [op_msg.build(1, 0, bson.encode({"ping": 1, "$db": "admin"}), flags=1)])
def test_every_flipped_bit_of_a_summed_message_is_noticed(raw: bytes) -> None:
    """CRC-32C finds every single-bit error after the header; the header's own flips change what is summed."""
    for position in range(20, len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[position] ^= 1 << bit
            with pytest.raises(ProtocolError):
                op_msg.parse(Message.from_bytes(bytes(damaged)))
