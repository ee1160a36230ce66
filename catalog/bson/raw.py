"""Walks raw BSON without decoding it.

An *element value* is the type byte followed by the value bytes, without the name. Columns store element values. All
functions check every length before they read, so the pieces of a valid document can be copied into another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final

DOUBLE: Final = 1
STRING: Final = 2
OBJECT: Final = 3
ARRAY: Final = 4
BINARY: Final = 5
UNDEFINED: Final = 6
OBJECT_ID: Final = 7
BOOL: Final = 8
DATE: Final = 9
NULL: Final = 10
REGEX: Final = 11
DB_POINTER: Final = 12
CODE: Final = 13
SYMBOL: Final = 14
CODE_WITH_SCOPE: Final = 15
INT32: Final = 16
TIMESTAMP: Final = 17
INT64: Final = 18
DECIMAL128: Final = 19
MAX_KEY: Final = 0x7F
MIN_KEY: Final = 0xFF

MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024

INT32_STRUCT: Final = Struct("<i")
INT64_STRUCT: Final = Struct("<q")

# With their types, because the compiler checks other modules before this one.
_Unpack = Callable[[bytes, int], tuple[int]]
_Pack = Callable[[int], bytes]
unpack_int32: Final[_Unpack] = INT32_STRUCT.unpack_from
pack_int32: Final[_Pack] = INT32_STRUCT.pack
unpack_int64: Final[_Unpack] = INT64_STRUCT.unpack_from
pack_int64: Final[_Pack] = INT64_STRUCT.pack

_VARIABLE: Final = -1
_UNKNOWN: Final = -2
_SIZES = [_UNKNOWN] * 256
for _type, _size in {
    DOUBLE: 8,
    UNDEFINED: 0,
    OBJECT_ID: 12,
    DATE: 8,
    NULL: 0,
    INT32: 4,
    TIMESTAMP: 8,
    INT64: 8,
    DECIMAL128: 16,
    MAX_KEY: 0,
    MIN_KEY: 0,
}.items():
    _SIZES[_type] = _size
for _type in (STRING, OBJECT, ARRAY, BINARY, BOOL, REGEX, DB_POINTER, CODE, SYMBOL, CODE_WITH_SCOPE):
    _SIZES[_type] = _VARIABLE
FIXED_SIZES: Final = tuple(_SIZES)
"""Size in bytes of a value by its type byte; negative: variable, see ``value_end``."""

NESTED_TYPES: Final = frozenset((OBJECT, ARRAY))
_TEXT_TYPES: Final = frozenset((STRING, CODE, SYMBOL))


class MalformedBSON(ValueError):
    """Bytes that are not a BSON document."""


def _string_end(raw: bytes, start: int, limit: int) -> int:
    """Where the length-prefixed string at ``start`` ends."""
    if start + 5 > limit:
        raise MalformedBSON("string cut short")
    (length,) = unpack_int32(raw, start)
    end: int = start + 4 + length
    if length < 1 or end > limit or raw[end - 1] != 0:
        raise MalformedBSON("bad string length")
    return end


def _cstring_end(raw: bytes, start: int, limit: int) -> int:
    """Where the NUL-terminated string at ``start`` ends, terminator included."""
    end = raw.find(0, start, limit)
    if end < 0:
        raise MalformedBSON("unterminated name")
    return end + 1


def value_end(raw: bytes, kind: int, start: int, limit: int) -> int:
    """Where the value of type ``kind`` at ``start`` ends; of documents, only the length and the last byte are checked.

    :raises MalformedBSON: the value does not end before ``limit``, or is not BSON
    """
    size = FIXED_SIZES[kind]
    if size >= 0:
        end = start + size
    elif kind in _TEXT_TYPES:
        return _string_end(raw, start, limit)
    elif kind in NESTED_TYPES or kind == CODE_WITH_SCOPE:
        if start + 5 > limit:
            raise MalformedBSON("document cut short")
        (length,) = unpack_int32(raw, start)
        end = start + length
        if length < 5 or end > limit or raw[end - 1] != 0:
            raise MalformedBSON("bad document length")
    elif kind == BINARY:
        if start + 5 > limit:
            raise MalformedBSON("binary cut short")
        (length,) = unpack_int32(raw, start)
        end = start + 5 + length
        if length < 0:
            raise MalformedBSON("bad binary length")
    elif kind == BOOL:
        end = start + 1
        if end > limit or raw[start] > 1:
            raise MalformedBSON("bad boolean")
    elif kind == REGEX:
        end = _cstring_end(raw, _cstring_end(raw, start, limit), limit)
    elif kind == DB_POINTER:
        end = _string_end(raw, start, limit) + 12
    else:
        raise MalformedBSON(f"unknown type {kind:#04x}")
    if end > limit:
        raise MalformedBSON("value cut short")
    return end


def iter_elements(raw: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Name and element value of each element of the document in ``raw[start:end]``, one level deep.

    :raises MalformedBSON: the bytes are not BSON
    """
    for kind_at, name, value, stop in iter_positions(raw, start, end):
        yield name, raw[kind_at : kind_at + 1] + raw[value:stop]


