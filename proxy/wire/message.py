"""One message as it was received."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from proxy.wire.limits import HEADER_SIZE_BYTES

HEADER: Final = struct.Struct("<iiii")
LENGTH: Final = struct.Struct("<i")


class Opcode(IntEnum):
    """The supported opcodes, and those that servers name when they refuse them."""

    REPLY = 1
    UPDATE = 2001
    INSERT = 2002
    QUERY = 2004
    GET_MORE = 2005
    DELETE = 2006
    KILL_CURSORS = 2007
    COMPRESSED = 2012
    MSG = 2013


OPCODES: Final = frozenset(Opcode)


class Message:
    """A whole message, header included. Immutable by convention; ``raw`` is what was received or will be sent.

    ``compressor`` is the id of the compressor that wrapped it (0: none); ``raw`` is then the unwrapped form.
    ``pieces``: it is large and was not put together yet, ``raw`` is empty; ``parts``: what ``op_msg.prepare`` noted.
    """

    __slots__ = ("compressor", "opcode", "parts", "pieces", "raw", "request_id", "response_to")

    def __init__(self, raw: bytes, request_id: int, response_to: int, opcode: int, compressor: int = 0) -> None:
        self.raw = raw
        self.request_id = request_id
        self.response_to = response_to
        self.opcode = opcode
        self.compressor = compressor
        self.pieces: list[bytes] | None = None
        self.parts: object | None = None

    @classmethod
    def from_bytes(cls, raw: bytes) -> Message:
        """From exactly one message; the length was checked by the caller."""
        _, request_id, response_to, opcode = HEADER.unpack_from(raw)
        return cls(raw, request_id, response_to, opcode)

    def put_together(self) -> Message:
        """The same message in one piece. Copies without holding up other threads."""
        if self.pieces is None:
            return self
        return Message(b"".join(self.pieces), self.request_id, self.response_to, self.opcode, self.compressor)

    def __repr__(self) -> str:
        return f"Message({self.opcode}, request_id={self.request_id}, {len(self.raw)} bytes)"


def length_at(raw: bytes, at: int) -> int:
    """The length that stands there; a negative one is taken for a very large one. The bytes must be there."""
    return raw[at] | raw[at + 1] << 8 | raw[at + 2] << 16 | raw[at + 3] << 24


def frame(opcode: int, request_id: int, response_to: int, payload: bytes) -> bytes:
    """``payload`` behind its header."""
    return HEADER.pack(HEADER_SIZE_BYTES + len(payload), request_id, response_to, opcode) + payload
