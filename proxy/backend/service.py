"""Service connections: connections of the proxy's own account, for commits and other frequent commands.

They use OP_MSG directly, without the driver, because every writer waits for a commit. Less frequent commands go through
the driver's client (``proxy.backend.backend``), which also finds the primary.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from catalog.errors import BackendUnavailable
from proxy.upstream.connecting import connect
from proxy.upstream.keepalive import keep_alive

_HEADER = struct.Struct("<iiiiIB")
_OP_MSG = 2013
_LENGTH = struct.Struct("<i")
_REPLY_BODY_AT = 21
"""Offset of the reply document: header (16), flags (4) and the kind byte come before it."""

_SHORTEST_WAIT_SECONDS = 2.0
"""The time to wait for a reply if the deadline is earlier, or has passed already."""


class NotSent(BackendUnavailable):
    """No byte of the request left the proxy."""


class LostAfterSending(BackendUnavailable):
    """The connection ended after the request was sent and before the reply came."""


Authenticate = Callable[["ServiceConnection"], Awaitable[None]]
OnAnswered = Callable[[str, int, float], None]
"""Called for each reply: name and length of the document sequence, and the response time in seconds."""


class ServiceConnection(asyncio.Protocol):
    """One service connection; it carries one request at a time."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiter: asyncio.Future[bytes] | None = None
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
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(LostAfterSending(f"{self.address}: no answer in time", code=89))
        self.close()

    async def request(self, body: bytes, identifier: str = "", documents: Sequence[bytes] = ()) -> bytes:
        """Send one command and wait for the reply document.

        ``documents`` are sent as a document sequence named ``identifier``. Raises ``NotSent`` or ``LostAfterSending``.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSent(f"{self.address}: connection closed")
        self._request_id += 1
        length = _REPLY_BODY_AT + len(body)
        sequence: Sequence[bytes] = ()
        if identifier:
            name = identifier.encode() + b"\0"
            size_bytes = 4 + len(name) + sum(map(len, documents))
            sequence = (b"\x01", _LENGTH.pack(size_bytes), name, *documents)
            length += 1 + size_bytes
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        transport.write(b"".join((_HEADER.pack(length, self._request_id, 0, _OP_MSG, 0, 0), body, *sequence)))
        try:
            return await waiter
        except asyncio.CancelledError:
            transport.abort()
            raise
        finally:
            self._waiter = None

    # --- asyncio.Protocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transports are not registered as subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < 4:
            return
        length: int = _LENGTH.unpack_from(buffer)[0]
        if len(buffer) < length:
            return
        document = bytes(memoryview(buffer)[_REPLY_BODY_AT:length])
        self._buffer = buffer[length:] if len(buffer) > length else bytearray()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(document)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(LostAfterSending(f"{self.address}: {exc or 'connection closed'}"))


class Deadlines:
    """Ends requests whose deadline has passed. All requests share one timer, because one for each would cost more."""

    def __init__(self) -> None:
        self._under_way: dict[ServiceConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_seconds = 0.0

    def watch(self, connection: ServiceConnection, deadline_seconds: float) -> None:
        """Expire the connection at this time of the event loop's clock, unless ``forget`` is called before."""
        self._under_way[connection] = deadline_seconds
        if self._timer is None or deadline_seconds < self._due_seconds:
            self._schedule(deadline_seconds)

    def forget(self, connection: ServiceConnection) -> None:
        """The connection's request has ended."""
        self._under_way.pop(connection, None)

    def _schedule(self, due_seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_seconds = due_seconds
        self._timer = asyncio.get_running_loop().call_at(due_seconds, self._expire)

    def _expire(self) -> None:
        # An event loop may call a timer slightly before its time.
        now_seconds = max(asyncio.get_running_loop().time(), self._due_seconds)
        self._timer = None
        for connection, deadline_seconds in list(self._under_way.items()):
            if deadline_seconds <= now_seconds:
                del self._under_way[connection]
                connection.expire()
        if self._under_way:
            self._schedule(min(self._under_way.values()))


class ServicePool:
    """A pool of service connections to the primary."""

    def __init__(
        self,
        find_primary: Callable[[float], Awaitable[tuple[str, int]]],
        authenticate: Authenticate | None,
        tls: ssl.SSLContext | None,
        connect_timeout_seconds: float,
        size: int = 16,
        answered: OnAnswered = lambda identifier, length, seconds: None,
    ) -> None:
        """``find_primary(timeout in seconds)`` raises ``BackendUnavailable`` if no primary is found in time.

        ``answered`` is called after each reply.
        """
        self.find_primary = find_primary
        self._authenticate = authenticate
        self.tls = tls
        self._connect_timeout_seconds = connect_timeout_seconds
        self._size = size
        self._idle: deque[ServiceConnection] = deque()
        self._places = asyncio.Semaphore(size)
        self._primary: tuple[str, int] | None = None
        self._deadlines = Deadlines()
        self._closed = False
        self._answered = answered

    @property
    def address(self) -> str:
        """The address of the primary; ``""`` before it is known."""
        return "" if self._primary is None else "{}:{}".format(*self._primary)

    def another(self, size: int) -> ServicePool:
        """Another pool with the same settings, for slow requests: requests of this pool do not wait for those."""
        return ServicePool(self.find_primary, self._authenticate, self.tls, self._connect_timeout_seconds, size)

    def forget_primary(self) -> None:
        """Close the idle connections and find the primary again, because it may have changed."""
        self._primary = None
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Close every idle connection; those in use are closed at the end of their request."""
        self._closed = True
        self.forget_primary()

    async def request(
        self, body: bytes, deadline_seconds: float, identifier: str = "", documents: Sequence[bytes] = ()
    ) -> bytes:
        """Send one command on any connection; returns the reply document.

        Raises ``NotSent`` if it cannot be sent before the deadline, and ``LostAfterSending`` if the connection is lost
        or no reply arrives by then: writers must not wait for a backend that is stopped or cut off.
        """
        if self._places.locked():
            try:
                async with asyncio.timeout_at(deadline_seconds):
                    await self._places.acquire()
            except TimeoutError:
                raise NotSent("all connections to the backend are busy") from None
        else:
            await self._places.acquire()
        try:
            connection = await self._connected(deadline_seconds)
            return await self._asked(connection, body, deadline_seconds, identifier, documents)
        finally:
            self._places.release()

    async def _asked(
        self,
        connection: ServiceConnection,
        body: bytes,
        deadline_seconds: float,
        identifier: str,
        documents: Sequence[bytes],
    ) -> bytes:
        earliest_seconds = asyncio.get_running_loop().time() + _SHORTEST_WAIT_SECONDS
        self._deadlines.watch(connection, max(deadline_seconds, earliest_seconds))
        sent_at_seconds = time.perf_counter()  # the loop's time is in whole milliseconds
        try:
            reply = await connection.request(body, identifier, documents)
        except BackendUnavailable:
            self.forget_primary()
            raise
        finally:
            self._deadlines.forget(connection)
        self._answered(identifier, len(documents), time.perf_counter() - sent_at_seconds)
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return reply

    async def _connected(self, deadline_seconds: float) -> ServiceConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        pause_seconds = 0.02
        while True:
            try:
                return await self._connect(deadline_seconds)
            except (OSError, TimeoutError, BackendUnavailable) as error:
                self._primary = None
                if isinstance(error, BackendUnavailable) and not isinstance(error, (NotSent, LostAfterSending)):
                    raise NotSent(error.message, code=error.code) from None
                if loop.time() + pause_seconds >= deadline_seconds:
                    raise NotSent(f"cannot reach the backend: {error}") from None
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, 0.5)

    async def _connect(self, deadline_seconds: float) -> ServiceConnection:
        loop = asyncio.get_running_loop()
        left_seconds = max(deadline_seconds - loop.time(), 0.01)
        if self._primary is None:
            self._primary = await self.find_primary(left_seconds)
        host, port = self._primary
        address = f"{host}:{port}"
        async with asyncio.timeout(min(left_seconds, self._connect_timeout_seconds)):
            transport, connection = await connect(lambda: ServiceConnection(address), host, port, self.tls)
            keep_alive(transport)
            if self._authenticate is not None:
                try:
                    await self._authenticate(connection)
                except BaseException:
                    connection.close()
                    raise
        return connection
