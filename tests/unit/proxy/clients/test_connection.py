from __future__ import annotations

import math
import time
from collections.abc import Callable

import bson
import pytest

from proxy.clients.connection import READ_AHEAD_BYTES, STARTS_AT_ONCE, ClientConnection
from proxy.clients.turns import TURN_SECONDS, TurnLimits, Turns
from proxy.observe.metrics import ConnectionNumbers
from proxy.request.exchange import Client, Exchange
from proxy.request.session import Session
from proxy.wire import op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from proxy.wire.reader import MessageReader
from tests.support.exchanges import Told
from tests.support.network import FakeTransport
from tests.support.raw_wire import compressed
from tests.support.sessions import session

PING = op_msg.build(1, 0, bson.encode({"ping": 1, "$db": "admin"}))
INSERT = op_msg.build(1, 0, bson.encode({"insert": "c", "documents": [{}], "$db": "db"}))


class Host:
    """Lets everyone in, and starts commands that end when the test says so."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.traffic = ConnectionNumbers()
        self.events: list[str] = []
        self.started: list[Message] = []
        self.exchanges: list[Exchange] = []
        self.at_once: Callable[[Client], None] | None = None
        self.error: ProtocolError | None = None
        self.room_bytes = 1 << 30
        self.waiting: list[ClientConnection] = []

    def has_room(self, connection: ClientConnection, size_bytes: int) -> bool:
        if size_bytes > self.room_bytes and connection not in self.waiting:
            self.waiting.append(connection)
        return size_bytes <= self.room_bytes

    def waits_for_room(self, connection: ClientConnection) -> bool:
        return connection in self.waiting

    def received(self, connection: ClientConnection) -> None:
        self.events.append("received")

    def now_seconds(self) -> float:
        return 5.0

    def accept(self, connection: ClientConnection, peer: str) -> Session | None:
        self.events.append(peer)
        return None if self.full else session()

    def left(self, connection: ClientConnection) -> None:
        self.events.append("left")

    def broken(self, session: Session, reason: str) -> None:
        self.events.append(reason)

    def start(self, session: Session, message: Message, client: Client) -> Exchange | None:
        self.started.append(message)
        if self.error is not None:
            raise self.error
        if self.at_once is not None:
            self.at_once(client)
        self.exchanges.append(Exchange(session, client, message, Told()))
        return self.exchanges[-1]


class EventLoop:
    """Turns that come when the test says so."""

    def __init__(self, limit: int = 1_000_000, uncounted: int = 0) -> None:
        self.later: list[Callable[[], None]] = []
        self.turns = Turns(self.later.append, TurnLimits(limit, uncounted), now_seconds=lambda: 0.0)

    def next_turn(self) -> None:
        later, self.later[:] = self.later[:], []
        for call in later:
            call()

    def until_quiet(self) -> None:
        while self.later:
            self.next_turn()


def connected(host: Host, loop: EventLoop | None = None) -> tuple[ClientConnection, FakeTransport]:
    connection = ClientConnection(host, host, MessageReader(), (loop or EventLoop()).turns)
    transport = FakeTransport()
    connection.connection_made(transport)
    return connection, transport


def test_one_command_at_a_time_in_order() -> None:
    host = Host()
    connection, _ = connected(host)
    connection.data_received(PING * 3 + PING[:5])
    assert len(host.started) == 1
    connection.finish()
    assert len(host.started) == 2
    connection.finish()
    connection.finish()
    assert len(host.started) == 3
    connection.data_received(PING[5:])
    assert len(host.started) == 4


def test_what_is_sent_in_advance_was_not_sent_after_the_answer() -> None:
    host = Host()
    connection, _ = connected(host)
    connection.data_received(PING + PING[:5])
    session = connection.session
    assert session is not None
    session.answered_seconds = 5.0
    connection.finish()
    assert session.answered_seconds == -math.inf
    connection.data_received(PING[5:])
    session.answered_seconds = 6.0
    connection.finish()
    assert session.answered_seconds == 6.0


def test_commands_that_end_at_once_do_not_nest() -> None:
    """Ten thousand pipelined commands need no ten thousand stack frames."""
    host = Host()
    host.at_once = lambda client: client.finish()
    loop = EventLoop()
    connection, _ = connected(host, loop)
    connection.data_received(PING * 10_000)
    loop.until_quiet()
    assert len(host.started) == 10_000


def test_a_client_that_sends_much_at_once_has_no_more_of_a_turn_than_its_share() -> None:
    host = Host()
    host.at_once = lambda client: client.finish()
    loop = EventLoop()
    flood, _ = connected(host, loop)
    honest, _ = connected(host, loop)
    flood.data_received(PING * 1_000)
    assert len(host.started) == STARTS_AT_ONCE
    honest.data_received(PING)
    assert len(host.started) == STARTS_AT_ONCE + 1
    loop.next_turn()
    assert len(host.started) == 2 * STARTS_AT_ONCE + 1


def test_what_is_started_at_once_counts_for_the_turn() -> None:
    """So that a hundred such clients have together no more of a turn than one client with a command each."""
    host = Host()
    host.at_once = lambda client: client.finish()
    loop = EventLoop(limit=2 * STARTS_AT_ONCE)
    for _ in range(100):
        connected(host, loop)[0].data_received(PING * 20)
    assert len(host.started) == 2 * STARTS_AT_ONCE


def test_a_client_that_leaves_while_it_waits_for_its_share_starts_nothing_more() -> None:
    host = Host()
    host.at_once = lambda client: client.finish()
    loop = EventLoop()
    flood, _ = connected(host, loop)
    flood.data_received(PING * 1_000)
    flood.connection_lost(None)
    loop.until_quiet()
    assert len(host.started) == STARTS_AT_ONCE


def test_reading_stops_when_too_much_waits_behind_a_command() -> None:
    host = Host()
    loop = EventLoop()
    connection, transport = connected(host, loop)
    connection.data_received(PING)
    connection.data_received(PING)
    assert transport.reading
    connection.data_received(bytes(PING) * (READ_AHEAD_BYTES // len(PING) + 1))
    assert not transport.reading
    host.at_once = lambda client: client.finish()
    connection.finish()
    loop.until_quiet()
    assert transport.reading


def test_client_that_does_not_read_gets_no_next_command() -> None:
    host = Host()
    host.at_once = lambda client: client.finish()
    connection, _ = connected(host)
    connection.pause_writing()
    connection.data_received(PING)
    assert host.started == []
    connection.resume_writing()
    assert len(host.started) == 1


def test_broken_protocol_closes_after_a_farewell() -> None:
    host = Host()
    host.error = ProtocolError("no good", b"bye")
    connection, transport = connected(host)
    connection.data_received(PING)
    assert (host.events[-1], transport.written, transport.closed) == ("no good", [b"bye"], True)
    connection.data_received(PING)
    assert len(host.started) == 1


def test_client_that_is_not_let_in_is_cut_off() -> None:
    host = Host(full=True)
    connection, transport = connected(host)
    assert transport.aborted
    connection.connection_lost(None)
    assert host.events == ["203.0.113.9"]


def test_end_of_the_client_abandons_its_command() -> None:
    host = Host()
    connection, _ = connected(host)
    connection.data_received(PING)
    connection.connection_lost(None)
    assert host.events == ["203.0.113.9", "left"]
    connection.write(b"nobody reads this")
    connection.finish()


SILENT = op_msg.build(1, 0, bson.encode({"insert": "c", "documents": [{}], "$db": "test"}), (), op_msg.MORE_TO_COME)


def left(data: bytes, error: Exception | None = None) -> tuple[Host, ClientConnection]:
    """A connection whose client has sent this and disconnected."""
    host = Host()
    connection, _ = connected(host)
    connection.data_received(data)
    connection.connection_lost(error)
    return host, connection


def test_what_wants_no_reply_is_carried_out_after_the_client_has_left() -> None:
    """A server executes all that it has received, too."""
    host, loop = Host(), EventLoop()
    connection, transport = connected(host, loop)
    connection.data_received(SILENT * 3)
    connection.connection_lost(None)
    for started in (2, 3):
        connection.finish()
        assert (len(host.started), host.events) == (started, ["203.0.113.9"])
    assert connection.address == "203.0.113.9:5"
    connection.write(b"nobody reads this")
    connection.finish()
    assert host.events == ["203.0.113.9", "left"]
    assert transport.written == []


def test_it_queues_behind_others_as_before() -> None:
    host, loop = Host(), EventLoop()
    host.at_once = lambda client: client.finish()
    connection, _ = connected(host, loop)
    connection.data_received(SILENT * 100)
    connection.connection_lost(None)
    assert len(host.started) == STARTS_AT_ONCE
    loop.until_quiet()
    assert len(host.started) == 100
    assert host.events == ["203.0.113.9", "left"]


def test_its_turn_may_come_while_the_connection_is_closing() -> None:
    host, loop = Host(), EventLoop(limit=1)
    connected(host, loop)[0].data_received(PING)
    connection, transport = connected(host, loop)
    connection.data_received(SILENT)
    transport.close()
    loop.until_quiet()
    assert len(host.started) == 1
    connection.connection_lost(None)
    assert len(host.started) == 2


def test_a_connection_that_the_proxy_has_closed_goes_on_with_nothing() -> None:
    host = Host()
    connection, _ = connected(host)
    connection.data_received(SILENT * 3)
    connection.close()
    connection.connection_lost(None)
    assert (len(host.started), host.events) == (1, ["203.0.113.9", "left"])


def test_the_first_command_that_wants_a_reply_ends_that() -> None:
    host, connection = left(SILENT + PING + SILENT)
    connection.finish()
    assert (len(host.started), host.events) == (1, ["203.0.113.9", "left"])


def test_a_compressed_command_shows_only_when_it_has_started_that_it_wants_a_reply() -> None:
    host, connection = left(SILENT + compressed(PING, 2) + SILENT)
    connection.finish()
    assert (len(host.started), host.events) == (2, ["203.0.113.9", "left"])


def test_half_a_command_of_a_client_that_has_left_is_dropped() -> None:
    host, connection = left(SILENT + SILENT[:20])
    connection.finish()
    assert (len(host.started), host.events) == (1, ["203.0.113.9", "left"])


@pytest.mark.parametrize("error", [ConnectionResetError(), BrokenPipeError(), TimeoutError()], ids=repr)
def test_a_client_that_is_cut_off_has_left_too(error: OSError) -> None:
    """A server executes what it has received, however the connection ends."""
    host, connection = left(SILENT * 3 + PING + SILENT, error)
    for started in (2, 3):
        connection.finish()
        assert (len(host.started), host.events) == (started, ["203.0.113.9"])
    connection.finish()
    assert (len(host.started), host.events) == (3, ["203.0.113.9", "left"])


def test_a_command_that_wants_a_reply_ends_with_a_client_that_is_cut_off() -> None:
    host, _ = left(PING + SILENT, ConnectionResetError())
    assert (len(host.started), host.events) == (1, ["203.0.113.9", "left"])


def test_a_connection_that_ends_with_an_internal_error_goes_on_with_nothing() -> None:
    host, _ = left(SILENT * 3, RuntimeError())
    assert (len(host.started), host.events) == (1, ["203.0.113.9", "left"])


def test_commands_of_a_client_that_has_left_end_with_the_proxy() -> None:
    for end in (ClientConnection.drain, ClientConnection.abort):
        host, connection = left(SILENT * 3)
        end(connection)
        connection.finish()
        assert (len(host.started), host.events) == (1, ["203.0.113.9", "left"])


def test_drain_waits_for_the_command_under_way() -> None:
    host = Host()
    idle, idle_transport = connected(host)
    busy, busy_transport = connected(host)
    busy.data_received(PING * 2)
    idle.drain()
    busy.drain()
    assert (idle_transport.closed, busy_transport.closed) == (True, False)
    busy.finish()
    assert busy_transport.closed
    assert len(host.started) == 1


def test_a_connection_waits_for_its_turn() -> None:
    host, loop = Host(), EventLoop(limit=1)
    first, _ = connected(host, loop)
    second, transport = connected(host, loop)
    first.data_received(PING)
    second.data_received(PING[:7])
    second.data_received(PING[7:] + PING)
    assert len(host.started) == 1
    assert second.is_busy
    loop.next_turn()
    assert len(host.started) == 2
    second.finish()
    assert len(host.started) == 3
    assert transport.reading


def test_a_connection_that_closes_while_it_waits_starts_nothing() -> None:
    host, loop = Host(), EventLoop(limit=1)
    first, _ = connected(host, loop)
    closed, _ = connected(host, loop)
    gone, _ = connected(host, loop)
    drained, transport = connected(host, loop)
    for connection in (first, closed, gone, drained):
        connection.data_received(INSERT)
    closed.close()
    gone.connection_lost(None)
    drained.drain()
    for _ in range(4):
        loop.next_turn()
    assert len(host.started) == 1
    assert transport.closed


def test_more_of_a_long_message_is_read_only_when_there_is_room_for_all_of_it() -> None:
    long = op_msg.build(1, 0, bson.encode({"ping": 1, "comment": "x" * READ_AHEAD_BYTES, "$db": "admin"}))
    host = Host()
    host.room_bytes = 1_000
    connection, transport = connected(host)
    connection.data_received(long[:5_000])
    assert (transport.reading, connection.is_busy, connection.received_bytes) == (False, True, 5_000)
    connection.resume_writing()
    assert not transport.reading
    host.room_bytes = 1 << 30
    host.waiting.remove(connection)
    connection.read_on()
    assert (transport.reading, connection.is_busy) == (True, False)
    connection.data_received(long[5_000:-1])
    assert host.started == []
    connection.data_received(long[-1:])
    assert [message.raw for message in host.started] == [long]
    assert host.events[-1] == "received"


def test_a_short_message_needs_no_room() -> None:
    host = Host()
    host.room_bytes = 0
    connection, transport = connected(host)
    connection.data_received(PING[:20])
    connection.data_received(PING[20:])
    assert (transport.reading, len(host.started)) == (True, 1)


def test_what_a_connection_shows_of_itself() -> None:
    host = Host()
    connection, transport = connected(host)
    assert (connection.address, connection.exchange, connection.is_for_admin) == ("203.0.113.9:5", None, False)
    connection.data_received(PING)
    assert isinstance(connection.exchange, Exchange)
    connection.connection_lost(None)
    assert connection.address == "peer"
    assert transport is not None


def test_a_command_that_has_waited_for_its_turn_says_so() -> None:
    host = Host()
    loop = EventLoop(limit=1)
    connected(host, loop)[0].data_received(INSERT)
    connected(host, loop)[0].data_received(INSERT)
    (first,) = host.exchanges
    loop.next_turn()
    _, second = host.exchanges
    assert first.turn_seconds == 0.0
    assert second.turn_seconds > 0.0
    assert second.started_seconds <= first.started_seconds


def test_a_ping_does_not_wait_behind_inserts() -> None:
    host = Host()
    loop = EventLoop(limit=1)
    for _ in range(3):
        connected(host, loop)[0].data_received(INSERT)
    assert len(host.started) == 1
    connected(host, loop)[0].data_received(PING)
    assert len(host.started) == 2


def test_a_turn_begins_after_a_command_that_has_held_the_event_loop() -> None:
    """A few commands start uncounted; were each of them dear, others would wait for all of them."""
    host = Host()
    host.at_once = lambda client: time.sleep(2 * TURN_SECONDS)
    loop = EventLoop(uncounted=4)
    connected(host, loop)[0].data_received(PING)
    assert loop.later == []
    connected(host, loop)[0].data_received(PING)
    assert len(loop.later) == 1
