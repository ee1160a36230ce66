"""The upstream connection of one client: opened when it is first needed, used for everything that is relayed.

Replies are streamed, not collected: the client gets the bytes as they arrive, and reading stops while the client does
not read. Steps of plans use the same connection between relayed commands, so sessions, transactions, cursors and
identities are the client's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, cast

import bson

from catalog.bson.codec import CODEC, TOLERANT
from catalog.bson.raw import MalformedBSON
from catalog.errors import BackendUnavailable, CommandError
from proxy.upstream.back_pressure import BackPressure
from proxy.upstream.file_limit import NoFilesLeft
from proxy.upstream.keepalive import keep_alive
from proxy.upstream.not_primary import not_primary
from proxy.upstream.server_process import process_of
from proxy.upstream.sink import Sink
from proxy.wire import op_msg, op_query
from proxy.wire.errors import ProtocolError
from proxy.wire.framing import document_end
from proxy.wire.limits import HEADER_SIZE_BYTES, MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import HEADER, Message, Opcode
from proxy.wire.reader import MessageReader
from proxy.wire.request_ids import next_request_id

if TYPE_CHECKING:
    from proxy.upstream.dialing import Dialer

_HEAD_SIZE_BYTES: Final = HEADER_SIZE_BYTES + 4
"""Header and flags: the part of a reply that determines its end and whether another follows."""


class UpstreamLost(BackendUnavailable):
    """The connection ended while a command was running; the client's connection ends, too."""


_CODE: Final = b"\x10code\0"
_ERROR_REPLY_MAX_BYTES: Final = 4096


class State(Enum):
    """The state of the connection."""

    IDLE = auto()
    STREAMING = auto()
    COLLECTING = auto()
    CLOSED = auto()


_IDLE: Final = State.IDLE
_STREAMING: Final = State.STREAMING
_COLLECTING: Final = State.COLLECTING
_CLOSED: Final = State.CLOSED
"""Looking up members of an enumeration is slow on the path of every reply."""


class UpstreamConnection(BackPressure):
    """One connection to the backend, one exchange at a time."""

    def __init__(
        self, address: str, on_lost: Callable[[], None], on_not_primary: Callable[[str], None] | None = None
    ) -> None:
        """``on_lost`` is called when the connection ends while no command is running.

        ``on_not_primary`` is called with the address when a reply says that this server is no longer the primary.
        """
        super().__init__()
        self.address = address
        self.state: State = _IDLE
        self._on_lost = on_lost
        self._on_not_primary = on_not_primary
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
        """Send a request that has no reply; raises ``UpstreamLost`` when the connection has ended."""
        self._open_transport().write(raw)
        self.sent_ahead(len(raw))

    def stream(self, raw: bytes, sink: Sink) -> None:
        """Send a request; its reply goes to ``sink`` as it comes. Raises ``UpstreamLost`` as ``send``."""
        transport = self._open_transport()
        assert self.state is _IDLE
        self.state = _STREAMING
        self._sink = sink
        self._left_bytes, self._any_sent = 0, False
        self.asked_for_reply()
        transport.write(raw)

    def _open_transport(self) -> asyncio.Transport:
        """A connection may end after it became ready and before it is used."""
        if self._transport is None or self.state is _CLOSED:
            raise UpstreamLost(f"connection to {self.address} lost")
        return self._transport

    async def exchange(self, raw: bytes) -> Message:
        """Send a request and collect its reply; raises ``BackendUnavailable``. Cancelling closes the connection."""
        transport = self._open_transport()
        assert self.state is _IDLE
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.state = _COLLECTING
        self._waiter = waiter
        transport.write(raw)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def pause(self) -> None:
        """Pause reading: the client does not keep up."""
        if self._transport is not None and self.state is _STREAMING and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once, without callbacks; who waits for a collected reply gets ``UpstreamLost``."""
        self.state = _CLOSED
        self._sink = None
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(UpstreamLost(f"connection to {self.address} closed"))
        self.resume_writing()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # --- asyncio.Protocol ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self.state is _STREAMING:
            self._forward(data)
        elif self.state is _COLLECTING:
            self._collect(data)
        elif self.state is _IDLE:
            # Unexpected bytes: the connection cannot be used any more.
            self._lose(BackendUnavailable(f"{self.address}: unexpected bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self.resume_writing()
        if self.state is not _CLOSED:
            self._lose(UpstreamLost(f"connection to {self.address} lost: {exc or 'closed by the backend'}"))

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
                deposed = self._on_not_primary is not None and self._judge(data)
                self.state = _IDLE
                self._sink = None
                if deposed:
                    sink.deposed(data)
                else:
                    sink.whole(data)
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
            self.state = _IDLE
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
            self._judge(message.raw)
            self.state = _IDLE
            self._waiter.set_result(message)

    def _judge(self, reply: bytes) -> bool:
        """Detect that the primary steps down. A user's document may contain such a code, so the reply is parsed."""
        if self._on_not_primary is None or len(reply) > _ERROR_REPLY_MAX_BYTES or reply.find(_CODE) < 0:
            return False
        try:
            says_so = not_primary(reply[op_msg.BODY_AT : document_end(reply, op_msg.BODY_AT, len(reply))])
        except (CommandError, MalformedBSON):
            return False
        if says_so is None:
            return False
        self._on_not_primary(self.address)
        return True

    def _lose(self, error: BackendUnavailable) -> None:
        state, sink, waiter = self.state, self._sink, self._waiter
        any_sent = self._any_sent
        self._waiter = None
        self.close()
        if state is _STREAMING and sink is not None:
            sink.failed(error, any_sent)
        elif state is _COLLECTING and waiter is not None and not waiter.done():
            waiter.set_exception(error)
        else:
            self._on_lost()


