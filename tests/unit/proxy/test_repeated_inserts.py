"""An insert whose body is known is recognised, and only when the whole message is sound."""

from __future__ import annotations

import struct

import bson
import pytest

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.command import parse_command
from proxy.insert_command import parse_insert
from proxy.repeated_inserts import RepeatedInserts
from proxy.wire.message import Message

COLLECTION = VirtualCollection(Namespace("d", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
DOCUMENTS = tuple(bson.encode({"t": bson.DatetimeMS(second), "v": second}) for second in range(3))


def message(
    *documents: bytes, body: dict[str, object] | None = None, flags: int = 0, identifier: bytes = b"documents"
) -> bytes:
    encoded = bson.encode(body or {"insert": "x", "ordered": True, "$db": "d"})
    sequence = identifier + b"\0" + b"".join(documents)
    sections = b"\0" + encoded + b"\1" + struct.pack("<i", 4 + len(sequence)) + sequence
    return struct.pack("<iiiiI", 20 + len(sections), 7, 0, 2013, flags) + sections


def remembering(raw: bytes, limit: int = 100) -> RepeatedInserts:
    command = parse_command(Message.from_bytes(raw))
    insert = parse_insert(command, retryable_writes=True)
    assert insert is not None
    inserts = RepeatedInserts(limit)
    inserts.remember(command, insert, COLLECTION, ("insert",))
    return inserts


@pytest.mark.parametrize("count", [1, 2, 3])
def test_same_body_with_other_documents_is_recognised(count: int) -> None:
    inserts = remembering(message(DOCUMENTS[2]))
    found = inserts.find(message(*DOCUMENTS[:count]))
    assert found is not None
    repeated, documents = found
    assert tuple(documents) == DOCUMENTS[:count]
    assert repeated.collection is COLLECTION
    assert repeated.insert.ordered
    assert repeated.actions == ("insert",)


@pytest.mark.parametrize(
    "raw",
    [
        message(DOCUMENTS[0], body={"insert": "y", "ordered": True, "$db": "d"}),
        message(DOCUMENTS[0], flags=2),
        message(DOCUMENTS[0], identifier=b"documentz"),
        message(),
        message(DOCUMENTS[0] + b"\0"),
        message(DOCUMENTS[0][:-1]),
        message(b"\x01\0\0\0\0"),
        message(DOCUMENTS[0])[:60],
        message(DOCUMENTS[0])[:20],
        message(DOCUMENTS[0]) + message(DOCUMENTS[0])[20:],
    ],
    ids=["other", "flags", "name", "none", "longer", "shorter", "tiny", "cut", "head", "twice"],
)
def test_anything_else_takes_the_ordinary_way(raw: bytes) -> None:
    assert remembering(message(DOCUMENTS[0])).find(raw) is None


def test_every_cut_of_a_message_is_harmless() -> None:
    raw = message(*DOCUMENTS)
    inserts = remembering(raw)
    for size in range(len(raw)):
        assert inserts.find(raw[:size]) is None


def test_retryable_writes_and_unanswered_ones_are_not_remembered() -> None:
    body = {"insert": "x", "lsid": {"id": bson.Binary(b"s" * 16, 4)}, "txnNumber": bson.Int64(1), "$db": "d"}
    raw = message(DOCUMENTS[0], body=body)
    assert remembering(raw).find(raw) is None
    raw = message(DOCUMENTS[0], flags=2)
    assert remembering(raw).find(message(DOCUMENTS[0])) is None


def test_memory_is_bounded() -> None:
    inserts = remembering(message(DOCUMENTS[0]), limit=1)
    other = message(DOCUMENTS[0], body={"insert": "x", "comment": 1, "$db": "d"})
    command = parse_command(Message.from_bytes(other))
    insert = parse_insert(command, retryable_writes=True)
    assert insert is not None
    inserts.remember(command, insert, COLLECTION, ())
    assert inserts.find(message(DOCUMENTS[0])) is None
    assert inserts.find(other) is not None
