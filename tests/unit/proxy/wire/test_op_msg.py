"""What 6.0.5 answers to each fault was observed on it; tests/differential compares the bytes."""

from __future__ import annotations

import bson
import pytest

from catalog.errors import CommandError
from proxy.wire import op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from tests.support.raw_wire import body, op_msg_bytes, sequence, with_checksum

INSERT = {"insert": "c", "$db": "d"}


def parsed(raw: bytes) -> op_msg.OpMsg:
    return op_msg.parse(Message.from_bytes(raw))


def test_body_alone() -> None:
    message = parsed(op_msg_bytes(body(INSERT)))
    assert (bson.decode(message.body), message.sequences, message.flags) == (INSERT, (), 0)


@pytest.mark.parametrize("body_first", [True, False])
def test_sections_come_in_any_order(body_first: bool) -> None:
    sections = [body(INSERT), sequence("documents", {"a": 1}, {"a": 2})]
    message = parsed(op_msg_bytes(*(sections if body_first else reversed(sections))))
    assert bson.decode(message.body) == INSERT
    assert message.sequences == (("documents", (bson.encode({"a": 1}), bson.encode({"a": 2}))),)


def test_empty_sequence_is_allowed() -> None:
    assert parsed(op_msg_bytes(body(INSERT), sequence("documents"))).sequences == (("documents", ()),)


def test_more_sequences_than_a_server_takes_close() -> None:
    """As 6.0.5 does with a third one."""
    two = [sequence("a", {}), sequence("b", {})]
    assert len(parsed(op_msg_bytes(body(INSERT), *two)).sequences) == 2
    with pytest.raises(ProtocolError, match="more than 2"):
        parsed(op_msg_bytes(body(INSERT), *two, sequence("c", {})))


def test_more_documents_than_a_batch_has_are_counted_and_refused() -> None:
    """W94"""
    most = op_msg.MOST_DOCUMENTS
    assert len(parsed(op_msg_bytes(body(INSERT), sequence("documents", *[{}] * most))).sequences[0][1]) == most
    with pytest.raises(CommandError, match="Got 100007 operations") as refused:
        parsed(op_msg_bytes(body(INSERT), sequence("documents", *[{}] * (most + 7))))
    assert refused.value.code == 16


def test_built_message_parses_to_its_parts() -> None:
    raw = op_msg.build(3, 4, bson.encode(INSERT), [("documents", [bson.encode({"a": 1})])], op_msg.MORE_TO_COME)
    message = parsed(raw)
    assert (message.flags, bson.decode(message.body)) == (2, INSERT)
    assert message.sequences == (("documents", (bson.encode({"a": 1}),)),)


@pytest.mark.parametrize("flags", [4, 1 << 15])
def test_unknown_required_flag_closes(flags: int) -> None:
    with pytest.raises(ProtocolError):
        parsed(op_msg_bytes(body(INSERT), flags=flags))


def test_unknown_optional_flag_is_ignored() -> None:
    assert parsed(op_msg_bytes(body(INSERT), flags=1 << 20)).body == bson.encode(INSERT)


def test_message_without_flags_closes() -> None:
    with pytest.raises(ProtocolError):
        parsed(op_msg_bytes()[:16].replace(b"\x14", b"\x10"))


def test_good_checksum_is_not_part_of_the_sections() -> None:
    raw = op_msg.build(3, 0, bson.encode(INSERT), flags=op_msg.CHECKSUM_PRESENT)
    assert parsed(raw).body == bson.encode(INSERT)
    assert with_checksum(op_msg_bytes(body(INSERT))) == op_msg.build(
        7, 0, bson.encode(INSERT), flags=op_msg.CHECKSUM_PRESENT
    )


def test_bad_checksum_closes() -> None:
    raw = bytearray(op_msg.build(3, 0, bson.encode(INSERT), flags=op_msg.CHECKSUM_PRESENT))
    raw[30] ^= 1
    with pytest.raises(ProtocolError):
        parsed(bytes(raw))


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ([], 40587),
        ([sequence("documents", {"a": 1})], 40587),
        ([body(INSERT), body(INSERT)], 40430),
        ([body(INSERT), sequence("documents"), sequence("documents")], 40431),
        ([body(INSERT), b"\x02" + bson.encode({})], 13),
        ([b"\x03"], 40432),
        ([body(INSERT), sequence("documents", {"a": 1}, size=400)], 15),
        ([body(INSERT), sequence("documents", {"a": 1}, size=3)], 15),
        ([body(INSERT), sequence("documents", {"a": 1}, size=-1)], 15),
        ([body(INSERT), b"\x01\x08\0\0\0abcd"], 15),
        ([body(INSERT), b"\x01\0\0"], 15),
        ([body(INSERT), sequence("documents", {"a": 1}, size=20)], 22),
        ([body(INSERT)[:-1] + b"\x01"], 22),
        ([body(INSERT)[:-1]], 22),
    ],
)
def test_faults_that_get_a_reply(sections: list[bytes], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        parsed(op_msg_bytes(*sections))
    assert caught.value.code == code


def test_checksum_flag_without_room_for_one() -> None:
    with pytest.raises(CommandError) as caught:
        parsed(op_msg_bytes(flags=op_msg.CHECKSUM_PRESENT))
    assert caught.value.code == 51252


@pytest.mark.parametrize("summed", [False, True])
def test_a_request_without_an_answer_can_be_asked_with_one(summed: bool) -> None:
    raw = op_msg_bytes(body(INSERT), flags=op_msg.MORE_TO_COME | op_msg.EXHAUST_ALLOWED)
    asking = op_msg.asking_for_reply(with_checksum(raw) if summed else raw)
    assert asking == op_msg_bytes(body(INSERT))


@pytest.mark.parametrize("size", [100, 256 * 1024, 256 * 1024 + 1, 3_000_000])
def test_large_documents_are_copied_with_rests(size: int) -> None:
    """So that other threads do not wait for all of it."""
    document = bson.encode({"insert": "c", "padding": "x" * size, "$db": "db"})
    plain = Message.from_bytes(op_msg.build(1, 0, document))
    with_sequence = Message.from_bytes(op_msg.build(2, 0, document, [("documents", [document, document])]))
    rested: list[None] = []
    for message in (plain, with_sequence):
        op_msg.prepare(message, lambda: rested.append(None))
    assert op_msg.parse(plain).body == document
    parsed = op_msg.parse(with_sequence)
    assert (parsed.body, parsed.sequences) == (document, (("documents", (document, document)),))
    assert len(rested) >= 4 * (size // (256 * 1024))


def test_what_is_certainly_no_insert_shows_in_the_first_bytes() -> None:
    find, insert = (op_msg.build(1, 0, bson.encode({name: "c", "$db": "d"})) for name in ("find", "insert"))
    insert_of_all = op_msg.build(1, 0, bson.encode({"insertion": "c", "$db": "d"}))
    sequence_first = op_msg_bytes(sequence("documents", {"a": 1}), body(INSERT))
    compressed = find[:12] + (2012).to_bytes(4, "little") + find[16:]
    assert op_msg.is_no_insert(find)
    assert op_msg.is_no_insert(insert_of_all)
    for other in (insert, sequence_first, compressed, find[:20], b""):
        assert not op_msg.is_no_insert(other)
