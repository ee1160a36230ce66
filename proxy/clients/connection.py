"""A client connection: passes received messages to the dispatcher, sends replies and applies back-pressure.

Each client has one command in progress; further ones start in the order of arrival. Bytes that arrive meanwhile stay in
the reader's buffer, and the socket is not read while that exceeds ``READ_AHEAD_BYTES``. While the client does not read
its replies, its next command is not started and its upstream connection is not read.

What a client has sent without wanting a reply is carried out after it has disconnected or reset the connection, as by a
server, up to the first command that wants one (``proxy.clients.left_client``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol, cast

from proxy.clients.left_client import LeftClient, wants_reply
from proxy.clients.turns import TURN_SECONDS, Turns
from proxy.clients.unwrapping import Unwrapping
from proxy.observe.metrics import ConnectionNumbers
from proxy.request.exchange import Client, Exchange, Pending
from proxy.request.session import Session
from proxy.upstream.keepalive import keep_alive
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from proxy.wire.op_msg import is_no_insert
from proxy.wire.reader import MessageReader

READ_AHEAD_BYTES: Final = 64 * 1024
STARTS_AT_ONCE: Final = 8
"""Commands sent in advance that a connection starts before it queues behind the others."""
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024


class Starts(Protocol):
    """The part of the dispatcher that a connection uses."""

    def start(self, session: Session, message: Message, client: Client) -> Pending:
        """Start the command in ``message``; ``client.finish`` is called at its end. Raises ``ProtocolError``."""
        ...


class Host(Protocol):
    """The owner of the connections: admits them and is notified of their end."""

    def now_seconds(self) -> float:
        """Monotonic time."""
        ...

    @property
    def traffic(self) -> ConnectionNumbers:
        """The counters of received and sent bytes."""
        ...

    def accept(self, connection: ClientConnection, peer: str) -> Session | None:
        """The session of a new client; ``None`` rejects the connection."""
        ...

    def has_room(self, connection: ClientConnection, size_bytes: int) -> bool:
        """Whether the rest of a long message may be read now; otherwise ``read_on`` is called later.

        See ``proxy.clients.receiving``.
        """
        ...

    def waits_for_room(self, connection: ClientConnection) -> bool:
        """Whether the connection waits for ``read_on``."""
        ...

    def received(self, connection: ClientConnection) -> None:
        """A long message is complete."""
        ...

    def left(self, connection: ClientConnection) -> None:
        """An admitted client has disconnected."""
        ...

    def broken(self, session: Session, reason: str) -> None:
        """A client has violated the wire protocol."""
        ...


class ClientConnection(asyncio.Protocol):
    """The server side of one client connection."""

    active_at_seconds: float
    """Time of the end of its last command, or of its connecting."""
    is_for_admin: bool = False
    """Whether it came through the listener for admin commands; set when it is made."""
    on_admitted: Callable[[], None] | None = None
    """Called when it starts to count as a client; set when it is made."""
    _is_closed: bool = False
    """Whether it was the proxy that closed the connection."""
    _is_draining: bool = False
    """Whether it closes as soon as no command is in progress."""
    _is_heavy: bool = False
    """Whether its last start held the event loop for a whole turn (``proxy.clients.turns``)."""

    def __init__(self, host: Host, dispatcher: Starts, reader: MessageReader, turns: Turns) -> None:
        self._host = host
        self._traffic = host.traffic
        self._turns = turns
        self._dispatcher = dispatcher
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self.session: Session | None = None
        self._current: Pending | None = None
        self._busy = False
        self._pumping = False
        self._reading_paused = False
        self._writing_paused = False

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        keep_alive(self._transport)
        self.active_at_seconds = self._host.now_seconds()
        peer = transport.get_extra_info("peername")
        self.session = self._host.accept(self, str(peer[0]) if peer else "")
        if self.session is None:
            self._transport.abort()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._traffic.bytes_received += len(data)
        self._reader.feed(data)
        if self._busy or self._writing_paused:
            if self._reader.buffered_bytes > READ_AHEAD_BYTES and not self._reading_paused:
                self._pause_reading()
        elif not self._pumping:
            if self._turns.take(self, len(data), is_prompt=is_no_insert(data), is_heavy=self._is_heavy):
                self._pump_measured()
            else:
                self._busy = True

    def go_on(self, since_seconds: float) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._busy = False
            self._pump_measured()
            if self._current is not None:
                self._current.waited_for_turn(since_seconds)
        elif not self._is_closed:
            # ``connection_lost`` goes on with it.
            self._busy = False

    def pause_writing(self) -> None:
        """Called by the event loop: the client reads its replies too slowly."""
        self._writing_paused = True
        for connection in self.session.connections() if self.session is not None else ():
            connection.pause()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._writing_paused = False
        for connection in self.session.connections() if self.session is not None else ():
            connection.resume()
        if not self._busy and not self._pumping:
            self._pump()

    def eof_received(self) -> bool:
        """Called by the event loop: a client that stops sending counts as disconnected."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        transport, self._transport = self._transport, None
        # A client that is killed resets its connection. Any other exception is an error of the proxy.
        has_left = exc is None or isinstance(exc, OSError)
        goes_on = has_left and not self._is_closed and not isinstance(transport, LeftClient)
        if goes_on and transport is not None and self._has_more():
            self._go_on_without_client(transport.get_extra_info("peername"))
            return
        exchange, self._current = self._current, None
        session = self.session
        if session is None:
            return
        if exchange is not None:
            exchange.abandon()
        session.close()
        self._host.left(self)

    # --- Client -------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Queue bytes for the client; they are dropped if it has disconnected."""
        if self._transport is not None and data:
            self._traffic.bytes_sent += len(data)
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def finish(self) -> None:
        """The command in progress has ended."""
        self._busy = False
        self._current = None
        self.active_at_seconds = self._host.now_seconds()
        if self._reader.buffered_bytes and self.session is not None:
            # What was sent before the answer.
            self.session.answered_seconds = -math.inf
        if self._pumping or self._writing_paused:
            return
        if self._reading_paused or self._is_draining or self._reader.buffered_bytes:
            self._pump()
        elif isinstance(self._transport, LeftClient):
            self._transport.close()

    def close(self) -> None:
        """Close after the queued bytes are sent."""
        self._busy = self._is_closed = True
        self._current = None
        if self._transport is not None:
            self._transport.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was the proxy that closed the connection, which may still have to end."""
        return self._is_closed

    @property
    def exchange(self) -> Exchange | None:
        """The command in progress."""
        current = self._current
        if isinstance(current, Unwrapping):
            current = current.inside
        return current if isinstance(current, Exchange) else None

    @property
    def address(self) -> str:
        """Address and port of the client."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        if peer:
            return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        return "" if self.session is None else self.session.peer

    @property
    def is_busy(self) -> bool:
        """Whether a command is in progress, or its message waits for room."""
        return self._busy or (self._reading_paused and self._host.waits_for_room(self))

    @property
    def received_bytes(self) -> int:
        return self._reader.buffered_bytes

    def read_on(self) -> None:
        if self._reading_paused and not self._busy and not self._writing_paused:
            self._resume_reading()

    def limit_messages(self, max_size_bytes: int) -> None:
        """Refuse messages above this size from now on."""
        self._reader.max_size_bytes = max_size_bytes

    def abort(self) -> None:
        """Close at once."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Close as soon as no command is in progress."""
        self._is_draining = True
        if not self._busy:
            self.close()

    # --- after the client has left -----------------------------------------------------------------------------

    def _has_more(self) -> bool:
        """Whether the command in progress wants no reply; if there is none, whether another may have arrived."""
        current = self._current
        return self._reader.buffered_bytes > 0 if current is None else current.goes_on_alone()

    def _go_on_without_client(self, peer: object) -> None:
        self._transport = LeftClient(peer, lambda: self.connection_lost(None))
        self._writing_paused = False
        if not self._busy and not self._pumping:
            self._pump()

    # --- the loop -----------------------------------------------------------------------------------------------

    def _pump_measured(self) -> None:
        since_seconds = perf_counter()
        self._pump()
        self._is_heavy = perf_counter() - since_seconds >= TURN_SECONDS
        if self._is_heavy:
            self._turns.held()

    def _pump(self) -> None:
        """Start commands until one does not end at once or no complete message is left."""
        if self._transport is None or self.session is None:
            return
        self._pumping = True
        left = STARTS_AT_ONCE
        try:
            while not self._busy and not self._writing_paused:
                if self._is_draining:
                    self.close()
                    return
                if not left and self._reader.buffered_bytes:
                    self._busy = True
                    self._turns.wait(self)
                    break
                message = self._reader.next()
                if isinstance(self._transport, LeftClient) and (message is None or wants_reply(message)):
                    self._transport.close()
                    return
                if message is None:
                    size_bytes = self._reader.expected_bytes
                    if size_bytes > READ_AHEAD_BYTES and not self._host.has_room(self, size_bytes):
                        self._pause_reading()
                    break
                if message.pieces is not None or len(message.raw) > READ_AHEAD_BYTES:
                    self._host.received(self)
                self._busy = True
                left -= 1
                exchange = self._dispatcher.start(self.session, message, self)
                # The command may have ended already.
                self._current = exchange if self._busy else None
                if isinstance(self._transport, LeftClient) and not exchange.goes_on_alone():
                    self._transport.close()
                    return
        except ProtocolError as error:
            self._host.broken(self.session, str(error))
            self.write(error.farewell)
            self.close()
        finally:
            self._pumping = False
            if left < STARTS_AT_ONCE - 1:
                self._turns.started(STARTS_AT_ONCE - 1 - left)
        if self._reading_paused and not self._busy and not self._writing_paused and not self._host.waits_for_room(self):
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._reading_paused:
            self._transport.pause_reading()
            self._reading_paused = True

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._reading_paused = False
