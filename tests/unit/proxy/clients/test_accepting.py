from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from proxy.clients.accepting import GIVE_WAY_SECONDS, Listener
from proxy.clients.admission import HANDSHAKES_AT_ONCE, Admission
from proxy.clients.connection_board import ConnectionBoard, make_board
from proxy.clients.tls import HANDSHAKE_SECONDS
from proxy.observe.metrics import ConnectionNumbers
from proxy.observe.tasks import TaskSet
from proxy.settings.table import Settings
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert hasattr(self.transport, "write")
        self.transport.write(data)


class Listening:
    """A listener whose clients are echoed."""

    def __init__(self, sockets: list[socket.socket], certificates: Certificates) -> None:
        self.numbers = ConnectionNumbers()
        self.errors: list[BaseException] = []
        self.tasks = TaskSet(self.errors.append)
        self.port = sockets[0].getsockname()[1]
        self._certificates = certificates
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server)
        admission = Admission(Settings(), self.numbers)
        self.listener = Listener(sockets, lambda: context, lambda admitted: Echo(), admission, self.tasks.spawn)

    async def echoed(self, address: str) -> bytes:
        """What a client from this address hears when it says hello."""
        context = ssl.create_default_context(cafile=str(self._certificates.authority))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost", local_addr=(address, 0)
        )
        writer.write(b"hello")
        said = await reader.readexactly(5)
        writer.close()
        return said


@asynccontextmanager
async def listening(certificates: Certificates) -> AsyncIterator[Listening]:
    server = Listening(await Listener.listen("127.0.0.1", 0, 4096), certificates)
    try:
        yield server
    finally:
        server.listener.close()
        await server.tasks.close()
        assert server.errors == []


async def flood(certificates: Certificates) -> None:
    async with listening(certificates) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(HANDSHAKES_AT_ONCE + 50)]
        async with asyncio.timeout(20):
            assert await server.echoed("127.0.0.2") == b"hello"
            while server.numbers.rejected.get("too_many_handshakes", 0) < 50:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        closed = 0
        for each in silent:
            each.setblocking(False)
            try:
                closed += each.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except BlockingIOError:
                pass
            each.close()
        assert closed >= 50
        assert len(server.tasks) <= HANDSHAKES_AT_ONCE + 1


async def no_tls(certificates: Certificates) -> None:
    async with listening(certificates) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"this is no handshake at all, not at all")
        async with asyncio.timeout(0.9 * HANDSHAKE_SECONDS):
            await reader.read()
        writer.close()
        assert await server.echoed("127.0.0.1") == b"hello"


async def closing(certificates: Certificates) -> None:
    async with listening(certificates) as server:
        assert await server.echoed("127.0.0.1") == b"hello"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


@pytest.mark.parametrize("case", [flood, no_tls, closing])
def test_with_the_event_loop_of_the_proxy(case: object, certificates: Certificates) -> None:
    """Handshakes that nobody continues are bounded and keep nobody out; failed ones end; a closed listener is gone."""
    assert callable(case)
    uvloop.run(case(certificates))


class Seen(asyncio.Protocol):
    """Counts the clients."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._seen.append("made")
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._seen.append("lost")


def connected(port: int, number: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(number)]


async def listener_of(
    seen: list[str], board: ConnectionBoard | None = None, sockets: list[socket.socket] | None = None
) -> tuple[Listener, Admission, TaskSet]:
    tasks, admission = TaskSet(lambda error: None), Admission(Settings(), ConnectionNumbers())
    made = sockets or await Listener.listen("127.0.0.1", 0, 100)
    return Listener(made, None, lambda admitted: Seen(seen), admission, tasks.spawn, board), admission, tasks


async def test_connections_that_wait_are_accepted_before_the_socket_is_closed() -> None:
    """The kernel would reset them."""
    seen: list[str] = []
    listener, admission, tasks = await listener_of(seen)
    clients = connected(listener.sockets[0].getsockname()[1], 20)  # the event loop does not run meanwhile
    listener.close(takes_queue=True)
    assert admission.arriving() == 20
    await asyncio.wait([asyncio.create_task(tasks.close(5.0))])
    assert seen == ["made"] * 20
    for each in clients:
        each.setblocking(False)
        with pytest.raises(BlockingIOError):
            each.recv(1)
        each.close()


async def test_connections_that_wait_are_left_to_other_processes_that_have_the_socket() -> None:
    seen: list[str] = []
    (shared,) = await Listener.listen("127.0.0.1", 0, 100)
    first, *_ = await listener_of(seen, None, [shared.dup()])
    clients = connected(shared.getsockname()[1], 3)
    first.close()
    others: list[str] = []
    second, _, tasks = await listener_of(others, None, [shared])
    async with asyncio.timeout(20):
        while len(others) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert seen == []
    second.close()
    await tasks.close()
    for each in clients:
        each.close()


async def test_the_process_with_more_connections_gives_way() -> None:
    descriptor = make_board()
    boards = [ConnectionBoard(descriptor, number) for number in range(2)]
    (shared,) = await Listener.listen("127.0.0.1", 0, 100)
    seen: tuple[list[str], list[str]] = ([], [])
    listeners = [await listener_of(seen[number], boards[number], [shared.dup()]) for number in range(2)]
    for board, (_, admission, _) in zip(boards, listeners, strict=True):
        admission.on_change = board.publish
        board.publish(0)
    clients = connected(shared.getsockname()[1], 40)
    async with asyncio.timeout(20):
        while len(seen[0]) + len(seen[1]) < 40 or any(each.arriving() for _, each, _ in listeners):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    # Who gave way for one of these looks again after that time.
    await asyncio.sleep(2 * GIVE_WAY_SECONDS)
    boards[1].publish(1_000)
    boards[0].publish(0)
    clients += connected(shared.getsockname()[1], 1)
    before = len(seen[0])
    async with asyncio.timeout(20):
        while len(seen[0]) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    shared.close()
    for listener, _, tasks in listeners:
        listener.close()
        await tasks.close()
    for each in clients:
        each.close()
    os.close(descriptor)


async def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    (first,) = await Listener.listen("127.0.0.1", 0, 1)
    with pytest.raises(OSError, match="in use"):
        await Listener.listen("127.0.0.1", first.getsockname()[1], 1)
    first.close()
