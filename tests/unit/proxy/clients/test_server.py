from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import bson
import pytest
from prometheus_client import CollectorRegistry

from proxy.clients import idle_clients
from proxy.clients.server import Parts, Server
from proxy.clients.tls import Newest
from proxy.observe.metrics import Metrics
from proxy.settings.table import Address, Settings
from tests.support.certificates import Certificates
from tests.support.mongod import MongodProcess
from tests.support.raw_wire import command


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


def tls_contexts(certificates: Certificates) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a listener and of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    return context, ssl.create_default_context(cafile=str(certificates.authority))


PING = command({"ping": 1, "$db": "admin"})


class View:
    def __init__(self, mongod: MongodProcess) -> None:
        self._port = mongod.port
        self.hello: Mapping[str, Any] = mongod.shared_client.admin.command("hello")

    async def primary_address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port


@asynccontextmanager
async def relaying(
    mongod: MongodProcess, *, requires_login: bool = False, tls: Newest | None = None, **options: Any
) -> AsyncIterator[tuple[Server, int, Metrics]]:
    metrics = Metrics(CollectorRegistry())
    parts = Parts(View(mongod), metrics, metrics.connections, requires_login=lambda: requires_login)
    server = Server(Settings(listen=Address("127.0.0.1", 0), **options), parts)
    _, port = await server.start(tls)
    try:
        yield server, port, metrics
    finally:
        await server.stop()


async def ask(port: int, data: bytes = PING) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        head = await reader.read(1000)
    except ConnectionResetError:
        head = b""
    writer.close()
    return head


async def test_proxy_without_further_parts_relays(mongod: MongodProcess) -> None:
    async with relaying(mongod) as (_, port, metrics):
        assert bson.decode((await ask(port))[21:])["ok"] == 1.0
        assert metrics.connections.opened == 1


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_connections": 2}, "too_many"), ({"max_connections_per_address": 2}, "too_many_per_address")],
)
async def test_clients_over_the_limit_are_turned_away(
    mongod: MongodProcess, limit: dict[str, int], reason: str
) -> None:
    async with relaying(mongod, **limit) as (_, port, metrics):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert await ask(port) == b""
        assert {each: count for each, count in metrics.connections.rejected.items() if count} == {reason: 1}
        for reader, writer in kept:
            writer.write(PING)
            assert await reader.read(1000)
            writer.close()


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
async def test_a_burst_of_exactly_the_limit_is_accepted_whole(
    mongod: MongodProcess, limit: str, *, is_tls: bool, certificates: Certificates
) -> None:
    """A connection counts once, also in the moment between its handshake and its first command."""
    context, client_context = tls_contexts(certificates) if is_tls else (None, None)
    tls = (lambda: context) if context is not None else None
    counted: list[int] = []
    async with relaying(mongod, tls=tls, **{limit: 40}) as (server, port, metrics):
        server.admission.on_change = counted.append

        async def connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            name = "localhost" if is_tls else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context, server_hostname=name)
            writer.write(PING)
            assert await reader.read(1000)
            return reader, writer

        kept = await asyncio.gather(*(connected() for _ in range(40)))
        assert max(counted) == 40
        assert not any(metrics.connections.rejected.values())
        assert await ask(port) == b""
        assert sum(metrics.connections.rejected.values()) == 1
        for _, writer in kept:
            writer.close()


async def test_reloaded_limits_apply_to_new_clients(mongod: MongodProcess) -> None:
    async with relaying(mongod) as (server, port, metrics):
        kept = await asyncio.open_connection("127.0.0.1", port)
        kept[1].write(PING)
        assert await kept[0].read(1000)
        server.follow(replace(server.settings, max_connections=1, max_receiving_bytes=200_000_000, compressors=()))
        assert await ask(port) == b""
        assert metrics.connections.rejected["too_many"] == 1
        assert (server.admission.room.limit_bytes, server.hello.compressors) == (200_000_000, ())
        kept[1].write(PING)
        assert await kept[0].read(1000)
        kept[1].close()


