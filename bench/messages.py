"""Messages encoded beforehand, with the places that the load generator patches.

A template is built from a document that holds marks instead of values; after encoding, each mark is looked up in
the bytes. So nobody has to count offsets, and a document that changes needs no change here.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import bson
from bson import Int64, ObjectId
from bson.binary import Binary, UuidRepresentation

OP_MSG = 2013
HEADER_BYTES = 16
SESSION_MARK = b"\x5esession-mark!!\x5e"
CURSOR_MARK = Int64(0x5E5E_1234_5678_5E5E)

ID = ObjectId(b"\x5eid-mark!!!\x5e")
TIME = dt.datetime(2345, 6, 7, 8, 9, 10, 123000, tzinfo=dt.UTC)
INT32 = 0x5E5D5C5B


class Digits(str):
    """A string that ends with the series' number, in ``width`` decimal digits (four or more)."""

    __slots__ = ()

    def __new__(cls, prefix: str = "", width: int = 7) -> Self:
        """``prefix`` stays as it is."""
        return super().__new__(cls, prefix + "\x1e" * width)


@dataclass(frozen=True, slots=True)
class Value:
    """A double that differs from measurement to measurement: a whole number or one decimal."""

    kind: str = "whole"


@dataclass(frozen=True, slots=True)
class Template:
    """A message and where in it the generator writes; offsets in bytes."""

    message: bytes
    documents: int = 1
    document_offset: int = 0
    document_length: int = 0
    patches: tuple[str, ...] = ()
    session_offset: int = 0


@dataclass(frozen=True, slots=True)
class DocumentShape:
    """A document with marks, and what its time and meta fields are called."""

    name: str
    fields: Mapping[str, Any]
    time_field: str = ""
    meta_field: str = ""


def _marked(value: Any, values: list[tuple[float, str]]) -> Any:
    if isinstance(value, Mapping):
        return {name: _marked(part, values) for name, part in value.items()}
    if isinstance(value, Value):
        mark = -1.2345678e300 - len(values) * 1e295
        values.append((mark, value.kind))
        return mark
    return str(value) if isinstance(value, Digits) else value


def _find(raw: bytes, mark: bytes, what: str) -> int:
    offset = raw.find(mark)
    if offset < 0 or raw.find(mark, offset + 1) >= 0:
        raise ValueError(f"the mark of {what} is not in the document exactly once")
    return offset


def encode_marked(document: Mapping[str, Any]) -> tuple[bytes, tuple[str, ...]]:
    """The document's bytes and its patches as the generator's ``--patch`` options."""
    values: list[tuple[float, str]] = []
    raw = bson.encode(_marked(document, values))
    patches = []
    if ID.binary in raw:
        patches.append(f"id:{_find(raw, ID.binary, 'the id')}")
    time_mark = bson.encode({"t": TIME})[7:15]
    if time_mark in raw:
        patches.append(f"time:{_find(raw, time_mark, 'the time')}")
    number_mark = struct.pack("<i", INT32)
    if number_mark in raw:
        patches.append(f"int32:{_find(raw, number_mark, 'the number')}")
    # Four or more: a single one may be a length.
    patches.extend(f"digits:{run.start()}:{len(run[0])}" for run in re.finditer(rb"\x1e{4,}", raw))
    patches.extend(f"{kind}:{_find(raw, struct.pack('<d', mark), 'a value')}" for mark, kind in values)
    return raw, tuple(patches)


def op_msg(body: bytes, identifier: str = "", documents: bytes = b"") -> bytes:
    """One OP_MSG; ``documents`` are encoded documents one after the other, sent as a document sequence."""
    sections = b"\0" + body
    if identifier:
        name = identifier.encode() + b"\0"
        sections += b"\x01" + struct.pack("<i", 4 + len(name) + len(documents)) + name + documents
    return struct.pack("<iiiiI", HEADER_BYTES + 4 + len(sections), 0, 0, OP_MSG, 0) + sections


def command_body(command: Mapping[str, Any], database: str) -> bytes:
    """The command with what drivers add: the session and the database."""
    session = {"id": Binary(SESSION_MARK, 4)}
    return bson.encode({**command, "lsid": session, "$db": database}, codec_options=_OPTIONS)


_OPTIONS: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def insert_template(
    database: str, collection: str, shape: DocumentShape, documents: int, *, ordered: bool = True
) -> Template:
    """An ``insert`` of ``documents`` such documents, as PyMongo sends it."""
    raw, patches = encode_marked(shape.fields)
    body = command_body({"insert": collection, "ordered": ordered}, database)
    message = op_msg(body, "documents", raw * documents)
    session = _find(message, SESSION_MARK, "the session")
    return Template(message, documents, len(message) - len(raw) * documents, len(raw), patches, session)


def command_template(database: str, command: Mapping[str, Any]) -> Template:
    """Any command; marks in it are patched too."""
    body = command_body(command, database)
    _, patches = encode_marked(command)
    # The marks lie at the same places of the body, which only has more fields at its end.
    message = op_msg(body)
    offset = HEADER_BYTES + 5
    return Template(message, 1, offset, len(body), patches, _find(message, SESSION_MARK, "the session"))


def get_more_template(database: str, collection: str, batch_size: int | None = None) -> tuple[Template, int]:
    """A ``getMore`` and the offset of its cursor id."""
    command: dict[str, Any] = {"getMore": CURSOR_MARK, "collection": collection}
    if batch_size is not None:
        command["batchSize"] = batch_size
    template = command_template(database, command)
    return template, _find(template.message, struct.pack("<q", CURSOR_MARK), "the cursor")


def hello_message() -> bytes:
    """What opens a connection."""
    client = {"application": {"name": "bench"}, "driver": {"name": "loadgen", "version": "1"}, "os": {"type": "Linux"}}
    return op_msg(bson.encode({"hello": 1, "helloOk": True, "client": client, "$db": "admin"}))


def find_marks(shapes: Sequence[DocumentShape]) -> dict[str, tuple[str, ...]]:
    """The patches of each shape by name; for tests."""
    return {shape.name: encode_marked(shape.fields)[1] for shape in shapes}
