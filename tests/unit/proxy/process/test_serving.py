"""From connecting to the backend until the last client has left; the program itself: tests/clients/test_process.py."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from catalog.errors import BackendUnavailable
from proxy.observe.metrics import Metrics
from proxy.process.serving import serve
from proxy.settings.config import Address, ConfigurationError, Settings, load_settings
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.wire import WireClient


def settings(**flags: str) -> Settings:
    return load_settings({"listen": f"{LOOPBACK}:0", **flags}, {}).settings


async def served(chosen: Settings, metrics: Metrics, stop: asyncio.Event) -> tuple[asyncio.Task[None], Address]:
    ready: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(chosen, metrics, stop, ready.set_result))
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    return serving, await ready


async def test_clients_are_served_until_the_stop(mongod: MongodProcess) -> None:
    metrics, stop = Metrics(CollectorRegistry()), asyncio.Event()
    serving, address = await served(settings(backend=mongod.uri), metrics, stop)
    assert metrics.backend_up

    def greet() -> WireClient:
        client = WireClient(address.port)
        assert client.command({"hello": 1, "$db": "admin"})["ok"] == 1.0
        assert client.command({"ping": 1, "$db": "admin"})["ok"] == 1.0
        return client

    client = await asyncio.to_thread(greet)
    stop.set()
    await serving
    assert await asyncio.to_thread(client.is_closed)
    client.close()
    assert metrics.invariant_violations == 0


async def test_a_backend_that_is_not_there_is_fatal_where_that_is_asked() -> None:
    chosen = settings(
        backend=f"mongodb://{LOOPBACK}:{free_port()}", server_selection_timeout_ms="300", fail_fast="true"
    )
    with pytest.raises(BackendUnavailable):
        await served(chosen, Metrics(CollectorRegistry()), asyncio.Event())


async def test_a_backend_that_is_not_there_is_waited_for_and_the_reason_told() -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    chosen = settings(backend=f"mongodb://{LOOPBACK}:{free_port()}", server_selection_timeout_ms="300")
    serving = asyncio.create_task(
        serve(chosen, Metrics(CollectorRegistry()), asyncio.Event(), lambda address: None, told.set_result)
    )
    assert LOOPBACK in await asyncio.wait_for(told, 20)
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_an_address_in_use_is_named(mongod: MongodProcess) -> None:
    with pytest.raises(ConfigurationError, match=str(mongod.port)):
        await served(
            settings(backend=mongod.uri, listen=f"{LOOPBACK}:{mongod.port}"),
            Metrics(CollectorRegistry()),
            asyncio.Event(),
        )
