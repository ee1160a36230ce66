"""What has the same key, what looks so, and what is bounded. What is done for it is tested where shortcuts are made."""

from __future__ import annotations

import struct
from typing import Any

import bson
import pytest
from bson import Binary, Int64, Timestamp

from proxy.relay.plain_relay import PlainRelay
from proxy.request import router
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.request.recognition import (
    FORMS_OF_A_LENGTH,
    LONGEST_BODY_BYTES,
    LONGEST_BYTES,
    LONGEST_HEAD_BYTES,
    MOST_FORMS,
    Form,
    Recognised,
    Value,
    body_end,
    cuts_of,
    head_of,
)
from proxy.wire.message import Message
from tests.support.raw_wire import body, command, op_msg_bytes, query, sequence, with_checksum
from tests.support.recognising import Recognising

MARKED = "\x03lsid\0\x1e\0\0\0\x05id\0\x10\0\0\0\x04 0123456789abcdef\x12txnNumber\0 01234567\x02$dc\0\x02\0\0\0x\0"
"""Text that has the bytes of a session's id, of a number and (nearly) of a database in it."""


def lsid(number: int) -> dict[str, Any]:
    return {"id": Binary(bytes([number]) * 16, 4)}


def time(number: int, **more: Any) -> dict[str, Any]:
    signature = {"hash": bytes([number]) * 20, "keyId": Int64(7)}
    return {"clusterTime": Timestamp(number, number), "signature": signature, **more}


def key(document: dict[str, Any] | bytes) -> tuple[Form, bytes]:
    raw = op_msg_bytes(body(document))
    parsed = parse_command(Message.from_bytes(raw))
    form = Form(cuts_of(parsed.body, parsed.fields))
    return form, form.key(raw, body_end(raw))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    (first, first_key), (second, second_key) = key(one), key(other)
    return first.cuts == second.cuts and first_key == second_key


USUAL: dict[str, Any] = {
    "insert": "c", "ordered": True, "lsid": lsid(1), "txnNumber": Int64(1), "$clusterTime": time(1), "$db": "d"
}  # fmt: skip


def test_session_number_and_time_are_not_part_of_the_key() -> None:
    assert same(USUAL, {**USUAL, "lsid": lsid(2), "txnNumber": Int64(-9), "$clusterTime": time(3)})
    assert same({"getMore": Int64(1), "$db": "d"}, {"getMore": Int64(1 << 60), "$db": "d"})


@pytest.mark.parametrize(
    "other",
    [
        {**USUAL, "insert": "e"},
        {**USUAL, "$db": "e"},
        {**USUAL, "lsid": {"id": Binary(bytes(16), 3)}},
        {**USUAL, "lsid": {"ie": Binary(bytes(16), 4)}},
        {**USUAL, "lsid": {**lsid(1), "uid": b"x"}},
        {**USUAL, "txnNumber": 1.0},
        {**USUAL, "$clusterTime": {**time(1), "more": 1}},
        {**USUAL, "$clusterTime": {"signature": time(1)["signature"], "clusterTime": Timestamp(1, 1)}},
        {**USUAL, "$clusterTime": {"clusterTime": Int64(5), "signature": time(1)["signature"]}},
        {"insert": "c", "ordered": True, "txnNumber": Int64(1), "lsid": lsid(1), "$clusterTime": time(1), "$db": "d"},
        {"insert": "c", "ordered": True, "lsid": lsid(1), "$clusterTime": time(1), "txnNumber": Int64(1), "$db": "d"},
        {"insert": "c", "ordered": True, "$db": "d", "lsid": lsid(1), "txnNumber": Int64(1), "$clusterTime": time(1)},
    ],
    ids=str,
)
def test_everything_else_is(other: dict[str, Any]) -> None:
    assert not same(USUAL, other)


@pytest.mark.parametrize(
    "inside",
    [
        {"comment": MARKED},
        {"comment": {"lsid": lsid(5), "txnNumber": Int64(5), "$clusterTime": time(5)}},
        {"comment": [{"lsid": lsid(5)}]},
        {"comment": bson.encode({"lsid": lsid(5)})},
        {"getMore": Int64(5)},
    ],
    ids=["text", "document", "array", "bytes", "cursor"],
)
def test_what_looks_like_such_values_inside_of_others_stays(inside: dict[str, Any]) -> None:
    for document in ({"insert": "c", **inside, **USUAL}, {**USUAL, **inside}):
        form, kept = key(document)
        raw = bson.encode(document)
        assert b"".join(raw[start:end] for start, end, _ in form.cuts) == b"".join(
            (
                bytes([1]) * 16,
                bson.encode({"": Int64(1)})[6:-1],
                bson.encode({"": Timestamp(1, 1)})[6:-1],
                bytes([1]) * 20,
            )
        )
        assert len(kept) == len(raw) - 16 - 8 - 8 - 20


