from __future__ import annotations

import asyncio
from typing import Any

import bson
import pytest

from catalog.errors import BackendUnavailable
from proxy.upstream.connection import State, Upstream, UpstreamConnection, UpstreamLost
from proxy.upstream.dialing import Dialer
from proxy.wire import op_msg
from tests.support.mongod import MongodProcess
from tests.support.network import FakeTransport

REQUEST = b"request"
REPLY = op_msg.build(1, 2, bson.encode({"x": "y" * 300, "ok": 1.0}))
PART = op_msg.build(1, 2, bson.encode({"x": 1}), flags=op_msg.MORE_TO_COME)


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.ended = 0
        self.errors: list[tuple[str, bool]] = []

    def whole(self, reply: bytes) -> None:
        self.data += reply
        self.ended += 1

    def write(self, data: bytes) -> None:
        self.data += data

    def done(self) -> None:
        self.ended += 1

    def deposed(self, reply: bytes) -> None:
        self.whole(reply)

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        self.errors.append((error.message, partly_sent))


def streaming() -> tuple[UpstreamConnection, FakeTransport, Sink, list[str]]:
    lost: list[str] = []
    connection = UpstreamConnection("backend:1", lambda: lost.append("lost"))
    transport, sink = FakeTransport(), Sink()
    connection.connection_made(transport)
    connection.stream(REQUEST, sink)
    assert transport.written == [REQUEST]
    return connection, transport, sink, lost


@pytest.mark.parametrize("size", [1, 3, 7, 19, 20, 21, 100, 10_000])
@pytest.mark.parametrize("reply", [REPLY, PART * 3 + REPLY], ids=["one", "exhaust"])
def test_reply_streams_through_whatever_its_pieces(reply: bytes, size: int) -> None:
    connection, _, sink, _ = streaming()
    for start in range(0, len(reply), size):
        assert sink.ended == 0
        connection.data_received(reply[start : start + size])
    assert (sink.data, sink.ended, connection.state) == (reply, 1, State.IDLE)


@pytest.mark.parametrize(
    ("reply", "asks"),
    [
        ({"cursor": {"firstBatch": [{"code": 189}], "id": 0}, "ok": 1.0}, False),
        ({"code": 189, "ok": 1.0}, False),
        ({"ok": 0.0, "errmsg": "stepping down", "code": 189}, True),
        ({"n": 1, "writeConcernError": {"code": 189}, "ok": 1.0}, True),
    ],
    ids=str,
)
def test_only_an_error_says_that_the_primary_leaves(reply: dict[str, Any], asks: bool) -> None:
    """A stored document may hold any code."""
    suspected: list[str] = []
    connection = UpstreamConnection("backend:1", lambda: None, suspected.append)
    connection.connection_made(FakeTransport())
    connection.stream(REQUEST, Sink())
    connection.data_received(op_msg.build(1, 2, bson.encode(reply)))
    assert suspected == (["backend:1"] if asks else [])


@pytest.mark.parametrize(("received", "partly_sent"), [(b"", False), (REPLY[:10], False), (REPLY[:50], True)])
def test_end_in_the_middle_tells_whether_the_client_has_seen_some(received: bytes, partly_sent: bool) -> None:
    connection, _, sink, lost = streaming()
    if received:
        connection.data_received(received)
    connection.connection_lost(None)
    assert [partly for _, partly in sink.errors] == [partly_sent]
    assert "backend:1" in sink.errors[0][0]
    assert lost == []


def test_impossible_length_ends_the_connection() -> None:
    connection, transport, sink, _ = streaming()
    connection.data_received(b"\xff\xff\xff\x7f" + bytes(20))
    assert transport.aborted
    assert len(sink.errors) == 1


def test_end_while_idle_is_told() -> None:
    connection, _, _, lost = streaming()
    connection.data_received(REPLY)
    connection.connection_lost(None)
    assert lost == ["lost"]


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    connection, transport, _, lost = streaming()
    connection.data_received(REPLY)
    connection.data_received(REPLY)
    assert (transport.aborted, lost) == (True, ["lost"])


def test_reading_stops_while_the_client_does_not_read() -> None:
    connection, transport, _, _ = streaming()
    connection.pause()
    assert not transport.reading
    connection.resume()
    assert transport.reading


async def test_collected_reply_and_cancelled_wait() -> None:
    connection = UpstreamConnection("backend:1", lambda: None)
    transport = FakeTransport()
    connection.connection_made(transport)
    waiting = asyncio.ensure_future(connection.exchange(REQUEST))
    await asyncio.sleep(0)
    connection.data_received(REPLY[:30])
    connection.data_received(REPLY[30:])
    assert (await waiting).raw == REPLY
    cancelled = asyncio.ensure_future(connection.exchange(REQUEST))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert transport.aborted


async def test_who_waits_for_a_reply_is_told_that_the_connection_was_closed() -> None:
    """Otherwise it would wait for ever, with its session and its message, once the client has left."""
    connection = UpstreamConnection("backend:1", lambda: None)
    connection.connection_made(FakeTransport())
    waiting = asyncio.ensure_future(connection.exchange(REQUEST))
    await asyncio.sleep(0)
    connection.close()
    with pytest.raises(UpstreamLost, match="backend:1 closed"):
        await asyncio.wait_for(waiting, 20)


async def test_commands_of_ours_run_over_the_client_s_connection(mongod: MongodProcess) -> None:
    async def address() -> tuple[str, int]:
        return "127.0.0.1", mongod.port

    upstream = Upstream(Dialer(address, None, 10.0), lambda: None)
    assert upstream.ready is None
    reply = bson.decode(await upstream.run("admin", {"ping": 1}, b"\x02comment\0\x02\0\0\0x\0"))
    assert reply == {"ok": 1.0}
    assert upstream.ready is not None
    upstream.close()
    assert upstream.ready is None


async def test_client_that_leaves_while_its_connection_opens_leaves_none_behind(mongod: MongodProcess) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def address() -> tuple[str, int]:
        asked.set()
        await go.wait()
        return "127.0.0.1", mongod.port

    upstream = Upstream(Dialer(address, None, 10.0), lambda: None)
    running = asyncio.ensure_future(upstream.run("admin", {"ping": 1}))
    await asked.wait()
    upstream.close()
    go.set()
    with pytest.raises(BackendUnavailable):
        await running
    assert upstream.ready is None


async def test_backend_that_is_not_there_is_named() -> None:
    async def address() -> tuple[str, int]:
        return "127.0.0.1", 1

    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:1"):
        await Upstream(Dialer(address, None, 10.0), lambda: None).run("admin", {"ping": 1})


async def test_connection_that_has_ended_is_told_instead_of_used() -> None:
    """It may end between the moment that it is ready and the one that a command is sent."""
    connection, _, sink, _ = streaming()
    connection.connection_lost(None)
    with pytest.raises(UpstreamLost):
        connection.send(b"x")
    with pytest.raises(UpstreamLost):
        connection.stream(b"x", sink)
    with pytest.raises(UpstreamLost):
        await connection.exchange(b"x")
