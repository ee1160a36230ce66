"""Walks the top level of a raw BSON document.

Every function checks only the bytes that it reads; values are skipped by their length. Error messages are those of a
6.0 server, which include the position in the document.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from catalog.errors import CommandError
from proxy.wire.limits import MIN_BSON_SIZE_BYTES

INVALID_BSON: Final = 22
_LENGTH: Final = struct.Struct("<i")

FIXED_SIZES: Final = {
    0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0,
}  # fmt: skip
"""Type byte → size of the value in bytes."""

PREFIXED_SIZES: Final = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}
"""Type byte → bytes beyond what the value's own int32 length counts."""

MIN_LENGTHS: Final = {0x02: 1, 0x03: 5, 0x04: 5, 0x05: 0, 0x0C: 1, 0x0D: 1, 0x0E: 1, 0x0F: 14}
REGEX: Final = 0x0B
STRING: Final = 0x02
DOCUMENT: Final = 0x03
ARRAY: Final = 0x04
BOOL: Final = 0x08
SYMBOL: Final = 0x0E

TYPE_NAMES: Final = {
    0x01: "double", 0x02: "string", 0x03: "object", 0x04: "array", 0x05: "binData", 0x06: "undefined",
    0x07: "objectId", 0x08: "bool", 0x09: "date", 0x0A: "null", 0x0B: "regex", 0x0C: "dbPointer", 0x0D: "javascript",
    0x0E: "symbol", 0x0F: "javascriptWithScope", 0x10: "int", 0x11: "timestamp", 0x12: "long", 0x13: "decimal",
    0x7F: "maxKey", 0xFF: "minKey",
}  # fmt: skip
"""Type byte → how servers call it in their messages."""

Element = tuple[int, int, int]
"""Type byte, and where the value starts and ends in the document."""


def invalid_bson(what: str, field: str = "?") -> CommandError:
    """The error of a 6.0 server for bytes that are not BSON."""
    return CommandError(INVALID_BSON, f"{what} in element with field name '{field}' in object with unknown _id")


def document_end(data: bytes, start: int, end: int) -> int:
    """Where the document that starts at ``start`` ends; it must end at or before ``end``. Raises ``CommandError``."""
    if end - start < MIN_BSON_SIZE_BYTES:
        raise invalid_bson("BSON data has to be at least 5 bytes")
    size: int = _LENGTH.unpack_from(data, start)[0]
    if size < MIN_BSON_SIZE_BYTES:
        raise invalid_bson("BSON data has to be at least 5 bytes")
    if size > end - start:
        raise invalid_bson("Incorrect BSON length")
    if data[start + size - 1] != 0:
        raise invalid_bson("BSON object not terminated with EOO")
    return start + size


REST_BYTES: Final = 64 * 1024
"""Walking over this many bytes takes a fraction of a millisecond."""


def array_documents(data: bytes, start: int, end: int, rest: Callable[[], None]) -> list[bytes] | None:
    """The elements of the array at ``start``, if all are documents and their names count from zero.

    ``rest`` is called after ``REST_BYTES`` each, to let other threads go on.
    """
    found: list[bytes] = []
    position, last = start + 4, end - 1
    rest_at = position + REST_BYTES
    find = data.find
    while position < last:
        value = find(0, position + 1, last) + 1
        if data[position] != DOCUMENT or data[position + 1 : value - 1] != b"%d" % len(found):
            return None
        try:
            position = document_end(data, value, last)
        except CommandError:
            return None
        found.append(data[value:position])
        if position >= rest_at:
            rest()
            rest_at = position + REST_BYTES
    return found


def top_level(data: bytes, most: int = 1 << 31, repeated: list[bytes] | None = None) -> dict[bytes, Element]:
    """Field name → element for a document whose outer frame was checked; raises ``CommandError``.

    It gives ``most`` fields at most. The first of two equal names wins, as for a server that looks
    a field up; the others are added to ``repeated``.
    """
    fields: dict[bytes, Element] = {}
    position = 4
    last = len(data) - 1
    fixed, find, unpack = FIXED_SIZES, data.find, _LENGTH.unpack_from
    while position < last:
        kind = data[position]
        value = find(0, position + 1, last) + 1
        if value == 0:
            raise invalid_bson("BSON field name not terminated")
        name = data[position + 1 : value - 1]
        size = fixed.get(kind)
        if size is None:
            if kind in PREFIXED_SIZES:
                if last - value < 4:
                    raise invalid_bson("BSON size is larger than buffer size", name.decode(errors="replace"))
                length = unpack(data, value)[0]
                if length < MIN_LENGTHS[kind]:
                    raise invalid_bson("Invalid BSON length", name.decode(errors="replace"))
                size = length + PREFIXED_SIZES[kind]
            else:
                size = _other_size(data, kind, value, last, name)
        position = value + size
        if position > last:
            raise invalid_bson("BSON size is larger than buffer size", name.decode(errors="replace"))
        if name not in fields:
            fields[name] = (kind, value, position)
            if len(fields) >= most:
                break
        elif repeated is not None:
            repeated.append(name)
    return fields


def _other_size(data: bytes, kind: int, value: int, last: int, name: bytes) -> int:
    if kind != REGEX:
        raise invalid_bson(f"Unrecognized BSON type {kind}", name.decode(errors="replace"))
    pattern_end = data.find(0, value, last)
    options_end = data.find(0, pattern_end + 1, last) if pattern_end >= 0 else -1
    if options_end < 0:
        raise invalid_bson("Not null terminated string", name.decode(errors="replace"))
    return options_end + 1 - value
