"""Splits a byte stream into messages, without I/O.

``next`` returns a message, or ``None`` if more bytes are needed, or raises ``ProtocolError``. The length in a header is
checked before the body arrives, so at most one message of the allowed length is buffered (and what the caller fed in
one piece).
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


class MessageReader:
    """Splits a byte stream into messages."""

    __slots__ = ("_buffer", "_whole", "max_size_bytes")

    def __init__(self, max_size_bytes: int = MAX_MESSAGE_SIZE_BYTES) -> None:
        self._buffer = bytearray()
        # A chunk that is exactly one message, the usual case, is never copied.
        self._whole: bytes | None = None
        self.max_size_bytes = max_size_bytes

    @property
    def buffered_bytes(self) -> int:
        """The bytes that were fed and not consumed yet."""
        return len(self._buffer) + (len(self._whole) if self._whole is not None else 0)

    def feed(self, data: bytes) -> None:
        """Add what was received."""
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

    def next(self) -> Message | None:
        """The next message, or ``None`` until more is fed; raises ``ProtocolError`` for an impossible length."""
        whole = self._whole
        if whole is not None:
            self._whole = None
            size, request_id, response_to, opcode = HEADER.unpack_from(whole)
            if size > self.max_size_bytes:
                raise self._bad_length(size)
            return Message(whole, request_id, response_to, opcode)
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
            return None
        if len(buffer) == size:
            raw = bytes(buffer)
            self._buffer = bytearray()
        else:
            raw = bytes(memoryview(buffer)[:size])
            del buffer[:size]
        return Message.from_bytes(raw)

    def _bad_length(self, size: int) -> ProtocolError:
        return ProtocolError(f"message length {size} is not between {HEADER_SIZE_BYTES} and {self.max_size_bytes}")
