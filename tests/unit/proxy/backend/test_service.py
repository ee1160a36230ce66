"""Connections of the proxy's own account: what was sent, what was not, and that nobody waits for ever (W127)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import bson
import pytest
import uvloop

from catalog.errors import BackendUnavailable, Withheld
from proxy.backend.service import Deadlines, OnAnswered, ServicePool
from proxy.backend.service_connection import LostAfterSending, NotSent, ServiceAnswer, ServiceConnection
from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port

PING = bson.encode({"ping": 1, "$db": "admin"})
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def pool_to(port: int, size: int = 16, answered: OnAnswered = lambda identifier, length, seconds: None) -> ServicePool:
    async def primary(timeout_seconds: float) -> tuple[str, int]:
        return LOOPBACK, port

    return ServicePool(primary, None, None, 5.0, size, answered)


def within(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def peer(behave: Peer) -> AsyncIterator[int]:
    """A TCP server that does one thing to each connection."""
    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(event := asyncio.Event())
        await behave(reader, writer)
        writer.close()
        await writer.wait_closed()
        event.set()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for event in ended:
            await event.wait()


async def test_a_command_with_a_document_sequence(mongod: MongodProcess, db_name: str) -> None:
    heard: list[tuple[str, int]] = []
    pool = pool_to(mongod.port, answered=lambda identifier, length, _: heard.append((identifier, length)))
    body = bson.encode({"insert": "c", "ordered": False, "$db": db_name})
    documents = [bson.encode({"_id": number}) for number in range(3)]
    reply = bson.decode(await pool.request(body, within(10), "documents", documents))
    assert (reply["n"], reply["ok"]) == (3, 1.0)
    assert heard == [("documents", 3)]
    pool.close()


def test_response_times_are_finer_than_the_clock_of_the_loop(mongod: MongodProcess) -> None:
    """The time of a uvloop is in whole milliseconds, and many commits take less than one."""

    async def response_times() -> list[float]:
        heard = list[float]()
        pool = pool_to(mongod.port, answered=lambda identifier, length, seconds: heard.append(seconds))
        for _ in range(3):
            await pool.request(PING, within(10))
        pool.close()
        return heard

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        heard = runner.run(response_times())
    thousandths = [seconds * 1_000 for seconds in heard]
    assert [ms for ms in thousandths if abs(ms - round(ms)) < 1e-6] == []


async def test_what_may_not_be_sent_any_more_once_there_is_a_connection_is_not_sent(mongod: MongodProcess) -> None:
    pool = pool_to(mongod.port, size=1)
    may_send = False
    asked = 0

    def may() -> bool:
        nonlocal asked
        asked += 1
        return may_send

    with pytest.raises(Withheld):
        await pool.request(PING, within(10), may_send=may)
    heard: list[ServiceAnswer] = []
    # The place and the connection are free for others.
    assert pool.begin(heard.append, PING, within(10), "", ())
    may_send = True
    assert bson.decode(await pool.request(PING, within(10), may_send=may))["ok"] == 1
    assert asked == 2
    pool.close()


async def test_requests_side_by_side_each_get_their_own_answer(mongod: MongodProcess) -> None:
    pool = pool_to(mongod.port, size=2)
    bodies = [bson.encode({"ping": 1, "comment": n, "$db": "admin"}) for n in range(20)]
    replies = await asyncio.gather(*(pool.request(body, within(10)) for body in bodies))
    assert all(bson.decode(reply)["ok"] == 1 for reply in replies)
    pool.close()


async def test_a_command_is_begun_only_where_a_connection_is_free(mongod: MongodProcess) -> None:
    heard: list[ServiceAnswer] = []
    pool = pool_to(mongod.port, size=2)
    assert not pool.begin(heard.append, PING, within(10), "", ())
    await pool.request(PING, within(10))
    for number in range(2):
        assert pool.begin(heard.append, PING, within(10), "", ())
        assert not pool.begin(heard.append, PING, within(10), "", ())
        assert len(heard) == number
        while len(heard) == number:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
    replies = [bson.decode(each) for each in heard if isinstance(each, bytes)]
    assert [each["ok"] for each in replies] == [1, 1]
    pool.close()


async def test_what_was_begun_on_a_connection_that_ends_is_told() -> None:
    heard: list[ServiceAnswer] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        reply = bson.encode({"ok": 1.0})
        writer.write(struct.pack("<iiiiIB", 21 + len(reply), 1, 1, 2013, 0, 0) + reply)
        await reader.read(4096)

    async with peer(answer_once) as port:
        pool = pool_to(port, size=1)
        await pool.request(PING, within(5))
        assert pool.begin(heard.append, PING, within(5), "", ())
        while not heard:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
        assert isinstance(heard[0], LostAfterSending)
        # Its place is free again.
        await pool.request(PING, within(5))
        pool.close()


async def test_a_request_that_is_cancelled_gives_its_place_back() -> None:
    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(keep_silent) as port:
        pool = pool_to(port, size=1)
        for _ in range(3):
            request = asyncio.ensure_future(pool.request(PING, within(60)))
            await asyncio.sleep(0.01)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request


async def test_without_a_server_nothing_was_sent() -> None:
    with pytest.raises(NotSent):
        await pool_to(free_port()).request(PING, within(0.1))


async def test_a_connection_that_ends_before_the_answer_leaves_it_open() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)

    async with peer(hang_up) as port:
        with pytest.raises(LostAfterSending):
            await pool_to(port).request(PING, within(5))


async def test_a_place_is_waited_for_until_the_deadline() -> None:
    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(keep_silent) as port:
        pool = pool_to(port, size=1)
        first = asyncio.ensure_future(pool.request(PING, within(60)))
        await asyncio.sleep(0)
        with pytest.raises(NotSent):
            await pool.request(PING, within(0.05))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_refused_primary_is_asked_for_anew(mongod: MongodProcess) -> None:
    ports = iter([free_port(), mongod.port])

    async def primary(timeout_seconds: float) -> tuple[str, int]:
        return LOOPBACK, next(ports)

    pool = ServicePool(primary, None, None, 5.0)
    assert bson.decode(await pool.request(PING, within(10)))["ok"] == 1
    pool.close()


async def test_no_primary_in_time_means_nothing_was_sent() -> None:
    async def primary(timeout_seconds: float) -> tuple[str, int]:
        raise BackendUnavailable("no primary", code=133)

    with pytest.raises(NotSent) as caught:
        await ServicePool(primary, None, None, 5.0).request(PING, within(5))
    assert caught.value.code == 133


class _Transport:
    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection
        self.aborted = False

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True
        self._connection.connection_lost(None)


def _connection() -> ServiceConnection:
    connection = ServiceConnection("backend:27017")
    connection.connection_made(cast("asyncio.BaseTransport", _Transport(connection)))
    return connection


async def test_a_late_answer_is_not_waited_for_and_ends_the_connection() -> None:
    deadlines, late, patient = Deadlines(), _connection(), _connection()
    now = asyncio.get_running_loop().time()
    waiting = asyncio.ensure_future(patient.request(b""))
    deadlines.watch(patient, now + 60)
    deadlines.watch(late, now + 0.01)
    with pytest.raises(LostAfterSending) as raised:
        await late.request(b"")
    assert raised.value.code == 89
    assert not late.is_open
    assert patient.is_open
    assert not waiting.done()
    waiting.cancel()


async def test_an_answered_request_is_left_alone() -> None:
    deadlines, answered, late = Deadlines(), _connection(), _connection()
    now = asyncio.get_running_loop().time()
    deadlines.watch(answered, now + 0.005)
    deadlines.watch(late, now + 0.01)
    deadlines.forget(answered)
    with pytest.raises(LostAfterSending):
        await late.request(b"")
    assert answered.is_open


async def test_the_next_deadline_is_kept_after_one_has_passed() -> None:
    deadlines, first, second = Deadlines(), _connection(), _connection()
    now = asyncio.get_running_loop().time()
    deadlines.watch(first, now + 0.01)
    deadlines.watch(second, now + 0.02)
    for connection in (first, second):
        with pytest.raises(LostAfterSending):
            await connection.request(b"")


async def test_refusals_are_told_to_who_watches_the_login(mongod: MongodProcess, db_name: str) -> None:
    pool = pool_to(mongod.port)
    other = pool.another(2)
    refused: list[ServicePool] = []
    pool.family.on_refused = refused.append
    with failing(mongod, failCommands=["find"], errorCode=13, namespace=f"{db_name}.c"):
        reply = await other.request(bson.encode({"find": "c", "$db": db_name}), within(10))
    assert bson.decode(reply)["code"] == 13
    await pool.request(bson.encode({"nonsense": 1, "$db": db_name}), within(10))
    assert refused == [other]
    pool.close()
    other.close()


async def test_all_pools_of_an_account_log_in_again(mongod: MongodProcess, db_name: str) -> None:
    """Connections in use finish their request."""

    async def own_number(pool: ServicePool) -> int:
        number: int = bson.decode(await pool.request(bson.encode({"hello": 1, "$db": "admin"}), within(10)))[
            "connectionId"
        ]
        return number

    pool = pool_to(mongod.port)
    other = pool.another(2)
    before = [await own_number(pool), await own_number(other)]
    slow = bson.encode({"find": "c", "$db": db_name})
    mongod.shared_client[db_name].c.insert_one({})
    blocking = {"failCommands": ["find"], "blockConnection": True, "blockTimeMS": 300}
    with failing(mongod, **blocking, namespace=f"{db_name}.c"):
        running = asyncio.create_task(other.request(slow, within(10)))
        await asyncio.sleep(0.1)
        await pool.log_in_again(within(10))
        assert bson.decode(await running)["ok"] == 1
    after = [await own_number(pool), await own_number(other)]
    assert not set(before) & set(after)
    pool.close()
    other.close()


async def test_who_cannot_log_in_again_keeps_the_connections(mongod: MongodProcess) -> None:
    accepts = [True, False]

    async def log_in(connection: ServiceConnection) -> None:
        if not accepts.pop(0):
            raise BackendUnavailable("Authentication failed", code=18)

    async def primary(timeout_seconds: float) -> tuple[str, int]:
        return LOOPBACK, mongod.port

    pool = ServicePool(primary, log_in, None, 5.0)
    told: list[ServicePool] = []
    pool.family.on_refused = told.append
    await pool.request(PING, within(10))
    with pytest.raises(NotSent) as refused:
        await pool.log_in_again(within(10))
    assert (refused.value.code, told) == (18, [pool])
    # The server has answered, so it need not be searched for again.
    assert pool.address == f"{LOOPBACK}:{mongod.port}"
    await pool.request(PING, within(10))
    assert accepts == []
    pool.close()
