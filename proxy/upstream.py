"""The backend connection that belongs to one client: opened when first needed, carries everything relayed.

Replies stream through without being collected: what the backend sends goes to the client as it comes, and reading
stops while the client does not read. Commands of translated plans go over the same connection between the relayed
ones, so that sessions, transactions, cursors and identities are the client's own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

import bson

from catalog.bson.codec import CODEC
from catalog.errors import BackendUnavailable, CommandError
from proxy.session import next_request_id
from proxy.wire import op_msg, op_query
from proxy.wire.errors import ProtocolError
from proxy.wire.framing import document_end
from proxy.wire.limits import HEADER_SIZE_BYTES, MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import HEADER, Message, Opcode
from proxy.wire.reader import MessageReader

_HEAD_SIZE_BYTES: Final = HEADER_SIZE_BYTES + 4
"""Header and flags: what must be seen of a reply to know where it ends and whether another follows."""


class Sink(Protocol):
    """Where a streamed reply goes."""

    def write(self, data: bytes) -> None:
        """The next bytes of the reply."""
        ...

    def done(self) -> None:
        """The reply, with all that its ``moreToCome`` promised, is complete."""
        ...

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """The backend's connection ended before that."""
        ...


class State(Enum):
    """What the connection is doing."""

    IDLE = auto()
    STREAMING = auto()
    COLLECTING = auto()
    CLOSED = auto()


