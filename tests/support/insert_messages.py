"""Inserts as drivers send them, and what recognises them."""

from __future__ import annotations

import struct

import bson

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.inserts.insert_command import parse_insert
from proxy.inserts.insert_templates import InsertTemplates
from proxy.request.command import parse_command
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


def retryable(number: int, *, documents: tuple[bytes, ...] = DOCUMENTS[:1], **more: object) -> bytes:
    session = {"id": bson.Binary(b"s" * 16, 4)}
    body = {"insert": "x", "ordered": True, "txnNumber": bson.Int64(number), "lsid": session, **more, "$db": "d"}
    return message(*documents, body=body)


def remembering(raw: bytes, limit_bytes: int = 100_000) -> InsertTemplates:
    command = parse_command(Message.from_bytes(raw))
    insert = parse_insert(command, retryable_writes=True)
    assert insert is not None
    inserts = InsertTemplates(limit_bytes)
    inserts.remember(command, insert, COLLECTION, ("insert",))
    return inserts


class Meter:
    def __init__(self) -> None:
        self.counted: list[bool] = []

    def done(self, seconds: float, *, failed: bool = False) -> None:
        self.counted.append(failed)
