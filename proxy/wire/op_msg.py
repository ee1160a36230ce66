"""OP_MSG: flags, one body section, document sequences, an optional checksum.

Which faults get a reply and which close the connection was observed on mongod 6.0.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from typing import Final

from crc32c import crc32c

from catalog.errors import UNAUTHORIZED, CommandError
from proxy.wire.errors import ProtocolError
from proxy.wire.framing import ARRAY, REST_BYTES, array_documents, document_end, top_level
from proxy.wire.limits import HEADER_SIZE_BYTES
from proxy.wire.message import HEADER, LENGTH, Message, Opcode

CHECKSUM_PRESENT: Final = 1
MORE_TO_COME: Final = 2
EXHAUST_ALLOWED: Final = 1 << 16
ILLEGAL_FLAGS: Final = 0xFFFC
"""``flagBits``: of the lower sixteen, unknown ones must not be set; the upper may be ignored."""
BODY_AT: Final[int] = HEADER_SIZE_BYTES + 5
"""Where the body starts when it is the first section."""

_INSERT: Final = b"\x02insert\0"
_NAME_AT: Final[int] = BODY_AT + 4
_INSERT_END: Final[int] = _NAME_AT + len(_INSERT)
_MANY_BYTES: Final = 30_000
_CUT_AT_ONCE_BYTES: Final = 256 * 1024
_MOST_FIELDS: Final = 1_000
"""Of an insert that is not merely refused or relayed."""
_MOST_SEQUENCES: Final = 2
"""With more, a server closes the connection."""
MOST_DOCUMENTS: Final = 100_000
"""Of one sequence: the limit of write commands (W94), which are the only ones with document sequences."""
BATCH_TOO_LARGE: Final = 16
"""Error code for more."""
_BODY_KIND: Final = 0
_SEQUENCE_KIND: Final = 1
_SECURITY_TOKEN_KIND: Final = 2
_FLAGS: Final = struct.Struct("<I")
_REPLY_HEAD: Final = struct.Struct("<iiiiIB")
_OVERFLOW: Final = 15
_OPCODE: Final = int(Opcode.MSG)
"""Looking up members of an enumeration is slow on the path of every message."""

_OPCODE_AT: Final = 12
_OPCODE_BYTES: Final = LENGTH.pack(_OPCODE)

Sequence = tuple[str, tuple[bytes, ...]]


class OpMsg:
    """The parts of one OP_MSG; ``sequences`` are (identifier, documents) in the order of the wire."""

    __slots__ = ("array", "body", "flags", "sequences")

    def __init__(self, flags: int, body: bytes, sequences: tuple[Sequence, ...] = ()) -> None:
        self.flags = flags
        self.body = body
        self.sequences = sequences
        self.array: SequenceOf[bytes] | None = None
        """The documents in the body of an insert, where ``prepare`` looked for them."""


def too_many_documents(count: int) -> str:
    """The server's error message for more than ``MOST_DOCUMENTS`` (W94)."""
    return f"Write batch sizes must be between 1 and {MOST_DOCUMENTS}. Got {count} operations."


def is_no_insert(start: bytes) -> bool:
    """Whether a message that starts with these bytes is certainly no insert; a compressed one does not show that."""
    return (
        start[_OPCODE_AT:HEADER_SIZE_BYTES] == _OPCODE_BYTES
        and start[BODY_AT - 1 : BODY_AT] == b"\0"
        and start[_NAME_AT:_INSERT_END] != _INSERT
    )


def no_rest() -> None:
    """For messages that are soon parsed."""


def peek_flags(message: Message) -> int:
    """The flags of a message whose remainder may be invalid; raises ``ProtocolError`` if there are none."""
    if len(message.raw) < HEADER_SIZE_BYTES + 4:
        raise ProtocolError("OP_MSG without flags")
    flags: int = _FLAGS.unpack_from(message.raw, HEADER_SIZE_BYTES)[0]
    if flags & ILLEGAL_FLAGS:
        raise ProtocolError(f"OP_MSG with unknown required flags {flags:#x}")
    return flags