def test_of_a_name_that_stands_twice_the_first_counts_and_the_other_stays() -> None:
    """As for the server."""
    document = bson.encode({**USUAL, "lsie": lsid(9)}).replace(b"lsie", b"lsid")
    form, kept = key(document)
    assert bytes([9]) * 16 in kept
    assert bytes([1]) * 16 not in kept
    assert form.cuts == key(bson.encode({**USUAL, "lsie": lsid(9)}))[0].cuts


@pytest.mark.parametrize("size", range(6))
def test_time_that_is_cut_short_stays(size: int) -> None:
    short = {"clusterTime": Timestamp(1, 1)}
    document = bson.encode({"ping": 1, "$clusterTime": short, "$db": "d"})
    at = document.index(b"$clusterTime\0") + 13
    inside = document[at + 4 : at + 4 + 13] + bytes(size)
    raw = document[:at] + struct.pack("<i", 5 + len(inside)) + inside + b"\0" + document[at + len(bson.encode(short)) :]
    form, kept = key(struct.pack("<i", len(raw)) + raw[4:])
    assert form.cuts == ()
    assert kept == struct.pack("<i", len(raw)) + raw[4:]


@pytest.mark.parametrize(
    ("document", "values"),
    [
        ({"ping": 1, "$db": "d"}, []),
        ({"ping": 1, "lsid": lsid(1), "$db": "d"}, [Value.SESSION]),
        ({"ping": 1, "$clusterTime": time(1), "lsid": lsid(1), "$db": "d"}, [Value.TIME, Value.HASH, Value.SESSION]),
        ({"ping": 1, "$clusterTime": {"clusterTime": Timestamp(1, 1)}, "$db": "d"}, [Value.TIME]),
        (USUAL, [Value.SESSION, Value.NUMBER, Value.TIME, Value.HASH]),
        (
            {"getMore": Int64(1), "collection": "c", **{name: USUAL[name] for name in list(USUAL)[2:]}},
            [Value.CURSOR, Value.SESSION, Value.NUMBER, Value.TIME, Value.HASH],
        ),
    ],
    ids=str,
)
def test_pieces_and_values_are_the_whole(document: dict[str, Any], values: list[Value]) -> None:
    form, kept = key(document)
    raw, encoded = command(document), bson.encode(document)
    assert [value for _, _, value in form.cuts] == values
    edges = [0, *(edge for start, end, _ in form.cuts for edge in (start, end)), len(encoded)]
    pieces = tuple(encoded[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    assert kept == b"".join(pieces)
    assert form.filled(raw, pieces) == encoded


FIND: dict[str, Any] = {"find": "c", "filter": {"a": 1}, "$db": "d"}


def head(document: dict[str, Any] | bytes) -> bytes | None:
    raw = op_msg_bytes(body(document))
    return head_of(raw, body_end(raw))


def test_head_is_the_first_element_and_the_database_wherever_it_stands() -> None:
    expected = head(FIND)
    assert expected is not None
    for document in (
        {"find": "c", "$db": "d", "filter": {"b": 2}},
        {"find": "c", "filter": {"comment": MARKED}, "$db": "d", "limit": 5},
        {"find": "c", "$db": "d"},
    ):
        assert head(document) == expected


REAL = b"\x02$db\0\x02\0\0\0d\0"


@pytest.mark.parametrize(
    "document",
    [
        {"find": 1, "$db": "d"},
        {"find": "c"},
        {"find": "c", "$db": 5},
        {"find": "c", "filter": {"$db": "d"}, "$db": "d"},
        {"find": "c", "$db": "d", "filter": {"$db": "d"}},
        {"find": "c", "comment": REAL.decode("latin-1"), "$db": "d"},
        {"find": "c" * LONGEST_HEAD_BYTES, "$db": "d"},
        {"find": "c", "$db": "d" * LONGEST_HEAD_BYTES},
        {"f" * LONGEST_HEAD_BYTES: "c", "$db": "d"},
        {"find": "c", "filter": {"a": "x" * LONGEST_BYTES}, "$db": "d"},
    ],
    ids=lambda document: str(document)[:60],
)
def test_what_has_no_head(document: dict[str, Any]) -> None:
    assert head(document) is None


@pytest.mark.parametrize("claimed", [-1, -(1 << 31), 0, 1, 3, 1 << 20, (1 << 31) - 1])
def test_wrong_lengths_make_another_head_or_none(claimed: int) -> None:
    usual = head(FIND)
    for old in (b"find\0\x02\0\0\0", b"$db\0\x02\0\0\0"):
        raw = bson.encode(FIND).replace(old, old[:-4] + struct.pack("<i", claimed))
        message = op_msg_bytes(body(raw))
        assert head_of(message, body_end(message)) != usual


def test_database_that_claims_to_reach_to_the_end_hides_no_other() -> None:
    """The bytes of the other one are in the key then."""
    tail = b"\x02$db\0\x02\0\0\0e\0"
    inner = b"\x02$db\0" + struct.pack("<i", 2 + len(tail)) + b"d\0"
    document = {"find": "c", "comment": "x" * len(inner)}
    raw = bson.encode(document).replace(b"x" * len(inner), inner)[:-2]
    raw = struct.pack("<i", len(raw) + len(tail) + 2) + raw[4:] + b"\0" + tail + b"\0"
    found = head(raw)
    assert found is None or tail in found


def test_every_cut_of_a_message_is_harmless() -> None:
    for whole in (command(USUAL), command(FIND)):
        for size in range(16, len(whole)):
            raw = whole[:size]
            end = body_end(raw)
            assert end == 0 or size == len(whole)


@pytest.mark.parametrize("size", [-1, 0, 4, 1 << 30])
def test_body_of_an_impossible_length_has_no_end(size: int) -> None:
    raw = command(FIND)
    assert body_end(raw[:21] + struct.pack("<i", size) + raw[25:]) == 0


class Rooms(Recognising):
    """Whatever is recognised is relayed."""

    def learn(self, document: dict[str, Any], *, by_head: bool = False) -> None:
        self.remember(command(document), router.RELAY, PlainRelay((), by_head=by_head))

    def start(self, raw: bytes) -> Exchange | None:
        found = self.recognises(raw)
        if found is not None:
            self.answer({"ok": 1})
        return found


@pytest.mark.parametrize("by_head", [True, False])
def test_messages_that_are_particular_are_not_recognised(by_head: bool) -> None:
    rooms = Rooms()
    rooms.learn(FIND, by_head=by_head)
    usual = command(FIND)
    assert rooms.start(usual) is not None
    for raw in (
        with_checksum(usual),
        command(FIND, flags=2),
        command(FIND, flags=1 << 16),
        op_msg_bytes(sequence("documents", {}), body(FIND)),
    ):
        assert rooms.start(raw) is None
    prepared = rooms.exchange(usual)
    prepared.message.parts = object()
    assert not rooms.recogniser.start(prepared)


def test_whole_body_is_sought_before_its_head() -> None:
    """A command on a collection that was an ordinary one once."""
    rooms = Rooms()
    rooms.learn(FIND, by_head=True)
    rooms.learn(FIND)
    exchange = rooms.start(command(FIND))
    assert exchange is not None
    rooms.found = router.UNRESOLVED
    assert rooms.start(command(FIND)) is None


def test_what_is_not_remembered() -> None:
    rooms = Rooms()
    for raw in (with_checksum(command(FIND)), command(FIND, flags=1 << 16), query(FIND)):
        message = Message.from_bytes(raw)
        if message.opcode == 2013:
            rooms.remember(raw, router.RELAY, PlainRelay((), by_head=False))
    rooms.learn({**FIND, "comment": "x" * LONGEST_BODY_BYTES})
    rooms.found = router.UNRESOLVED
    rooms.learn(FIND)
    rooms.found = None
    rooms.remember(command(FIND), router.RELAY, None)
    assert len(rooms.memory) == 0
    # Each of these differs from all others, so remembering them would only remove what is useful.
    traced = {**FIND, "comment": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
    rooms.learn(traced)
    assert len(rooms.memory) == 0
    rooms.learn(traced, by_head=True)
    assert len(rooms.memory) == 1
    members = Rooms(has_members=True)
    members.learn({**FIND, "$readPreference": {"mode": "secondary"}})
    assert len(members.memory) == 0


def test_bodies_of_one_length_may_have_several_forms() -> None:
    rooms = Rooms()
    documents = [
        {
            "ping": 1,
            **dict(sorted({"lsid": lsid(1), "txnNumber": Int64(1), name: 1}.items(), reverse=up)),
            "$db": "d",
        }
        for name in ("a", "o", "z")
        for up in (True, False)
    ]
    assert len({len(command(document)) for document in documents}) == 1
    for document in documents[:FORMS_OF_A_LENGTH]:
        rooms.learn(document)
    for document in documents[:FORMS_OF_A_LENGTH]:
        other = {name: lsid(2) if name == "lsid" else value for name, value in document.items()}
        assert rooms.start(command(other)) is not None
    for document in documents[FORMS_OF_A_LENGTH:]:
        assert rooms.start(command(document)) is None
        rooms.learn(document)
        assert rooms.start(command(document)) is not None


def test_forms_are_bounded() -> None:
    rooms = Rooms(limit_bytes=100_000)
    first: dict[str, Any] = {"ping": 1, "$db": "d"}
    rooms.learn(first)
    for size in range(MOST_FORMS):
        rooms.learn({"ping": 1, "comment": "x" * size, "$db": "d"})
    last: dict[str, Any] = {"ping": 1, "comment": "x" * (MOST_FORMS - 1), "$db": "d"}
    assert rooms.start(command(last)) is not None
    assert rooms.start(command(first)) is None
    rooms.learn(first)
    assert rooms.start(command(first)) is not None


def test_what_weighs_is_the_key_and_what_is_done() -> None:
    rooms = Rooms()
    rooms.learn(FIND)
    small = rooms.memory.size_bytes
    rooms.learn({**FIND, "comment": "x" * 1000})
    assert rooms.memory.size_bytes > 2 * small + 1000
    ((_, known), _) = rooms.memory.items()
    assert isinstance(known, Recognised)
    assert known.weight_bytes == known.shortcut.weight_bytes