async def test_stopping_lets_a_command_under_way_finish(mongod: MongodProcess) -> None:
    async with relaying(mongod) as (server, port, _):
        idle, _idle_writer = await asyncio.open_connection("127.0.0.1", port)
        slow, slow_writer = await asyncio.open_connection("127.0.0.1", port)
        mongod.shared_client.stopping.c.insert_many([{} for _ in range(20)])
        find = {"find": "c", "filter": {"$where": "sleep(20) || true"}, "$db": "stopping"}
        slow_writer.write(command(find))
        await ask(port)
        stopping = asyncio.ensure_future(server.stop())
        assert await idle.read(1) == b""
        assert len(bson.decode((await slow.read(100_000))[21:])["cursor"]["firstBatch"]) == 20
        assert await slow.read(1) == b""
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await ask(port)
        slow_writer.close()
        _idle_writer.close()
    mongod.shared_client.drop_database("stopping")


async def test_grace_time_is_not_exceeded(mongod: MongodProcess) -> None:
    async with relaying(mongod, shutdown_grace_seconds=0.05) as (server, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        mongod.shared_client.grace.c.insert_one({})
        writer.write(command({"find": "c", "filter": {"$where": "sleep(30000) || true"}, "$db": "grace"}))
        await ask(port)
        async with asyncio.timeout(20):
            await server.stop()
        with suppress(ConnectionResetError):
            assert await reader.read(1) == b""
        writer.close()
    mongod.shared_client.drop_database("grace")


async def test_watching_clients_do_not_hold_up_the_stop(mongod: MongodProcess) -> None:
    async with relaying(mongod, shutdown_grace_seconds=60) as (server, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        version = bson.decode((await ask(port, command({"hello": 1, "$db": "admin"})))[21:])["topologyVersion"]
        hello = {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000, "$db": "admin"}
        writer.write(command(hello, flags=1 << 16))
        await ask(port)
        async with asyncio.timeout(20):
            await server.stop()
        assert await reader.read(1) == b""
        writer.close()


async def test_message_before_the_login_must_be_short(mongod: MongodProcess) -> None:
    long = command({"ping": 1, "comment": "x" * 20_000, "$db": "admin"})
    async with relaying(mongod, requires_login=True, pre_auth_max_message_bytes=16_384) as (_, port, _metrics):
        assert await ask(port, long) == b""
        assert await ask(port)
    async with relaying(mongod, pre_auth_max_message_bytes=16_384) as (_, port, _metrics):
        assert await ask(port, long)


@pytest.mark.parametrize(
    "options", [{"idle_timeout_seconds": 0.01}, {"requires_login": True, "max_unauthenticated_seconds": 0.01}]
)
async def test_client_that_sends_no_command_is_closed(mongod: MongodProcess, options: dict[str, Any]) -> None:
    """Bytes that are no whole command do not count."""
    async with relaying(mongod, **options) as (server, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PING[:7])
        async with asyncio.timeout(10):
            while not reader.at_eof():
                server.close_idle()
                with suppress(TimeoutError):
                    assert await asyncio.wait_for(reader.read(1), 0.02) == b""
        writer.close()


async def test_client_that_never_says_anything_is_closed_after_a_while(
    mongod: MongodProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that said something is not."""
    monkeypatch.setattr(idle_clients, "SILENT_SECONDS", 0.01)
    async with relaying(mongod) as (server, port, _):
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PING)
        assert await reader.read(1000)
        await asyncio.sleep(0.05)
        server.close_idle()
        async with asyncio.timeout(20):
            assert await silent.read(1) == b""
        writer.write(PING)
        assert await reader.read(1000)
        writer.close()
        silent_writer.close()


async def test_long_messages_of_many_connections_wait_for_room(mongod: MongodProcess) -> None:
    """One client, of an address, has half of it."""
    document = {"ping": 1, "a": "x" * 12_000_000, "b": "x" * 12_000_000, "c": "x" * 12_000_000, "$db": "admin"}
    long = command(document)
    async with relaying(mongod, max_receiving_bytes=192_000_000) as (server, port, metrics):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in clients:
            writer.write(long[:-1])
        async with asyncio.timeout(60):
            while metrics.connections.bytes_received < 2 * len(long):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert server.admission.room.used_bytes == 2 * len(long)
            assert metrics.connections.bytes_received < 2 * len(long) + 6 * 600_000
            for _, writer in clients:
                writer.write(long[-1:])
            for reader, writer in clients:
                assert await reader.read(1000)
                writer.close()
            assert server.admission.room.used_bytes == 0


async def test_client_is_not_closed_where_no_login_is_asked_for(mongod: MongodProcess) -> None:
    async with relaying(mongod, max_unauthenticated_seconds=0.000_001) as (server, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PING)
        assert await reader.read(1000)
        server.close_idle()
        writer.write(PING)
        assert await reader.read(1000)
        writer.close()
