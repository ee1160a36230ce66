"""A value of every BSON type, as raw element values, and documents put together of raw elements."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final

import bson
from bson import Decimal128

Value = tuple[int, bytes]
"""Type byte and raw value."""


def document(fields: Mapping[str, Value]) -> bytes:
    """The raw document of these elements."""
    inside = b"".join(bytes([kind]) + name.encode() + b"\0" + value for name, (kind, value) in fields.items())
    return struct.pack("<i", len(inside) + 5) + inside + b"\0"


def string(text: str, kind: int = 2) -> Value:
    """A string, or what is stored as one: code (13) and symbol (14)."""
    raw = text.encode()
    return kind, struct.pack("<i", len(raw) + 1) + raw + b"\0"


def value_of(python: object) -> Value:
    """As PyMongo encodes it."""
    raw = bson.encode({"v": python})
    return raw[4], raw[7:-1]


def _code_with_scope(text: str) -> Value:
    inside = string(text)[1] + document({})
    return 15, struct.pack("<i", len(inside) + 4) + inside


def values(text: str) -> dict[str, Value]:
    """Values by a word for each; what holds text holds this one."""
    return {
        "double": value_of(1.0),
        "double 1.5": value_of(1.5),
        "double -1": value_of(-1.0),
        "NaN": value_of(math.nan),
        "Infinity": value_of(math.inf),
        "-Infinity": value_of(-math.inf),
        "double 1e300": value_of(1e300),
        "string": string(text),
        "empty string": string(""),
        "document": value_of({}),
        "array": value_of([]),
        "array of a string": value_of([text]),
        "binary": value_of(b"x"),
        "undefined": (6, b""),
        "object id": value_of(bson.ObjectId(bytes(12))),
        "true": value_of(True),
        "false": value_of(False),
        "date": (9, bytes(8)),
        "null": value_of(None),
        "regex": (11, text.encode() + b"\0\0"),
        "pointer": (12, string(text)[1] + bytes(12)),
        "code": string(text, 13),
        "symbol": string(text, 14),
        "code with scope": _code_with_scope(text),
        "int": value_of(1),
        "int 0": value_of(0),
        "int -1": value_of(-1),
        "timestamp": (17, bytes(8)),
        "long": value_of(bson.Int64(1)),
        "long 2^62": value_of(bson.Int64(1 << 62)),
        "decimal": value_of(Decimal128("1")),
        "decimal NaN": value_of(Decimal128("NaN")),
        "decimal Infinity": value_of(Decimal128("Infinity")),
        "min key": (255, b""),
        "max key": (127, b""),
    }


NUMBERS: Final = ("double", "int", "long", "decimal")
