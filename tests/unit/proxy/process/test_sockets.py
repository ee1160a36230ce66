"""Addresses that are kept without being listened on."""

from __future__ import annotations

import socket

import pytest

from proxy.process.exit_codes import AddressInUse
from proxy.process.sockets import opened
from proxy.settings.table import Address, Settings
from tests.support.ports import LOOPBACK, accepts, free_port


async def test_clients_are_refused_until_the_sockets_listen() -> None:
    settings = Settings(listen=Address(LOOPBACK, 0), admin_listen=Address(LOOPBACK, 0))
    async with opened(settings, {}) as sockets:
        ports = [each.getsockname()[1] for each in sockets]
        assert (len(sockets.clients), len(sockets.admin)) == (1, 1)
        assert not any(map(accepts, ports))
        with pytest.raises(AddressInUse), socket.create_server((LOOPBACK, free_port())) as other:
            async with opened(Settings(listen=Address(LOOPBACK, other.getsockname()[1])), {}):
                pass
        sockets.clients[0].listen()
        assert accepts(ports[0])
    assert not accepts(ports[0])


async def test_given_sockets_are_used_instead_of_addresses() -> None:
    with socket.create_server((LOOPBACK, 0)) as given:
        async with opened(Settings(listen=Address("192.0.2.1", 1)), {"listen": (given,)}) as sockets:
            assert sockets.clients == (given,)


async def test_with_reuse_port_another_process_can_listen_beside_this_one() -> None:
    port = free_port()
    settings = Settings(listen=Address(LOOPBACK, port), reuse_port=True)
    async with opened(settings, {}) as first, opened(settings, {}) as second:
        for each in (*first, *second):
            each.listen()
        assert accepts(port)


async def test_address_that_is_taken_is_named_and_nothing_stays_bound() -> None:
    port = free_port()
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = Address(LOOPBACK, other.getsockname()[1])
        with pytest.raises(AddressInUse, match="admin_listen = "):
            async with opened(Settings(listen=Address(LOOPBACK, port), admin_listen=taken), {}):
                pass
    with socket.create_server((LOOPBACK, port)):
        assert accepts(port)
