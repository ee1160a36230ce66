"""Keeps the address for clients while the backend is not there yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from proxy.clients.binding import bound
from proxy.settings.table import Address


@asynccontextmanager
async def reserved(address: Address) -> AsyncIterator[None]:
    """Bind the address without listening: clients are refused, other programs that come later cannot have it.

    The listener may bind it beside this, because both allow the reuse of addresses (socket(7), SO_REUSEADDR). Raises
    ``OSError``.
    """
    with ExitStack() as stack:
        for each in await bound(address.host, address.port):
            stack.enter_context(each)
        yield
