"""OP_QUERY and OP_REPLY, which only the legacy handshake uses."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from catalog.errors import CommandError
from proxy.wire.errors import ProtocolError
from proxy.wire.framing import document_end, top_level
from proxy.wire.limits import HEADER_SIZE_BYTES
from proxy.wire.message import HEADER, Message, Opcode

_SKIP_AND_RETURN: Final = struct.Struct("<ii")
_REPLY_HEAD: Final = struct.Struct("<iqii")
_COMMAND_SUFFIX: Final = ".$cmd"

AWAIT_CAPABLE: Final = 8
QUERY_FAILURE: Final = 2
MOST_BYTES: Final = 64 * 1024
"""Of an OP_QUERY. Handshakes have a few kilobytes, and other commands need OP_MSG."""
LEGACY_OPCODE: Final = 5_739_101
"""Error code for opcodes that servers from 5.1 no longer support."""


@dataclass(frozen=True, slots=True)
class OpQuery:
    """One OP_QUERY. ``query`` is the raw query document."""

    flags: int
    collection: str
    number_to_return: int
    query: bytes

    @property
    def database(self) -> str | None:
        """The database of a command; ``None`` if this is not a command."""
        if self.collection.endswith(_COMMAND_SUFFIX):
            return self.collection[: -len(_COMMAND_SUFFIX)]
        return None

    @property
    def command(self) -> bytes:
        """The command itself, out of its ``$query`` wrapper if it has one."""
        fields = top_level(self.query)
        name, (kind, start, end) = next(iter(fields.items()), (b"", (0, 0, 0)))
        if name in (b"$query", b"query") and kind == 3:
            return self.query[start:end]
        return self.query


def parse(message: Message) -> OpQuery:
    """Raises ``ProtocolError`` when the fixed part is missing, ``CommandError`` for a bad query document."""
    raw = message.raw
    if len(raw) > MOST_BYTES:
        raise ProtocolError(f"OP_QUERY of {len(raw)} bytes")
    name_end = raw.find(0, HEADER_SIZE_BYTES + 4)
    if name_end < 0 or name_end + 9 > len(raw):
        raise ProtocolError("OP_QUERY is too short")
    flags = int.from_bytes(raw[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + 4], "little")
    _, count = _SKIP_AND_RETURN.unpack_from(raw, name_end + 1)
    start = name_end + 9
    try:
        end = document_end(raw, start, len(raw))
    except CommandError as error:
        raise CommandError(error.code, f"Client Error: bad object in message: {error.message}") from None
    if end != len(raw) and end + 5 > len(raw):
        raise CommandError(22, "Client Error: Remaining data too small for BSON object")
    collection = raw[HEADER_SIZE_BYTES + 4 : name_end].decode(errors="replace")
    return OpQuery(flags, collection, count, raw[start:end])


def build_reply(request_id: int, response_to: int, document: bytes, flags: int = AWAIT_CAPABLE) -> bytes:
    """A whole OP_REPLY with one document."""
    payload = _REPLY_HEAD.pack(flags, 0, 0, 1) + document
    return HEADER.pack(HEADER_SIZE_BYTES + len(payload), request_id, response_to, Opcode.REPLY) + payload


def reply_document(message: Message) -> bytes:
    """The one document of an OP_REPLY; raises ``ProtocolError``."""
    start = HEADER_SIZE_BYTES + _REPLY_HEAD.size
    if message.opcode != Opcode.REPLY or len(message.raw) < start + 5:
        raise ProtocolError("not an OP_REPLY with a document")
    return message.raw[start : document_end(message.raw, start, len(message.raw))]
