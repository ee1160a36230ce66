"""Operands of every BSON type, as raw element values, and the predicates that they stand in."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Final

import bson
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from catalog.bson.raw import document, element, string_value, sub_array


def value_of(value: object) -> bytes:
    """The element value of what PyMongo can encode."""
    raw = bson.encode({"v": value})
    return raw[4:5] + raw[7:-1]


def object_of(fields: Mapping[str, bytes]) -> bytes:
    """The element value of a document of element values."""
    return b"\x03" + document(element(name.encode(), value) for name, value in fields.items())


def array_of(*values: bytes) -> bytes:
    """The element value of an array."""
    return sub_array(b"", values)[:1] + sub_array(b"", values)[2:]


def _typed_text(kind: int, text: bytes) -> bytes:
    return bytes([kind]) + string_value(text)[1:]


def _code_with_scope(scope: bytes) -> bytes:
    text = string_value(b"f()")[1:]
    return b"\x0f" + struct.pack("<i", 4 + len(text) + len(scope)) + text + scope


UNDEFINED: Final = b"\x06"
SCALARS: Final[Mapping[str, bytes]] = {
    "double": value_of(1.5),
    "whole double": value_of(1.0),
    "minus zero": value_of(-0.0),
    "NaN": value_of(math.nan),
    "NaN with a payload": b"\x01" + struct.pack("<Q", 0x7FF8_0000_0000_BEEF),
    "string": value_of("s"),
    "binary": value_of(b"b"),
    "old binary": b"\x05" + struct.pack("<i", 5) + b"\x02" + struct.pack("<i", 1) + b"b",
    "legacy uuid": value_of(bson.Binary(bytes(range(16)), 3)),
    "uuid": value_of(bson.Binary(bytes(range(16)), 4)),
    "undefined": UNDEFINED,
    "object id": value_of(ObjectId(bytes(range(12)))),
    "bool": value_of(True),
    "date": value_of(DatetimeMS(1_700_000_000_000)),
    "far date": value_of(DatetimeMS(2**62)),
    "null": value_of(None),
    "regex": value_of(Regex("s", "i")),
    "regex with unsorted flags": b"\x0bs\0mi\0",
    "pointer": _typed_text(12, b"db.c") + bytes(range(12)),
    "code": value_of(Code("f()")),
    "symbol": _typed_text(14, b"s"),
    "code with scope": _code_with_scope(bson.encode({"a": 1})),
    "code with undefined in its scope": _code_with_scope(document([element(b"a", UNDEFINED)])),
    "int": value_of(1),
    "timestamp": value_of(Timestamp(2**32 - 1, 1)),
    "long": value_of(Int64(1)),
    "decimal": value_of(Decimal128("1.50")),
    "decimal NaN": value_of(Decimal128("NaN")),
    "least key": value_of(MinKey()),
    "greatest key": value_of(MaxKey()),
    "reference": value_of({"$ref": "c", "$id": 1}),
    "reference with more before it": value_of({"x": 1, "$ref": "c", "$id": 1}),
    "empty document": value_of({}),
    "document": value_of({"a": 1, "b": 2}),
    "document with a name twice": b"\x03" + document([element(b"a", value_of(1)), element(b"a", value_of(2))]),
    "empty array": value_of([]),
    "array": value_of([1, "s"]),
    "array with odd names": b"\x04" + document([element(b"1", value_of(1)), element(b"0", value_of(2))]),
    "bad text": _typed_text(2, b"\xff"),
}
"""One value of each kind, the kinds that a decoder may lose among them."""

Predicate = Callable[[bytes], bytes]

PREDICATES: Final[Mapping[str, Predicate]] = {
    "is": lambda value: object_of({"x": value}),
    "$eq": lambda value: object_of({"x": object_of({"$eq": value})}),
    "$gte": lambda value: object_of({"x": object_of({"$gte": value})}),
    "$lt": lambda value: object_of({"x": object_of({"$lt": value})}),
    "$ne": lambda value: object_of({"x": object_of({"$ne": value})}),
    "$in": lambda value: object_of({"x": object_of({"$in": array_of(value, value_of("other"))})}),
    "$not": lambda value: object_of({"x": object_of({"$not": object_of({"$eq": value})})}),
    "in a document": lambda value: object_of({"x": object_of({"$eq": object_of({"a": value})})}),
    "in an array": lambda value: object_of({"x": array_of(value)}),
    "$elemMatch": lambda value: object_of({"x": object_of({"$elemMatch": object_of({"$eq": value})})}),
    "a path": lambda value: object_of({"x.a": value}),
    "$or": lambda value: object_of({"$or": array_of(object_of({"x": value}), object_of({"n": value_of(-1)}))}),
    "$expr": lambda value: object_of(
        {"$expr": object_of({"$eq": array_of(value_of("$x"), object_of({"$literal": value}))})}
    ),
}
"""Predicates on ``x`` with one operand."""


def measurements(time_ms: int) -> list[bytes]:
    """Documents with each value as ``x``, inside a document and inside an array; ``n`` tells them apart."""
    shapes: list[bytes] = [value_of(None)]
    for name, value in SCALARS.items():
        if name not in ("bad text", "array with odd names"):  # servers take neither as it is
            shapes += [value, object_of({"a": value}), array_of(value)]
    found = []
    for number, value in enumerate(shapes):
        fields = {"t": value_of(DatetimeMS(time_ms + number)), "m": value_of(number % 2), "n": value_of(number)}
        found.append(object_of({**fields, "x": value})[1:])
    missing = {"t": value_of(DatetimeMS(time_ms)), "m": value_of(0), "n": value_of(len(shapes))}
    return [*found, object_of(missing)[1:]]
