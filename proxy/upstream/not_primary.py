"""Recognises replies of a server that is not, or soon not, the primary."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from catalog.bson.raw import INT32, fields_of, iter_elements, unpack_int32

NOT_PRIMARY_CODES: Final = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})
NOTHING_DONE_CODES: Final = frozenset({10107, 13435})
"""With these codes a command is refused before it begins; with the others it may have been interrupted."""

unpack_double: Final = struct.Struct("<d").unpack_from
_NONE: Final = b"\x04\x05\0\0\0\0"


class NotPrimary(Enum):
    """What such a reply means for the command."""

    REFUSED = auto()
    INTERRUPTED = auto()


def not_primary(reply: bytes) -> NotPrimary | None:
    """Whether a raw reply document says so: as the error of the command, of its write concern, or of a statement."""
    fields = fields_of(reply)
    code = 0 if says_ok(fields) else _code(fields.get(b"code"))
    if code in NOT_PRIMARY_CODES:
        return NotPrimary.REFUSED if code in NOTHING_DONE_CODES else NotPrimary.INTERRUPTED
    concern = fields.get(b"writeConcernError")
    if concern is not None and _code(fields_of(concern, 1).get(b"code")) in NOT_PRIMARY_CODES:
        return NotPrimary.INTERRUPTED
    for _, error in iter_elements(fields.get(b"writeErrors", _NONE), 1):
        if _code(fields_of(error, 1).get(b"code")) in NOT_PRIMARY_CODES:
            return NotPrimary.INTERRUPTED
    return None


def says_ok(fields: Mapping[bytes, bytes]) -> bool:
    """Whether the fields of a reply say that the command did not fail; the number may be of any type (C26).

    Check this before any other field of a reply, because these may contain stored data.
    """
    value = fields.get(b"ok", b"")
    match value[:1]:
        case b"\x01":
            return bool(unpack_double(value, 1)[0] == 1.0)
        case b"\x10" | b"\x12" | b"\x08":
            return int.from_bytes(value[1:], "little") == 1
        case _:
            return False


def _code(value: bytes | None) -> int:
    return unpack_int32(value, 1)[0] if value is not None and value[0] == INT32 else 0
