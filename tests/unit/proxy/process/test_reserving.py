"""An address that is kept without being listened on."""

from __future__ import annotations

import errno
import socket

import pytest

from proxy.process.reserving import reserved
from proxy.settings.table import Address
from tests.support.ports import LOOPBACK, accepts, free_port


async def test_clients_are_refused_until_somebody_listens_beside_it() -> None:
    port = free_port()
    async with reserved(Address(LOOPBACK, port)):
        assert not accepts(port)
        with socket.create_server((LOOPBACK, port)):
            assert accepts(port)


async def test_address_that_another_listens_on_is_not_available() -> None:
    port = free_port()
    with socket.create_server((LOOPBACK, port)), pytest.raises(OSError) as caught:
        async with reserved(Address(LOOPBACK, port)):
            pass
    assert caught.value.errno == errno.EADDRINUSE
