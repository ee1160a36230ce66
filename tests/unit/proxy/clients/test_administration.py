"""Admin commands on a server that only relays; tests/clients/test_admin.py has a whole proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import bson
from prometheus_client import CollectorRegistry

from catalog.errors import BackendUnavailable
from proxy.admin.arguments import Call
from proxy.clients.administration import AdminParts, NoAccessControl, always_answers
from proxy.clients.server import Parts, Server
from proxy.observe.metrics import Metrics
from proxy.settings.table import Address, Settings
from tests.support.raw_wire import command
from tests.support.sessions import session

HERE = Address("127.0.0.1", 0)


class Nowhere:
    hello: Mapping[str, Any] = {
        "maxBsonObjectSize": 1, "maxMessageSizeBytes": 2, "maxWriteBatchSize": 3, "maxWireVersion": 17
    }  # fmt: skip

    async def primary_address(self) -> tuple[str, int]:
        raise BackendUnavailable("nowhere")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, **document: Any) -> None:
        self.writer.write(command({**document, "$db": "admin"}))

    async def receive(self) -> dict[str, Any]:
        head = await self.reader.readexactly(4)
        return bson.decode((await self.reader.readexactly(int.from_bytes(head, "little") - 4))[17:])

    async def ask(self, **document: Any) -> dict[str, Any]:
        self.send(**document)
        return await self.receive()


class Place:
    """A server with both listeners."""

    def __init__(self, server: Server, port: int, admin_port: int) -> None:
        self.server = server
        self._ports = port, admin_port
        self.clients: list[Client] = []

    async def connected(self, *, for_admin: bool = False) -> Client:
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self._ports[for_admin])))
        return self.clients[-1]


@asynccontextmanager
async def serving() -> AsyncIterator[Place]:
    metrics = Metrics(CollectorRegistry())
    parts = Parts(Nowhere(), metrics, metrics.connections)
    server = Server(Settings(listen=HERE, shutdown_grace_seconds=1.0), parts)
    _, port = await server.start()
    _, admin_port = await server.start_admin(HERE)
    place = Place(server, port, admin_port)
    try:
        yield place
    finally:
        await server.stop()
        for client in place.clients:
            client.writer.close()


async def test_clients_are_listed_held_and_let_go() -> None:
    async with serving() as place:
        administrator, client = await place.connected(for_admin=True), await place.connected()
        assert (await administrator.ask(tsproxy="pause", waitSeconds=0))["state"] == "paused"
        client.send(ping=1)
        while not (shown := await administrator.ask(tsproxy="clients", state="held"))["clients"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (shown["clients"][0]["command"], shown["total"]) == ("ping", 2)
        assert (await administrator.ask(tsproxy="resume"))["started"] == 1
        assert (await client.receive())["errmsg"] == "nowhere"


async def test_draining_disconnects_clients_but_not_administrators() -> None:
    async with serving() as place:
        administrator, client = await place.connected(for_admin=True), await place.connected()
        await client.ask(hello=1)
        assert (await administrator.ask(tsproxy="drain"))["state"] == "draining"
        assert await client.reader.read() == b""
        late = await place.connected()
        late.send(hello=1)
        assert await late.reader.read() == b""
        assert (await administrator.ask(tsproxy="resume"))["was"] == "draining"
        assert (await (await place.connected()).ask(hello=1))["ok"] == 1


async def test_the_listener_for_administrators_takes_nothing_else() -> None:
    async with serving() as place:
        administrator = await place.connected(for_admin=True)
        assert (await administrator.ask(ping=1))["code"] == 13
        assert (await administrator.ask(hello=1))["ok"] == 1


async def test_further_actions_are_executed() -> None:
    async def status(call: Call) -> Mapping[str, Any]:
        return {"said": call.name}

    async with serving() as place:
        client = await place.connected()
        assert (await client.ask(tsproxy="status"))["code"] == 2
        place.server.admin.add({"status": status})
        assert await client.ask(tsproxy="status") == {"said": "status", "ok": 1.0}


async def test_without_parts_there_is_no_access_control() -> None:
    await always_answers()
    assert not NoAccessControl.is_enforced
    assert not (await NoAccessControl().rights(session())).allow_on_cluster(("killop",))
    assert AdminParts().uncommitted() == (0, 0)


async def test_a_stop_does_not_wait_for_held_commands() -> None:
    async with serving() as place:
        administrator, client = await place.connected(for_admin=True), await place.connected()
        await administrator.ask(tsproxy="pause")
        client.send(ping=1)
        while not (await administrator.ask(tsproxy="clients", state="held"))["clients"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(place.server.stop())
        reply = await client.receive()
        assert (reply["code"], "stopping" in reply["errmsg"]) == (91, True)
        assert asyncio.get_running_loop().time() - began < 0.4
        await stopping