_PLAIN_HELLO: Final = bson.encode({"hello": 1, "$db": "admin"})


def reply_document(message: Message) -> bytes:
    """The raw document of a collected reply."""
    if message.opcode == Opcode.REPLY:
        return op_query.reply_document(message)
    return message.raw[op_msg.BODY_AT : document_end(message.raw, op_msg.BODY_AT, len(message.raw))]


class Upstream:
    """One client's access to the backend: its connection, if open, and how to open one."""

    def __init__(self, dialer: Dialer, on_lost: Callable[[], None], *, to_primary: bool = True) -> None:
        """``on_lost`` is called when an idle connection ends; ``to_primary``: only the primary of a set is used."""
        self._dialer = dialer
        self._to_primary = to_primary
        self._on_lost = on_lost
        self.hello = b""
        self._connection: UpstreamConnection | None = None
        self.process = b""
        """The server process of the current or last connection (``proxy.upstream.server_process``), if it is known."""
        self.is_closed = False
        """The client is gone."""
        self._retired = False
        self.is_bound = False
        """A login was made, or begun, over the connection, so it cannot be replaced."""

    @property
    def ready(self) -> UpstreamConnection | None:
        """The open connection, if there is one."""
        connection = self._connection
        if connection is None or connection.state is _CLOSED:
            return None
        if self._retired and connection.state is _IDLE:
            if not self.is_bound:
                connection.close()
            return None
        return connection

    @property
    def address(self) -> str:
        """The address of the current or last connection; ``""`` before the first."""
        return self._connection.address if self._connection is not None else ""

    @property
    def is_retired(self) -> bool:
        """Whether the connection is to a server that is no longer the primary."""
        return self._retired

    def retire(self) -> None:
        """There is another primary: the next command uses a new connection, if that is possible."""
        self._retired = True

    def reinstate(self) -> None:
        """The server became the primary again before the next command."""
        if self._connection is not None and self._connection.state is not _CLOSED:
            self._retired = False

    async def connect(self, hello: bytes | None = None) -> UpstreamConnection:
        """The open connection, opened and greeted with ``hello`` (default: the client's own) if need be.

        Raises ``BackendUnavailable``, or ``CommandError`` if the backend refuses hello.
        """
        connection = self.ready
        if connection is not None:
            return connection
        if self.is_bound:
            raise UpstreamLost(f"the authenticated connection to {self.address} was lost")
        loop = asyncio.get_running_loop()
        deadline_seconds = loop.time() + self._dialer.patience_seconds
        pause_seconds = 0.05
        while True:
            try:
                connection = await self._dial_and_greet(hello or self.hello or _PLAIN_HELLO)
            except NoFilesLeft:
                raise
            except BackendUnavailable:
                if self.is_closed or loop.time() + pause_seconds >= deadline_seconds:
                    raise
            else:
                return connection
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, 0.5)

    async def _dial_and_greet(self, greeting: bytes) -> UpstreamConnection:
        connection = await self._dialer.dial(self._on_lost)
        if self.is_closed:
            # The client has disconnected meanwhile; nobody else would close this connection.
            connection.close()
            raise BackendUnavailable("the client has disconnected")
        self._connection = connection
        self.process = b""
        self._retired = False
        reply = await connection.exchange(op_msg.build(next_request_id(), 0, greeting))
        answer = bson.decode(reply_document(reply), codec_options=TOLERANT)
        if not answer.get("ok"):
            connection.close()
            raise CommandError(int(str(answer.get("code", 1))), str(answer.get("errmsg", "hello refused")))
        if self._to_primary and "setName" in answer and not (answer.get("isWritablePrimary") or answer.get("ismaster")):
            connection.close()
            raise BackendUnavailable(f"{connection.address} is not the primary", code=10107)
        self.process = process_of(answer)
        return connection

    async def exchange(self, raw: bytes) -> Message:
        """One raw request and its whole reply; raises ``BackendUnavailable``."""
        connection = await self.connect()
        return await connection.exchange(raw)

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """One command of the proxy over the client's connection: the raw reply document, ``ok: 0`` replies too.

        ``body`` has no ``$db``; ``extra`` are further raw elements, those of the session.
        Raises ``BackendUnavailable``.
        """
        raw = body if isinstance(body, bytes) else bson.encode(body, codec_options=CODEC)
        name = database.encode()
        tail = extra + b"\x02$db\0" + (len(name) + 1).to_bytes(4, "little") + name + b"\0\0"
        document = (len(raw) - 1 + len(tail)).to_bytes(4, "little") + raw[4:-1] + tail
        return reply_document(await self.exchange(op_msg.build(next_request_id(), 0, document)))

    def close(self) -> None:
        """The client has disconnected: close the connection, and open no other."""
        self.is_closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