class UpstreamConnection(asyncio.Protocol):
    """One connection to the backend, one exchange at a time."""

    def __init__(self, address: str, on_lost: Callable[[], None]) -> None:
        """``on_lost`` is called when the connection ends while nothing is under way."""
        self.address = address
        self.state = State.IDLE
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[Message] | None = None
        self._reader = MessageReader(MAX_MESSAGE_SIZE_BYTES + HEADER_SIZE_BYTES)
        # Of the reply that streams now: bytes still to come, whether one follows, its first bytes if not yet judged.
        self._left_bytes = 0
        self._more_to_come = False
        self._head = b""
        self._any_sent = False

    # --- requests --------------------------------------------------------------------------------------------

    def send(self, raw: bytes) -> None:
        """Send a request that has no reply."""
        assert self._transport is not None
        self._transport.write(raw)

    def stream(self, raw: bytes, sink: Sink) -> None:
        """Send a request; its reply goes to ``sink`` as it comes."""
        assert self.state is State.IDLE
        assert self._transport is not None
        self.state = State.STREAMING
        self._sink = sink
        self._left_bytes = 0
        self._any_sent = False
        self._transport.write(raw)

    async def exchange(self, raw: bytes) -> Message:
        """Send a request and collect its reply; raises ``BackendUnavailable``. Cancelling closes the connection."""
        assert self.state is State.IDLE
        assert self._transport is not None
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.state = State.COLLECTING
        self._waiter = waiter
        self._transport.write(raw)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def pause(self) -> None:
        """Stop reading: the client does not keep up."""
        if self._transport is not None and self.state is State.STREAMING and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once; nobody is told."""
        self.state = State.CLOSED
        self._sink = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # --- asyncio.Protocol ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self.state is State.STREAMING:
            self._forward(data)
        elif self.state is State.COLLECTING:
            self._collect(data)
        elif self.state is State.IDLE:
            # Nothing was asked: this is no conversation any more.
            self._lose(BackendUnavailable(f"{self.address}: unexpected bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        if self.state is not State.CLOSED:
            self._lose(BackendUnavailable(f"connection to {self.address} lost: {exc or 'closed by the backend'}"))

    # --- replies ---------------------------------------------------------------------------------------------

    def _forward(self, data: bytes) -> None:
        sink = self._sink
        assert sink is not None
        if self._head:
            data = self._head + data
            self._head = b""
        size = len(data)
        if self._left_bytes == 0 and size >= _HEAD_SIZE_BYTES:
            length, _, _, opcode = HEADER.unpack_from(data)
            if length == size and not (opcode == 2013 and data[HEADER_SIZE_BYTES] & op_msg.MORE_TO_COME):
                # The usual case: one reply, in one piece.
                self.state = State.IDLE
                self._sink = None
                sink.write(data)
                sink.done()
                return
        position = 0
        while position < size:
            if self._left_bytes == 0:
                if size - position < _HEAD_SIZE_BYTES:
                    self._head = data[position:]
                    break
                length, _, _, opcode = HEADER.unpack_from(data, position)
                if not _HEAD_SIZE_BYTES <= length <= MAX_MESSAGE_SIZE_BYTES + HEADER_SIZE_BYTES:
                    self._lose(BackendUnavailable(f"{self.address}: reply of impossible length {length}"))
                    return
                flags = data[position + HEADER_SIZE_BYTES]
                self._more_to_come = opcode == Opcode.MSG and bool(flags & op_msg.MORE_TO_COME)
                self._left_bytes = length
            step = min(self._left_bytes, size - position)
            self._left_bytes -= step
            position += step
            if self._left_bytes == 0 and not self._more_to_come:
                break
        self._any_sent = self._any_sent or position > 0
        complete = self._left_bytes == 0 and not self._more_to_come and position > 0 and not self._head
        if complete:
            self.state = State.IDLE
            self._sink = None
        sink.write(data if position == size else data[:position])
        if complete:
            sink.done()

    def _collect(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            message = self._reader.next()
        except ProtocolError as error:
            self._lose(BackendUnavailable(f"{self.address}: {error}"))
            return
        if message is not None and self._waiter is not None and not self._waiter.done():
            self.state = State.IDLE
            self._waiter.set_result(message)

    def _lose(self, error: BackendUnavailable) -> None:
        state, sink, waiter = self.state, self._sink, self._waiter
        any_sent = self._any_sent
        self.close()
        if state is State.STREAMING and sink is not None:
            sink.failed(error, any_sent)
        elif state is State.COLLECTING and waiter is not None and not waiter.done():
            waiter.set_exception(error)
        else:
            self._on_lost()


class Dialer:
    """How to reach the backend: its address now, TLS, and how long a connection may take."""

    def __init__(
        self,
        address: Callable[[], Awaitable[tuple[str, int]]],
        tls: ssl.SSLContext | None,
        timeout_seconds: float,
    ) -> None:
        self._address = address
        self._tls = tls
        self._timeout_seconds = timeout_seconds

    async def dial(self, on_lost: Callable[[], None]) -> UpstreamConnection:
        """A connection before its hello; raises ``BackendUnavailable``."""
        host, port = await self._address()
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(name, on_lost),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls is not None else None,
                )
        except TimeoutError:
            raise BackendUnavailable(
                f"the backend {name} did not accept a connection within {self._timeout_seconds:g} s"
            ) from None
        except OSError as error:
            raise BackendUnavailable(f"cannot connect to the backend {name}: {error}") from None
        return connection


def reply_document(message: Message) -> bytes:
    """The raw document of a collected reply."""
    if message.opcode == Opcode.REPLY:
        return op_query.reply_document(message)
    return message.raw[op_msg.BODY_AT : document_end(message.raw, op_msg.BODY_AT, len(message.raw))]


class Upstream:
    """One client's way to the backend: a connection when there is one, and how to get one."""

    def __init__(self, dialer: Dialer, on_lost: Callable[[], None]) -> None:
        """``on_lost`` is called when an idle connection ends."""
        self._dialer = dialer
        self._on_lost = on_lost
        self.hello = b""
        self._connection: UpstreamConnection | None = None
        self._closed = False

    @property
    def ready(self) -> UpstreamConnection | None:
        """The open connection, if there is one."""
        connection = self._connection
        return connection if connection is not None and connection.state is not State.CLOSED else None

    async def connect(self, hello: bytes | None = None) -> UpstreamConnection:
        """The open connection, opened and greeted with ``hello`` (default: the client's own) if need be.

        Raises ``BackendUnavailable``, or ``CommandError`` when the backend refuses the greeting.
        """
        connection = self.ready
        if connection is None:
            connection = await self._dialer.dial(self._on_lost)
            if self._closed:
                # The client left meanwhile; nobody would close this connection any more.
                connection.close()
                raise BackendUnavailable("the client has left")
            self._connection = connection
            greeting = hello or self.hello or bson.encode({"hello": 1, "$db": "admin"})
            reply = await connection.exchange(op_msg.build(next_request_id(), 0, greeting))
            answer = bson.decode(reply_document(reply), codec_options=CODEC)
            if not answer.get("ok"):
                connection.close()
                raise CommandError(int(str(answer.get("code", 1))), str(answer.get("errmsg", "hello refused")))
        return connection

    async def exchange(self, raw: bytes) -> Message:
        """One raw request and its whole reply; raises ``BackendUnavailable``."""
        connection = await self.connect()
        return await connection.exchange(raw)

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """One command of ours over the client's connection: the raw reply document, ``ok: 0`` replies too.

        ``body`` has no ``$db``; ``extra`` are further raw elements (``Command.session_fields``).
        Raises ``BackendUnavailable``.
        """
        raw = body if isinstance(body, bytes) else bson.encode(body, codec_options=CODEC)
        name = database.encode()
        tail = extra + b"\x02$db\0" + (len(name) + 1).to_bytes(4, "little") + name + b"\0\0"
        document = (len(raw) - 1 + len(tail)).to_bytes(4, "little") + raw[4:-1] + tail
        return reply_document(await self.exchange(op_msg.build(next_request_id(), 0, document)))

    def close(self) -> None:
        """The client is gone: the connection ends, and no other is opened."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
