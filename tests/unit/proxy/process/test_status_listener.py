"""The status listener runs beside what it shows."""

from __future__ import annotations

import asyncio
import socket

import pytest
from prometheus_client import CollectorRegistry

from proxy.observe.status import StatusServer
from proxy.process.exit_codes import AddressInUse
from proxy.process.status_listener import listening
from proxy.settings.table import Address
from tests.support.ports import LOOPBACK, accepts


async def test_listens_and_records_meanwhile() -> None:
    server = StatusServer(Address(LOOPBACK, 0), CollectorRegistry(), lambda: "")
    recording = asyncio.Event()

    async def record() -> None:
        recording.set()
        await asyncio.Event().wait()

    async with listening(server, record, lambda error: None):
        port = server.address.port
        await recording.wait()
        assert accepts(port)
    assert not accepts(port)


async def test_disabled_listener_records_nothing() -> None:
    async def record() -> None:
        raise AssertionError

    async with listening(None, record, lambda error: None):
        pass


async def test_address_that_is_taken_is_named() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        server = StatusServer(Address(LOOPBACK, other.getsockname()[1]), CollectorRegistry(), lambda: "")
        with pytest.raises(AddressInUse, match="status_listen") as raised:
            async with listening(server, lambda: asyncio.sleep(0), lambda error: None):
                pass
    assert str(raised.value).count(LOOPBACK) == 1
