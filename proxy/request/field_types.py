"""Checks that the fields of a command have the types that the protocol defines.

Servers check some types strictly and convert others (a number for a flag, a symbol for a string), depending on the
version. The proxy reads only plain types, and relays a command with any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from catalog.bson.raw import (
    ARRAY,
    BINARY,
    BOOL,
    DOUBLE,
    INT32,
    INT64,
    OBJECT,
    STRING,
    TIMESTAMP,
    MalformedBSON,
    fields_of,
)

Judge = Callable[[bytes], bool]
"""Whether an element value (type byte, then the value) is plain."""

_MOST: Final = 1 << 53
_LONGEST_MS: Final = (1 << 31) - 1
_SESSION: Final = bytes((OBJECT,)) + b"\x1e\0\0\0" + bytes((BINARY,)) + b"id\0\x10\0\0\0\x04"
_SESSION_BYTES: Final = 1 + 30
_CLUSTER_TIME: Final = bytes((TIMESTAMP,)) + b"clusterTime\0"
_unpack_double: Final = struct.Struct("<d").unpack_from


def _of(*kinds: int) -> Judge:
    allowed = frozenset(kinds)
    return lambda value: value[0] in allowed


def number_in(value: bytes) -> int | None:
    """A whole number of any plain type; ``None`` for anything else, such as fractions, NaN and decimals."""
    kind = value[0]
    if kind in (INT32, INT64):
        return int.from_bytes(value[1:], "little", signed=True)
    if kind == DOUBLE:
        number: float = _unpack_double(value, 1)[0]
        return int(number) if -_MOST < number < _MOST and number == int(number) else None
    return None


def _is_whole(value: bytes) -> bool:
    return number_in(value) is not None


def _is_time_limit(value: bytes) -> bool:
    number = number_in(value)
    return number is not None and 0 <= number <= _LONGEST_MS


def is_session(value: bytes) -> bool:
    """Whether the value is a session id as drivers make it: a UUID and nothing else."""
    return len(value) == _SESSION_BYTES and value.startswith(_SESSION)


def _is_cluster_time(value: bytes) -> bool:
    return value[0] == OBJECT and value.startswith(_CLUSTER_TIME, 5)


_BOOL: Final = _of(BOOL)
_FLAG: Final = _of(BOOL, INT32, INT64, DOUBLE)
_STRING: Final = _of(STRING)
_OBJECT: Final = _of(OBJECT)
_ARRAY: Final = _of(ARRAY)
_NOT_STRICT: Final = bytes((BOOL, 0))
_FIRST_VERSION: Final = bytes((STRING,)) + b"\2\0\0\x001\0"

PLAIN: Final[Mapping[bytes, Judge]] = {
    b"lsid": is_session,
    b"$clusterTime": _is_cluster_time,
    b"txnNumber": _of(INT64),
    b"stmtId": _of(INT32),
    b"stmtIds": _ARRAY,
    b"autocommit": _BOOL,
    b"startTransaction": _BOOL,
    b"$readPreference": _OBJECT,
    # Of routers only, and not sent on with what the proxy's own account executes.
    b"$client": lambda value: False,
    b"apiVersion": lambda value: value == _FIRST_VERSION,
    # What a strict client may use depends on the command, not on what becomes of it here.
    b"apiStrict": lambda value: value == _NOT_STRICT,
    b"apiDeprecationErrors": _BOOL,
    b"maxTimeMS": _is_time_limit,
    b"readConcern": _OBJECT,
    b"writeConcern": _OBJECT,
    b"collation": _OBJECT,
    b"let": _OBJECT,
    b"hint": _of(STRING, OBJECT),
    b"ordered": _BOOL,
    b"bypassDocumentValidation": _FLAG,
    b"documents": _ARRAY,
    b"deletes": _ARRAY,
    b"updates": _ARRAY,
    b"pipeline": _ARRAY,
    b"cursor": _OBJECT,
    b"filter": _OBJECT,
    b"query": _OBJECT,
    b"sort": _OBJECT,
    b"fields": _OBJECT,
    b"projection": _OBJECT,
    b"key": _STRING,
    b"limit": _is_whole,
    b"skip": _is_whole,
    b"batchSize": _is_whole,
    b"singleBatch": _BOOL,
    b"remove": _FLAG,
    b"new": _FLAG,
    b"upsert": _FLAG,
    b"verbosity": _STRING,
}
"""Fields that have the same meaning in every command. Others are read by the rewriter of one command only, or not."""

_INSIDE: Final[Mapping[bytes, tuple[bytes, Judge]]] = {
    b"cursor": (b"batchSize", _is_whole),
    b"readConcern": (b"level", _STRING),
}
"""Fields inside a field that are read, too."""

LONGEST_WRITE_CONCERN_BYTES: Final = 512
_WRITE_CONCERN: Final[Mapping[bytes, Judge]] = {
    b"w": lambda value: value[0] == STRING or number_in(value) in range(51),
    b"j": _BOOL,
    b"fsync": _BOOL,
    b"wtimeout": _is_time_limit,
}


def is_plain(name: bytes, value: bytes) -> bool:
    """Whether this field of a command has a value of the type that it should have; ``value`` with its type byte."""
    judge = PLAIN.get(name)
    if judge is None:
        return True
    if not judge(value):
        return False
    inside = _INSIDE.get(name)
    if inside is None:
        return True
    inner = fields_of(value, 1).get(inside[0])
    return inner is None or inside[1](inner)


def plain_write_concern(raw: bytes) -> bytes | None:
    """A write concern as the backend is asked for it; ``w: 0`` asks for the server's default (W104).

    ``None`` for one with anything unusual in it, which the backend has to judge.
    """
    if len(raw) > LONGEST_WRITE_CONCERN_BYTES:
        return None
    try:
        fields = fields_of(raw)
    except MalformedBSON:
        return None
    if any(name not in _WRITE_CONCERN or not _WRITE_CONCERN[name](value) for name, value in fields.items()):
        return None
    w = fields.get(b"w")
    return b"" if not fields or (w is not None and number_in(w) == 0) else raw
