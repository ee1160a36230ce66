"""One connection of the proxy's own account: sends a command, and tells whoever wants it the reply."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

from catalog.errors import BackendUnavailable

_HEADER = struct.Struct("<iiiiIB")
_OP_MSG = 2013
_LENGTH = struct.Struct("<i")
_REPLY_BODY_AT = 21
"""Offset of the reply document: header (16), flags (4) and the kind byte come before it."""


LOGIN_REFUSED = frozenset({11, 18})
"""Error codes of a server that does not accept the account."""


class NotSent(BackendUnavailable):
    """No byte of the request left the proxy."""


class LostAfterSending(BackendUnavailable):
    """The connection ended after the request was sent and before the reply came."""


Authenticate = Callable[["ServiceConnection"], Awaitable[None]]
ServiceAnswer: TypeAlias = bytes | LostAfterSending
"""The reply document, or why there is none."""
OnAnswer: TypeAlias = Callable[[ServiceAnswer], None]
"""Called once with the answer. It must not raise."""


class ServiceConnection(asyncio.Protocol):
    """One service connection; it carries one request at a time."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_retired = False
        """Whether it is closed after its request."""
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._told: OnAnswer | None = None
        self._request_id = 0

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """No reply has arrived in time: the request fails, and the connection is closed."""
        self._tell(LostAfterSending(f"{self.address}: no answer in time", code=89))
        self.close()

    def abandon(self) -> None:
        """Nobody wants the reply any more: close the connection."""
        self._told = None
        self.close()

    def send(self, told: OnAnswer, body: bytes, identifier: str = "", documents: Sequence[bytes] = ()) -> None:
        """Send one command; ``told`` is called with the answer, in a later turn of the event loop.

        ``documents`` are sent as a document sequence named ``identifier``. Raises ``NotSent``.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSent(f"{self.address}: connection closed")
        self._request_id += 1
        length = _REPLY_BODY_AT + len(body)
        if identifier:
            name = identifier.encode() + b"\0"
            size_bytes = 4 + len(name) + sum(map(len, documents))
            length += 1 + size_bytes
            head = _HEADER.pack(length, self._request_id, 0, _OP_MSG, 0, 0)
            message = b"".join((head, body, b"\x01", _LENGTH.pack(size_bytes), name, *documents))
        else:
            message = _HEADER.pack(length, self._request_id, 0, _OP_MSG, 0, 0) + body
        self._told = told
        transport.write(message)

    async def request(self, body: bytes, identifier: str = "", documents: Sequence[bytes] = ()) -> bytes:
        """Send one command and wait for the reply document; raises ``NotSent`` or ``LostAfterSending``."""
        waiter = Waiter()
        self.send(waiter.tell, body, identifier, documents)
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            self.abandon()
            raise

    def _tell(self, answer: ServiceAnswer) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(answer)

    # --- asyncio.Protocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transports are not registered as subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if not self._buffer and len(data) >= 4 and len(data) == _LENGTH.unpack_from(data)[0]:
            self._tell(data[_REPLY_BODY_AT:])
            return
        buffer = self._buffer
        buffer += data
        if len(buffer) < 4:
            return
        length: int = _LENGTH.unpack_from(buffer)[0]
        if len(buffer) < length:
            return
        document = bytes(memoryview(buffer)[_REPLY_BODY_AT:length])
        self._buffer = buffer[length:] if len(buffer) > length else bytearray()
        self._tell(document)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._tell(LostAfterSending(f"{self.address}: {exc or 'connection closed'}"))


class Waiter:
    """Waits for an answer in a coroutine."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def tell(self, answer: ServiceAnswer) -> None:
        """It has arrived."""
        if self.answer.done():
            return  # nobody waits any more
        if isinstance(answer, bytes):
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(answer)