def prepare(message: Message, rest: Callable[[], None]) -> None:
    """Parse a large message in a thread, so that ``parse`` has it at once.

    ``rest`` is called after each short piece of work, to let other threads go on.
    """
    try:
        parts = _parse(message, rest)
        if parts.body.startswith(_INSERT, 4) and len(parts.body) > _MANY_BYTES:
            parts.array = _array(parts.body, rest)
        message.parts = parts
    except (CommandError, ProtocolError) as error:
        message.parts = error.with_traceback(None)


def _array(body: bytes, rest: Callable[[], None]) -> SequenceOf[bytes] | None:
    kind, start, end = top_level(body, _MOST_FIELDS).get(b"documents", (0, 0, 0))
    return array_documents(body, start, end, rest) if kind == ARRAY else None


def parse(message: Message) -> OpMsg:
    """Raises ``ProtocolError`` (close the connection) or ``CommandError`` (reply and continue), as 6.0.5 does."""
    parts = message.parts
    if parts is not None:
        if isinstance(parts, OpMsg):
            return parts
        assert isinstance(parts, Exception)
        raise parts
    return _parse(message, no_rest)


def _parse(message: Message, rest: Callable[[], None]) -> OpMsg:
    raw = message.raw
    flags = peek_flags(message)
    end = len(raw)
    if flags & CHECKSUM_PRESENT:
        end = _without_checksum(raw)
    # Nearly every message is one body, or one body and one sequence.
    if end > BODY_AT and raw[BODY_AT - 1] == _BODY_KIND:
        body_end = document_end(raw, BODY_AT, end)
        if body_end == end:
            return OpMsg(flags, _cut(raw, BODY_AT, end, rest))
    return _parse_sections(raw, flags, end, rest)


def _cut(raw: bytes, start: int, end: int, rest: Callable[[], None]) -> bytes:
    """``raw[start:end]``, which is copied in pieces if it is large: copying 16 MB at once takes ten milliseconds."""
    if end - start <= _CUT_AT_ONCE_BYTES:
        return raw[start:end]
    pieces: list[bytes] = []
    for at in range(start, end, _CUT_AT_ONCE_BYTES):
        pieces.append(raw[at : min(at + _CUT_AT_ONCE_BYTES, end)])
        rest()
    # This does not hold the interpreter's lock.
    return b"".join(pieces)


def _without_checksum(raw: bytes) -> int:
    end = len(raw) - 4
    if end <= HEADER_SIZE_BYTES + 4:
        raise CommandError(51252, "Invalid message size for an OpMsg containing a checksum")
    if crc32c(memoryview(raw)[:end]) != _FLAGS.unpack_from(raw, end)[0]:
        raise ProtocolError("OP_MSG checksum does not match contents")
    return end


def _parse_sections(raw: bytes, flags: int, end: int, rest: Callable[[], None]) -> OpMsg:
    body: bytes | None = None
    sequences: list[Sequence] = []
    position = HEADER_SIZE_BYTES + 4
    while position < end:
        kind = raw[position]
        position += 1
        if kind == _BODY_KIND:
            if body is not None:
                raise CommandError(40430, "Multiple body sections in message")
            section_end = document_end(raw, position, end)
            body = _cut(raw, position, section_end, rest)
        elif kind == _SEQUENCE_KIND:
            if len(sequences) == _MOST_SEQUENCES:
                raise ProtocolError(f"OP_MSG with more than {_MOST_SEQUENCES} document sequences")
            sequence, section_end = _parse_sequence(raw, position, end, rest)
            if any(sequence[0] == other for other, _ in sequences):
                raise CommandError(40431, f"Duplicate document sequence: {sequence[0]}")
            sequences.append(sequence)
        elif kind == _SECURITY_TOKEN_KIND:
            raise CommandError(UNAUTHORIZED, "Unsupported Security Token provided")
        else:
            raise CommandError(40432, f"Unknown section kind {kind}")
        position = section_end
    if body is None:
        raise CommandError(40587, "OP_MSG messages must have a body")
    return OpMsg(flags, body, tuple(sequences))