def iter_positions(raw: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes, int, int]]:
    """As ``iter_elements`` without copying values: the offset of the type byte, name, start and end of the value.

    :raises MalformedBSON: the bytes are not BSON
    """
    limit = (len(raw) if end is None else end) - 1
    if limit - start < 4 or unpack_int32(raw, start)[0] != limit + 1 - start or raw[limit] != 0:
        raise MalformedBSON("bad document length")
    position = start + 4
    while position < limit:
        kind = raw[position]
        name_end = raw.find(0, position + 1, limit)
        if name_end < 0:
            raise MalformedBSON("unterminated name")
        value = name_end + 1
        stop = value_end(raw, kind, value, limit)
        yield position, raw[position + 1 : name_end], value, stop
        position = stop


def fields_of(raw: bytes, start: int = 0, end: int | None = None) -> dict[bytes, bytes]:
    """Name → element value of a document, one level deep; of a repeated name the first counts (W36).

    :raises MalformedBSON: as ``iter_elements``
    """
    # Repeats the loop of iter_elements, because the interpreted kernel spends most of its time here.
    limit = (len(raw) if end is None else end) - 1
    if limit - start < 4 or unpack_int32(raw, start)[0] != limit + 1 - start or raw[limit] != 0:
        raise MalformedBSON("bad document length")
    fields: dict[bytes, bytes] = {}
    sizes = FIXED_SIZES
    find = raw.find
    position = start + 4
    while position < limit:
        kind = raw[position]
        name_end = find(0, position + 1, limit)
        if name_end < 0:
            raise MalformedBSON("unterminated name")
        size = sizes[kind]
        value = name_end + 1
        stop = value + size if size >= 0 else value_end(raw, kind, value, limit)
        if stop > limit:
            raise MalformedBSON("value cut short")
        name = raw[position + 1 : name_end]
        if name not in fields:
            fields[name] = raw[position : position + 1] + raw[value:stop]
        position = stop
    return fields


def documents_of(raw: bytes, start: int = 0) -> list[bytes]:
    """The documents of the array at ``start``; raises ``MalformedBSON`` if it contains anything else."""
    found = []
    last = start + unpack_int32(raw, start)[0] - 1
    position = start + 4
    while position < last:
        value = raw.find(0, position, last) + 1
        if not value or value + 4 >= last or raw[position] != OBJECT:
            raise MalformedBSON("not an array of documents")
        end = value + unpack_int32(raw, value)[0]
        if not value + 4 < end <= last:
            raise MalformedBSON("a document that is longer than its array")
        found.append(raw[value:end])
        position = end
    return found


def nested_depth(raw: bytes, kind: int, start: int, end: int, levels: int = 200) -> int:
    """How many levels of documents and arrays the value at ``raw[start:end]`` has; checks all of it.

    :raises MalformedBSON: something inside is not BSON, or there are more than ``levels`` levels
    """
    if kind == CODE_WITH_SCOPE:
        scope = _string_end(raw, start + 4, end)
        if value_end(raw, OBJECT, scope, end) != end:
            raise MalformedBSON("bad code with scope")
        return nested_depth(raw, OBJECT, scope, end, levels)
    if kind not in NESTED_TYPES:
        return 0
    if levels == 0:
        raise MalformedBSON("too deeply nested")
    deepest = 0
    limit = end - 1
    position = start + 4
    while position < limit:
        inner = raw[position]
        value = _cstring_end(raw, position + 1, limit)
        position = value_end(raw, inner, value, limit)
        if inner in NESTED_TYPES or inner == CODE_WITH_SCOPE:
            deepest = max(deepest, nested_depth(raw, inner, value, position, levels - 1))
    return deepest + 1


def names_repeat(raw: bytes, start: int = 0, end: int | None = None) -> bool:
    """Whether a name occurs twice in the document or array in ``raw[start:end]``, or in one inside it.

    :raises MalformedBSON: the bytes are not BSON
    """
    names: set[bytes] = set()
    for kind_at, name, value, stop in iter_positions(raw, start, end):
        if name in names or (raw[kind_at] in NESTED_TYPES and names_repeat(raw, value, stop)):
            return True
        names.add(name)
    return False


def element(name: bytes, value: bytes) -> bytes:
    """An element from its name and element value."""
    return value[:1] + name + b"\0" + value[1:]


def document(elements: Iterable[bytes]) -> bytes:
    """A document from encoded elements."""
    body = b"".join(elements)
    return pack_int32(len(body) + 5) + body + b"\0"


def sub_document(name: bytes, elements: Iterable[bytes]) -> bytes:
    """An element that holds a document of encoded elements."""
    body = b"".join(elements)
    return b"\x03" + name + b"\0" + pack_int32(len(body) + 5) + body + b"\0"


def sub_array(name: bytes, values: Iterable[bytes]) -> bytes:
    """An element that holds an array of element values."""
    body = b"".join(element(b"%d" % index, value) for index, value in enumerate(values))
    return b"\x04" + name + b"\0" + pack_int32(len(body) + 5) + body + b"\0"


def string_value(text: bytes) -> bytes:
    """The element value of a string."""
    return b"\x02" + pack_int32(len(text) + 1) + text + b"\0"
