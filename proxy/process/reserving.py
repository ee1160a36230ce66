"""Keeps the address for clients while the backend is not there yet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from proxy.settings.table import Address


@asynccontextmanager
async def reserved(address: Address) -> AsyncIterator[None]:
    """Bind the address without listening: clients are refused, other programs that come later cannot have it.

    The listener may bind it beside this, because both allow the reuse of addresses (socket(7), SO_REUSEADDR). Raises
    ``OSError``.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with ExitStack() as stack:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            bound = stack.enter_context(socket.socket(family, kind, protocol))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(where)
        yield
