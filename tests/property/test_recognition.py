"""Whatever is recognised means what it means when it is parsed: bodies that are made to deceive.

Each is compared with the same message where nothing is remembered of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import bson
import pytest
from bson import Binary, Int64, Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import CommandError
from proxy.inserts.insert_command import InsertCommand
from proxy.relay.plain_relay import plain_relay
from proxy.request import router
from proxy.request.command import parse_command
from proxy.request.recognition import body_end, head_of
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from tests.support.inline_reads import Reads, cursor_reply
from tests.support.insert_messages import COLLECTION, DOCUMENTS, Inserting
from tests.support.raw_wire import command, op_msg_bytes
from tests.support.recognising import Recognising
from tests.support.scopes import TARGET

REFUSED = (CommandError, ProtocolError)
MARKERS = (
    b"\x03lsid\0\x1e\0\0\0\x05id\0\x10\0\0\0\x04",
    b"\x12txnNumber\0",
    b"\x03$clusterTime\0\x58\0\0\0\x11clusterTime\0",
    b"\x12getMore\0",
    b"\x02$db\0\x02\0\0\0d\0",
    b"\x02$db\0",
)


def session_id(number: int) -> dict[str, Any]:
    return {"id": Binary(bytes([number]) * 16, 4)}


def cluster_time(number: int) -> dict[str, Any]:
    signature = {"hash": bytes([number]) * 20, "keyId": Int64(7)}
    return {"clusterTime": Timestamp(number, number), "signature": signature}


text = st.lists(st.sampled_from([each.decode("latin-1") for each in MARKERS] + ["0123456789abcdef", "x", "d"])).map(
    "".join
)
odd = st.one_of(
    text,
    text.map(str.encode),
    st.fixed_dictionaries({}, optional={"lsid": st.integers(0, 9).map(session_id), "txnNumber": st.just(Int64(5))}),
    st.fixed_dictionaries({"$clusterTime": st.integers(0, 9).map(cluster_time), "$db": st.sampled_from("de")}),
    st.lists(st.integers(0, 9).map(session_id), max_size=2),
)
numbers = st.integers(0, 5)
session_fields = st.fixed_dictionaries(
    {},
    optional={
        "lsid": st.one_of(
            numbers.map(session_id), st.just({"id": 5}), numbers.map(lambda n: {**session_id(n), "x": 1})
        ),
        "txnNumber": st.one_of(numbers.map(Int64), st.just(5), st.just(Int64(-1))),
        "$clusterTime": st.one_of(
            numbers.map(cluster_time),
            numbers.map(lambda n: {"clusterTime": Timestamp(n, n)}),
            numbers.map(lambda n: {**cluster_time(n), "more": n}),
            st.just({"clusterTime": 5}),
        ),
        "comment": odd,
    },
)


@st.composite
def bodies(draw: st.DrawFn, first: Mapping[str, Any], more: Mapping[str, Any], databases: str = "d") -> bytes:
    """A command with these fields in any order behind the first one, and one of them perhaps twice."""
    fields = {**more, **draw(session_fields), "$db": draw(st.sampled_from(databases))}
    names = draw(st.permutations(list(fields)))
    elements = [bson.encode(first)[4:-1], *(bson.encode({name: fields[name]})[4:-1] for name in names)]
    if draw(st.booleans()):
        name = draw(st.sampled_from(names))
        again = {**fields, **draw(session_fields)}
        elements.insert(draw(st.integers(1, len(elements))), bson.encode({name: again[name]})[4:-1])
    whole = b"".join(elements)
    return (len(whole) + 5).to_bytes(4, "little") + whole + b"\0"


@dataclass
class Inserted:
    """What becomes of an insert: what the catalog is told, or nothing where others have to see to it."""

    insert: InsertCommand | None


def as_parsed(raw: bytes) -> Inserted:
    inserting = Inserting()
    try:
        if parse_command(Message.from_bytes(raw)).namespace != COLLECTION.namespace or not inserting.learn(raw):
            return Inserted(None)
    except REFUSED:
        return Inserted(None)
    (submitted,) = inserting.submitted
    return Inserted(submitted.template.command(submitted.documents, submitted.session, submitted.txn_number))


def insert(body: bytes) -> bytes:
    documents = b"documents\0" + DOCUMENTS[0]
    return op_msg_bytes(b"\0" + body, b"\1" + (4 + len(documents)).to_bytes(4, "little") + documents)


def check_inserts(known: bytes, others: Iterator[bytes]) -> int:
    """How many of the others are recognised; each of them is what it would be if it was parsed."""
    inserting, count = Inserting(limit_bytes=1 << 20), 0
    if as_parsed(known) == Inserted(None):
        return 0
    inserting.learn(known)
    for raw in others:
        found = inserting.find(raw)
        if found is not None:
            count += 1
            assert Inserted(found.template.command(found.documents, found.session, found.txn_number)) == as_parsed(raw)
    return count


INSERT = bodies({"insert": "x"}, {"ordered": True})


@settings(max_examples=300, deadline=None)
@given(known=INSERT, others=st.lists(INSERT, min_size=1, max_size=4))
def test_insert_that_is_recognised_is_what_it_is_when_parsed(known: bytes, others: list[bytes]) -> None:
    assert check_inserts(insert(known), map(insert, (known, *others))) <= 1 + len(others)


LOOKS_SO: dict[str, Any] = {
    "comment": {"lsid": session_id(2), "txnNumber": Int64(2), "$clusterTime": cluster_time(2), "s": "".join(
        each.decode("latin-1") for each in MARKERS
    )}
}  # fmt: skip
CHANGES: dict[str, Any] = {"lsid": session_id(1), "txnNumber": Int64(1), "$clusterTime": cluster_time(1)}
CHANGING_BYTES = 16 + 8 + 8 + 20


def changed(raw: bytes) -> Iterator[bytes]:
    """The same with one byte changed, each byte in some ways."""
    for at in range(16, len(raw)):
        for bit in (0x01, 0x02, 0x10, 0x80, 0xFF):
            yield raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]


@pytest.mark.parametrize("fields", [{**LOOKS_SO, **CHANGES}, {**CHANGES, **LOOKS_SO}], ids=["before", "behind"])
def test_insert_with_any_byte_changed(fields: dict[str, Any]) -> None:
    """Recognised are those with another session, number or time, and those with other documents."""
    raw = insert(bson.encode({"insert": "x", "ordered": True, **fields, "$db": "d"}))
    assert check_inserts(raw, iter([raw])) == 1
    at = len(raw) - len(DOCUMENTS[0]) + 4
    recognised = check_inserts(raw, (each for each in changed(raw) if each[at:] == raw[at:]))
    assert recognised == 5 * CHANGING_BYTES


READ: dict[str, Any] = {
    "find": "x", "filter": {"m": {"lsid": session_id(3)}}, "lsid": session_id(1), "$clusterTime": cluster_time(1),
    "$db": "db",
}  # fmt: skip
MORE: dict[str, Any] = {"getMore": Int64(9), "collection": "x", "lsid": session_id(1), "$db": "db"}


def open_reads() -> Reads:
    reads = Reads()
    for cursor_id in (9, 8, 11):
        reads.cursors.opened(cursor_id, TARGET.buckets)
    return reads


def as_asked(raw: bytes) -> list[dict[str, Any]]:
    """What is sent for a read of which nothing is known."""
    reads = open_reads()
    try:
        asked = parse_command(Message.from_bytes(raw)).namespace
    except REFUSED:
        return []
    return reads.sent if asked.database == "db" and asked.collection in ("", "x") and reads.start(raw) else []


def check_reads(known: bytes, others: Iterator[bytes]) -> int:
    reads, count = open_reads(), 0
    batch = "nextBatch" if b"getMore" in known else "firstBatch"
    for _ in range(2):
        if as_asked(known) == [] or not reads.start(known):
            return 0
        reads.answer(cursor_reply(9, batch))
    for raw in others:
        reads.transport.written.clear()
        if reads.recognises(raw) is not None:
            count += 1
            assert reads.sent == as_asked(raw) != []
            reads.answer(cursor_reply(9, batch))
    return count


@settings(max_examples=150, deadline=None)
@given(data=st.data(), is_more=st.booleans())
def test_read_that_is_recognised_is_sent_as_when_parsed(data: st.DataObject, is_more: bool) -> None:
    one = bodies({"getMore": Int64(9)}, {"collection": "x"}, "db") if is_more else bodies({"find": "x"}, {}, "db")
    named = one.map(lambda body: bson.encode(bson.decode(body) | {"$db": "db"}))
    known, *others = (command(bson.decode(each)) for each in data.draw(st.lists(named, min_size=2, max_size=5)))
    check_reads(known, iter([known, *others]))


@pytest.mark.parametrize(
    ("document", "changing"), [(READ, 16 + 8 + 20), (MORE, 16)], ids=["question", "more of a cursor"]
)
def test_read_with_any_byte_changed(document: dict[str, Any], changing: int) -> None:
    """Of another cursor there is more as well, where it is known."""
    raw = command(document)
    assert check_reads(raw, iter([raw])) == 1
    # 9 ^ 1 and 9 ^ 2 are cursors.
    assert check_reads(raw, changed(raw)) == 5 * changing + (2 if "getMore" in document else 0)


class Relayed(Recognising):
    """Commands on ordinary collections."""

    def learn(self, raw: bytes) -> bool:
        try:
            parsed = parse_command(Message.from_bytes(raw))
        except REFUSED:
            return False
        self.remember(raw, router.RELAY, plain_relay(parsed, router.RELAY, has_members=False))
        return True


@settings(max_examples=300, deadline=None)
@given(
    known=bodies({"find": "x"}, {"filter": {"a": 1}}, "de"),
    others=st.lists(bodies({"find": "x"}, {}, "de"), min_size=1, max_size=4),
)
def test_command_that_is_relayed_is_about_the_collection_that_is_known(known: bytes, others: list[bytes]) -> None:
    """Whatever else is wrong with it the backend says; but no other collection is taken for this one."""
    rooms = Relayed()
    rooms.learn(op_msg_bytes(b"\0" + known))
    for body in (known, *others):
        raw = op_msg_bytes(b"\0" + body)
        if rooms.recognises(raw) is not None:
            assert rooms.transport.written == [raw]
            rooms.transport.written.clear()
            rooms.answer({"ok": 1})
            assert parse_command(Message.from_bytes(raw)).namespace == parse_command(
                Message.from_bytes(op_msg_bytes(b"\0" + known))
            ).namespace  # fmt: skip


def test_command_with_any_byte_changed_is_about_the_collection_that_is_known() -> None:
    usual = command({"find": "x", "filter": {"$db": 5}, "lsid": session_id(1), "$db": "d"})
    rooms = Relayed()
    assert rooms.learn(usual)
    known = head_of(usual, body_end(usual))
    for raw in changed(usual):
        if rooms.recognises(raw) is not None:
            rooms.answer({"ok": 1})
            assert head_of(raw, body_end(raw)) == known
            try:
                parsed = parse_command(Message.from_bytes(raw))
            except REFUSED:
                continue
            assert (parsed.name, parsed.namespace) == ("find", ("d", "x"))
