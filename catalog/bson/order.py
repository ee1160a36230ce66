"""BSON comparison order for element values of one canonical class (W21-W23).

``CANONICAL`` has the class of each type. ``sort_key`` turns an element value into a key that Python orders as a server
does. Keys of different canonical classes must not be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from struct import Struct
from typing import Any, Final

from bson.decimal128 import Decimal128

from catalog.bson import raw

_CLASSES: Final = {
    raw.MIN_KEY: 1,
    raw.UNDEFINED: 2,
    raw.NULL: 5,
    raw.INT32: 10,
    raw.INT64: 10,
    raw.DOUBLE: 10,
    raw.DECIMAL128: 10,
    raw.STRING: 15,
    raw.SYMBOL: 15,
    raw.OBJECT: 20,
    raw.ARRAY: 25,
    raw.BINARY: 30,
    raw.OBJECT_ID: 35,
    raw.BOOL: 40,
    raw.DATE: 45,
    raw.TIMESTAMP: 47,
    raw.REGEX: 50,
    raw.DB_POINTER: 55,
    raw.CODE: 60,
    raw.CODE_WITH_SCOPE: 65,
    raw.MAX_KEY: 127,
}
CANONICAL: Final = bytes(_CLASSES.get(kind, 0) for kind in range(256))
"""Type byte → canonical class; 0 for bytes that are no type. A higher class sorts later."""

_unpack_double = Struct("<d").unpack_from
_unpack_uint64 = Struct("<Q").unpack_from


class _NaN:
    """Smaller than every number, equal to itself (W22)."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return other is not self

    def __gt__(self, other: object) -> bool:
        return False


_NAN: Final = _NaN()


def _double(value: bytes) -> Any:
    (number,) = _unpack_double(value, 1)
    return _NAN if isnan(number) else number


def _decimal(value: bytes) -> Any:
    number = Decimal128.from_bid(value[1:17]).to_decimal()
    return _NAN if number.is_nan() else number


def _binary(value: bytes) -> Any:
    return len(value), value[5], value[6:]


def _regex(value: bytes) -> Any:
    pattern_end = value.index(0, 1)
    return value[1:pattern_end], value[pattern_end + 1 : -1]


def _object(value: bytes) -> Any:
    return tuple(
        (CANONICAL[inner[0]], name, sort_key(inner)) for name, inner in raw.iter_elements(value, 1, len(value))
    )


def _code_with_scope(value: bytes) -> Any:
    (length,) = raw.unpack_int32(value, 5)
    return value[9 : 8 + length], _object(value[:1] + value[9 + length :])


def _text(value: bytes) -> Any:
    return value[5:-1]


def _nothing(value: bytes) -> Any:
    return 0


_KEYS: Final[dict[int, Callable[[bytes], Any]]] = {
    raw.DOUBLE: _double,
    raw.STRING: _text,
    raw.OBJECT: _object,
    raw.ARRAY: _object,
    raw.BINARY: _binary,
    raw.UNDEFINED: _nothing,
    raw.OBJECT_ID: lambda value: value[1:],
    raw.BOOL: lambda value: value[1],
    raw.DATE: lambda value: raw.unpack_int64(value, 1)[0],
    raw.NULL: _nothing,
    raw.REGEX: _regex,
    raw.DB_POINTER: lambda value: (len(value), value[1:]),
    raw.CODE: _text,
    raw.SYMBOL: _text,
    raw.CODE_WITH_SCOPE: _code_with_scope,
    raw.INT32: lambda value: raw.unpack_int32(value, 1)[0],
    raw.TIMESTAMP: lambda value: _unpack_uint64(value, 1)[0],
    raw.INT64: lambda value: raw.unpack_int64(value, 1)[0],
    raw.DECIMAL128: _decimal,
    raw.MAX_KEY: _nothing,
    raw.MIN_KEY: _nothing,
}
SORT_KEYS: Final = tuple(_KEYS.get(kind, _nothing) for kind in range(256))
"""Type byte → the function that ``sort_key`` calls, for callers on the fast path."""


def sort_key(value: bytes) -> Any:
    """A key that orders ``value`` among values of its canonical class as the server does."""
    return SORT_KEYS[value[0]](value)


def compare(left: bytes, right: bytes) -> int:
    """-1, 0 or 1 as the server compares two element values; the canonical class decides first."""
    left_class, right_class = CANONICAL[left[0]], CANONICAL[right[0]]
    if left_class != right_class:
        return -1 if left_class < right_class else 1
    left_key, right_key = sort_key(left), sort_key(right)
    return -1 if left_key < right_key else 1 if left_key > right_key else 0
