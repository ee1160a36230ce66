"""How a server says that it is not, or soon will not be, the one to write to."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from catalog.bson.raw import INT32, fields_of, iter_elements, unpack_int32

NOT_PRIMARY_CODES: Final = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})
NOTHING_DONE_CODES: Final = frozenset({10107, 13435})
"""A command is refused so before it begins; with the others it may have been interrupted."""


_NONE: Final = b"\x04\x05\0\0\0\0"


class NotPrimary(Enum):
    """What such a reply tells of the command."""

    REFUSED = auto()
    INTERRUPTED = auto()


def not_primary(reply: bytes) -> NotPrimary | None:
    """Whether a raw reply document says so: as the error of the command, of its write concern, or of a statement."""
    fields = fields_of(reply)
    code = _code(fields.get(b"code"))
    if code in NOT_PRIMARY_CODES:
        return NotPrimary.REFUSED if code in NOTHING_DONE_CODES else NotPrimary.INTERRUPTED
    concern = fields.get(b"writeConcernError")
    if concern is not None and _code(fields_of(concern, 1).get(b"code")) in NOT_PRIMARY_CODES:
        return NotPrimary.INTERRUPTED
    for _, error in iter_elements(fields.get(b"writeErrors", _NONE), 1):
        if _code(fields_of(error, 1).get(b"code")) in NOT_PRIMARY_CODES:
            return NotPrimary.INTERRUPTED
    return None


def _code(value: bytes | None) -> int:
    return unpack_int32(value, 1)[0] if value is not None and value[0] == INT32 else 0
