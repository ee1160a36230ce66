"""Splits a byte stream into messages, without I/O.

``next`` returns a message, or ``None`` if more bytes are needed, or raises ``ProtocolError``. The length in a header is
checked before the body arrives, so at most one message of the allowed length is buffered (and what the caller fed in
one piece).

Copying a large message takes long, mostly because new memory is used for the first time. So a large message is returned
in the pieces in which it has arrived, and the caller assembles them in a thread.
"""

from __future__ import annotations

from typing import Final

from proxy.wire.errors import ProtocolError
from proxy.wire.limits import HEADER_SIZE_BYTES, MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import HEADER, LENGTH, OPCODES, Message

_HTTP_GET: Final = b"GET "
_HTTP_ANSWER: Final = (
    b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"This port speaks the MongoDB wire protocol, not HTTP.\r\n"
)


LARGE_BYTES: Final = 512 * 1024
"""Larger messages of clients are returned in pieces."""
_PIECE_BYTES: Final = 16 * 1024
"""Smaller pieces are joined at once, because pieces of one byte would use many times their size."""


class MessageReader:
    """Splits a byte stream into messages."""

    __slots__ = ("_buffer", "_collected_bytes", "_large_bytes", "_missing_bytes", "_pieces", "_whole", "max_size_bytes")

    def __init__(
        self, max_size_bytes: int = MAX_MESSAGE_SIZE_BYTES, large_bytes: int = MAX_MESSAGE_SIZE_BYTES * 2
    ) -> None:
        """Larger messages than ``large_bytes`` have ``pieces``."""
        self._buffer = bytearray()
        self._large_bytes = large_bytes
        self._pieces: list[bytes] | None = None
        self._collected_bytes = 0
        self._missing_bytes = 0
        # A chunk that is exactly one message, the usual case, is never copied.
        self._whole: bytes | None = None
        self.max_size_bytes = max_size_bytes

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that were fed and not consumed yet."""
        return self._collected_bytes + len(self._buffer) + (len(self._whole) if self._whole is not None else 0)

    @property
    def expected_bytes(self) -> int:
        """The length of the message that has arrived in part; 0 if it is not known."""
        if self._pieces is not None:
            return self._collected_bytes + len(self._buffer) + self._missing_bytes
        length: int = LENGTH.unpack_from(self._buffer)[0] if len(self._buffer) >= 4 else 0
        return length

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._missing_bytes:
            data = self._collect(data)
            if not data:
                return
        buffer = self._buffer
        if not buffer and self._whole is None:
            size = len(data)
            if size >= HEADER_SIZE_BYTES and LENGTH.unpack_from(data)[0] == size:
                self._whole = data
                return
        elif self._whole is not None:
            buffer += self._whole
            self._whole = None
        buffer += data

    def _collect(self, data: bytes) -> bytes:
        """Add the next bytes of a large message; returns those after its end."""
        missing = self._missing_bytes
        own = data if len(data) <= missing else data[:missing]
        self._missing_bytes = missing = missing - len(own)
        buffer, pieces = self._buffer, self._pieces
        assert pieces is not None
        if buffer or len(own) < _PIECE_BYTES:
            buffer += own
            if len(buffer) >= _PIECE_BYTES or not missing:
                self._take_piece(pieces, bytes(buffer))
                self._buffer = bytearray()
        else:
            self._take_piece(pieces, own)
        return data[len(own) :]

    def _take_piece(self, pieces: list[bytes], piece: bytes) -> None:
        pieces.append(piece)
        self._collected_bytes += len(piece)

    def _in_pieces(self, pieces: list[bytes]) -> Message:
        _, request_id, response_to, opcode = HEADER.unpack_from(pieces[0])
        message = Message(b"", request_id, response_to, opcode)
        message.pieces = pieces
        self._pieces, self._collected_bytes = None, 0
        return message

    def next(self) -> Message | None:
        """The next message, or ``None`` until more is fed; raises ``ProtocolError`` for an impossible length."""
        if self._pieces is not None:
            return None if self._missing_bytes else self._in_pieces(self._pieces)
        whole = self._whole
        if whole is not None:
            self._whole = None
            size, request_id, response_to, opcode = HEADER.unpack_from(whole)
            if size > self.max_size_bytes:
                raise self._bad_length(size)
            return (
                self._in_pieces([whole])
                if size > self._large_bytes
                else Message(whole, request_id, response_to, opcode)
            )
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        size = LENGTH.unpack_from(buffer)[0]
        if size < HEADER_SIZE_BYTES or size > self.max_size_bytes:
            if buffer[:4] == _HTTP_GET:
                raise ProtocolError("the peer speaks HTTP", _HTTP_ANSWER)
            raise self._bad_length(size)
        if len(buffer) < size:
            # Do not wait for the body of another protocol, such as a TLS handshake.
            if len(buffer) >= HEADER_SIZE_BYTES and HEADER.unpack_from(buffer)[3] not in OPCODES:
                raise ProtocolError("unknown opcode")
            if size > self._large_bytes and len(buffer) >= HEADER_SIZE_BYTES:
                self._pieces, self._missing_bytes = [], size - len(buffer)
                self._take_piece(self._pieces, bytes(buffer))
                self._buffer = bytearray()
            return None
        if len(buffer) == size:
            raw = bytes(buffer)
            self._buffer = bytearray()
        else:
            raw = bytes(memoryview(buffer)[:size])
            del buffer[:size]
        if size > self._large_bytes:
            return self._in_pieces([raw])
        return Message.from_bytes(raw)

    def _bad_length(self, size: int) -> ProtocolError:
        return ProtocolError(f"message length {size} is not between {HEADER_SIZE_BYTES} and {self.max_size_bytes}")
