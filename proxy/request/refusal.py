"""Finds the error code in a reply, in the first bytes that arrive, and without parsing replies that succeeded.

If a command has failed, its reply begins with ``ok``, or with ``topologyVersion`` or ``errorLabels`` and then ``ok``;
``writeErrors`` follow ``n`` and what replica sets add. So the first letters of two names tell success from failure, and
the batch of a cursor, which may hold anything, is never looked at.
"""

from __future__ import annotations

from typing import Final

from catalog.bson.raw import INT32, MalformedBSON, iter_positions, unpack_int32

UNKNOWN_CODE: Final = -1
"""A refusal whose code has not arrived with the first bytes, or is missing."""

_LEAST_BYTES: Final = 24
"""Size of the smallest reply document, ``{n: 1, ok: 1.0}``; that of a ``ping`` is shorter."""
_BEFORE_OK: Final = (0x65, 0x74)
"""The first letters of ``errorLabels`` and ``topologyVersion``."""
_K: Final = 0x6B
_N: Final = 0x6E
_O: Final = 0x6F
_OP_TIME: Final = b"\x03opTime\0\x1c\0\0\0"
_OP_TIME_AT: Final = 35
"""Where ``opTime`` begins in a reply with ``n`` and ``electionId``."""
_AFTER_OP_TIME: Final = 71
_WRITE_ERRORS: Final = b"\x04writeErrors\0"
_WRITE_ERRORS_WITHIN: Final = 256
"""Where ``writeErrors`` begin at the latest: ``electionId`` and ``opTime`` may come before."""
_CODE: Final = b"\x10code\0"
_CODE_WITHIN: Final = 64
"""In a write error, ``code`` follows ``index``."""
_DOUBLE: Final = 0x01


def refused_with(raw: bytes, start: int) -> int:
    """The code of the refusal in a reply whose document begins at ``start``; 0 if there is none.

    A refusal of the command, or of the first of its statements that was refused. ``raw`` may end early.
    """
    if len(raw) < start + _LEAST_BYTES:
        return 0
    first = raw[start + 5]
    if first == _N:
        return _of_statements(raw, start)
    if first == _O:
        if raw[start + 4] == _DOUBLE and raw[start + 6] == _K and raw[start + 15]:
            # ``ok: 1.0``: the last byte of 0.0 is 0.
            return 0
        return _of_command(raw, start)
    if first in _BEFORE_OK:
        return _of_command(raw, start)
    return 0


def _of_statements(raw: bytes, start: int) -> int:
    if raw[start + 4] != INT32 or raw[start + 6] or (raw[start + 12] == _O and raw[start + 13] == _K):
        return 0
    third = start + _AFTER_OP_TIME
    if len(raw) > third + 2 and raw[third + 1] == _O and raw.startswith(_OP_TIME, start + _OP_TIME_AT):
        # The usual reply of a replica set: ``ok`` follows ``electionId`` and ``opTime``.
        return 0
    at = raw.find(_WRITE_ERRORS, start, start + _WRITE_ERRORS_WITHIN)
    if at < 0:
        return 0
    code_at = raw.find(_CODE, at, at + _CODE_WITHIN) + len(_CODE)
    return _code(raw, code_at) if code_at >= len(_CODE) else UNKNOWN_CODE


def _of_command(raw: bytes, start: int) -> int:
    """As ``refused_with``, from the fields of the reply: those before ``code`` tell whether it failed."""
    failed = False
    try:
        for kind_at, name, value_at, end in iter_positions(raw, start):
            if name == b"ok":
                # Only zero has no byte other than 0, in each type of number.
                if any(raw[value_at:end]):
                    return 0
                failed = True
            elif name == b"code" and raw[kind_at] == INT32:
                return _code(raw, value_at)
    except (MalformedBSON, IndexError):
        # The rest has not arrived.
        pass
    return UNKNOWN_CODE if failed else 0


def _code(raw: bytes, at: int) -> int:
    if at + 4 > len(raw):
        return UNKNOWN_CODE
    code = int(unpack_int32(raw, at)[0])
    return code or UNKNOWN_CODE
