"""Who has the address for clients before anybody listens."""

from __future__ import annotations

import socket

import pytest

from proxy.clients.binding import bound
from tests.support.ports import LOOPBACK, accepts


async def test_what_is_bound_does_not_listen_and_can_be_told_to() -> None:
    (made,) = await bound(LOOPBACK, 0)
    with made:
        port = made.getsockname()[1]
        assert not accepts(port)
        made.listen()
        assert accepts(port)


async def test_an_address_that_somebody_listens_on_is_refused() -> None:
    with socket.create_server((LOOPBACK, 0)) as other, pytest.raises(OSError, match="in use"):
        await bound(LOOPBACK, other.getsockname()[1])