def _parse_sequence(raw: bytes, start: int, end: int, rest: Callable[[], None]) -> tuple[Sequence, int]:
    if end - start < 4:
        raise CommandError(_OVERFLOW, f"Not enough data for the length of a document sequence: {end - start} bytes")
    size: int = LENGTH.unpack_from(raw, start)[0]
    if size < 4 or size > end - start:
        raise CommandError(
            _OVERFLOW, f"Invalid advance ({(size - 4) & 0xFFFFFFFF}) past end of buffer[{end - start - 4}] at offset: 0"
        )
    section_end = start + size
    name_end = raw.find(0, start + 4, section_end)
    if name_end < 0:
        raise CommandError(
            _OVERFLOW, f"couldn't locate terminal char (\\u0000) in buffer[{section_end - start - 4}] at offset: 0"
        )
    documents: list[bytes] = []
    count = 0
    position = name_end + 1
    rest_at = position + REST_BYTES
    while position < section_end:
        document_stop = document_end(raw, position, section_end)
        count += 1
        if count <= MOST_DOCUMENTS:
            documents.append(_cut(raw, position, document_stop, rest))
        position = document_stop
        if position >= rest_at:
            rest()
            rest_at = position + REST_BYTES
    if count > MOST_DOCUMENTS:
        # Millions of empty ones would fit, each an object of its own.
        raise CommandError(BATCH_TOO_LARGE, too_many_documents(count))
    return (raw[start + 4 : name_end].decode(errors="replace"), tuple(documents)), section_end


def build(
    request_id: int,
    response_to: int,
    body: bytes,
    sequences: Iterable[tuple[str, Iterable[bytes]]] = (),
    flags: int = 0,
) -> bytes:
    """A whole message; with ``CHECKSUM_PRESENT`` in ``flags`` its checksum is added."""
    if not sequences and not flags & CHECKSUM_PRESENT:
        return _REPLY_HEAD.pack(BODY_AT + len(body), request_id, response_to, _OPCODE, flags, _BODY_KIND) + body
    parts = [body]
    for identifier, documents in sequences:
        payload = identifier.encode() + b"\0" + b"".join(documents)
        parts.append(b"\x01" + LENGTH.pack(4 + len(payload)) + payload)
    sections = b"".join(parts) if len(parts) > 1 else body
    size = BODY_AT + len(sections)
    if not flags & CHECKSUM_PRESENT:
        return _REPLY_HEAD.pack(size, request_id, response_to, _OPCODE, flags, _BODY_KIND) + sections
    raw = _REPLY_HEAD.pack(size + 4, request_id, response_to, _OPCODE, flags, _BODY_KIND) + sections
    return raw + _FLAGS.pack(crc32c(raw))


def asking_for_reply(raw: bytes) -> bytes:
    """The same request so that there is one reply: without ``moreToCome``, ``exhaustAllowed`` and a checksum."""
    _, request_id, response_to, opcode = HEADER.unpack_from(raw)
    flags: int = _FLAGS.unpack_from(raw, HEADER_SIZE_BYTES)[0]
    end = len(raw) - 4 if flags & CHECKSUM_PRESENT else len(raw)
    kept = flags & ~(MORE_TO_COME | EXHAUST_ALLOWED | CHECKSUM_PRESENT)
    head = HEADER.pack(end, request_id, response_to, opcode) + _FLAGS.pack(kept)
    return b"".join((head, memoryview(raw)[HEADER_SIZE_BYTES + 4 : end]))


def head(request_id: int, response_to: int, body_size_bytes: int) -> bytes:
    """The bytes before the body of a message that has only a body and no flags."""
    return _REPLY_HEAD.pack(BODY_AT + body_size_bytes, request_id, response_to, _OPCODE, 0, _BODY_KIND)
