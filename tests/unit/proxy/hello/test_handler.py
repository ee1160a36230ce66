"""How hello looks is in test_documents.py; here is when it is answered, and what is carried to the backend."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from bson import Decimal128, Int64

from catalog.errors import CommandError
from proxy.hello import handler
from proxy.hello.handler import HelloHandler
from proxy.observe.tasks import TaskSet
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.upstream.connection import Upstream
from proxy.upstream.dialing import Dialer
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.mongod import MongodProcess
from tests.support.network import FakeClient
from tests.support.raw_wire import command, document_of

CLIENT = {"driver": {"name": "d", "version": "1"}, "os": {"type": "Linux"}, "application": {"name": "x"}}


class Greeted:
    """A handler with one client, in front of a real backend."""

    def __init__(self, mongod: MongodProcess) -> None:
        self.port = mongod.port
        self.hello = mongod.shared_client.admin.command("hello")
        self.errors: list[BaseException] = []
        self.handler = HelloHandler(self, TaskSet(self.errors.append), ("zlib",))
        self.session = Session(1, "peer", Upstream(Dialer(self.primary_address, None, 10.0), lambda: None))
        self.client = FakeClient()

    async def primary_address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def start(self, flags: int = 0, **fields: Any) -> Exchange:
        message = Message.from_bytes(command({"hello": 1, **fields, "$db": "admin"}, flags=flags))
        exchange = Exchange(self.session, self.client, message, Told())
        exchange.command = parse_command(message)
        self.handler.start(exchange)
        return exchange

    async def reply(self, count: int = 1) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while len(self.client.written) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert self.errors == []
        return document_of(Message.from_bytes(self.client.written[count - 1]))

    async def known(self) -> dict[str, Any]:
        self.start()
        version = (await self.reply())["topologyVersion"]
        self.client.written.clear()
        return {"topologyVersion": version, "maxAwaitTimeMS": Int64(20_000)}

    async def soon(self) -> dict[str, Any]:
        return {**await self.known(), "maxAwaitTimeMS": Int64(20)}


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams may go faster than drivers look."""
    monkeypatch.setattr(handler, "SHORTEST_PERIOD_MS", 20)


async def test_hello_alone_opens_no_connection(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    greeted.start(client=CLIENT, backpressure=True)
    assert (await greeted.reply())["ok"] == 1.0
    assert greeted.session.upstream.ready is None


async def test_client_metadata_come_once(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    greeted.start(client=CLIENT)
    with pytest.raises(CommandError) as caught:
        greeted.start(client=CLIENT)
    assert caught.value.code == 186


async def test_a_hello_that_waits_is_answered_when_its_time_is_over(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    greeted.start(**{**await greeted.known(), "maxAwaitTimeMS": Int64(20)})
    await asyncio.sleep(0)
    assert greeted.client.written == []
    assert (await greeted.reply())["topologyVersion"]["counter"] == 0
    assert greeted.handler.waiting == set()


@pytest.mark.usefixtures("frequent")
async def test_stream_goes_on_and_ends_with_the_client(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    exchange = greeted.start(flags=op_msg.EXHAUST_ALLOWED, **await greeted.soon())
    for count in (1, 2):
        assert (await greeted.reply(count))["ok"] == 1.0
    first, second = map(Message.from_bytes, greeted.client.written[:2])
    assert op_msg.parse(first).flags == op_msg.MORE_TO_COME
    assert second.response_to == first.request_id
    exchange.abandon()
    assert greeted.handler.waiting == set()


async def test_logins_inside_hello_reach_the_backend(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    greeted.start(client=CLIENT, saslSupportedMechs="admin.nobody", compression=["zlib"])
    reply = await greeted.reply()
    assert (reply["ok"], reply["compression"]) == (1.0, ["zlib"])
    assert greeted.session.upstream.ready is not None
    greeted.session.upstream.close()


async def test_rules_of_an_api_version_are_the_backend_s(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    greeted.start(apiVersion="2")
    assert (await greeted.reply())["codeName"] == "APIVersionError"
    greeted.session.upstream.close()


@pytest.mark.usefixtures("frequent")
async def test_stream_waits_for_a_client_that_does_not_read(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    soon = await greeted.soon()
    greeted.client.unsent_bytes = 1
    exchange = greeted.start(flags=op_msg.EXHAUST_ALLOWED, **soon)
    await asyncio.sleep(0.2)
    assert greeted.client.written == []
    greeted.client.unsent_bytes = 0
    assert (await greeted.reply())["ok"] == 1.0
    exchange.abandon()


async def test_stream_goes_no_faster_than_drivers_look(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    known = await greeted.known()
    exchange = greeted.start(flags=op_msg.EXHAUST_ALLOWED, **{**known, "maxAwaitTimeMS": Int64(0)})
    await asyncio.sleep(0.3)
    assert len(greeted.client.written) <= 1
    exchange.abandon()


async def test_a_hello_that_waits_keeps_little_of_its_message(mongod: MongodProcess) -> None:
    greeted = Greeted(mongod)
    long = {"comment": "x" * 1_000_000, "compression": ["zlib"] * 1000, "client": CLIENT, "helloOk": True}
    exchange = greeted.start(flags=op_msg.EXHAUST_ALLOWED, **long, **await greeted.soon())
    assert exchange.command is not None
    assert len(exchange.message.raw) + len(exchange.command.body) + len(greeted.session.upstream.hello) < 1000
    said = await greeted.reply()
    assert (said["compression"], said["helloOk"]) == (["zlib"], True)
    exchange.abandon()


@pytest.mark.parametrize("time_ms", [math.nan, math.inf, Decimal128("Infinity"), Int64(1 << 62)])
async def test_a_time_that_is_none_is_no_error_of_ours(mongod: MongodProcess, time_ms: Any) -> None:
    greeted = Greeted(mongod)
    exchange = greeted.start(**{**await greeted.known(), "maxAwaitTimeMS": time_ms})
    await asyncio.sleep(0)
    assert len(greeted.handler.waiting) + len(greeted.client.written) == 1
    exchange.abandon()
    assert greeted.handler.waiting == set()
