"""The sockets that this process listens on, which are opened before anything else is started."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from proxy.clients.binding import bound
from proxy.process.activation import GivenSockets
from proxy.process.exit_codes import cannot_listen
from proxy.settings.table import Address, Settings


@dataclass(frozen=True, slots=True)
class Sockets:
    """Bound sockets; none for a listener that is disabled. They listen when the proxy is ready."""

    clients: tuple[socket.socket, ...]
    admin: tuple[socket.socket, ...] = ()
    others_accept: Callable[[], bool] = lambda: False
    """Whether other processes accept the connections that still wait when this one stops."""

    def __iter__(self) -> Iterator[socket.socket]:
        return iter((*self.clients, *self.admin))


@asynccontextmanager
async def opened(settings: Settings, given: GivenSockets) -> AsyncIterator[Sockets]:
    """The sockets for clients and for admin commands: those that were ``given``, or else new ones, until the end.

    Until new ones listen, clients are refused, and other programs cannot have the addresses. Raises
    ``ConfigurationError``.
    """
    with ExitStack() as stack:

        async def open_all(name: str, address: Address | None) -> tuple[socket.socket, ...]:
            if name in given:
                return tuple(stack.enter_context(each) for each in given[name])
            if address is None:
                return ()
            try:
                made = await bound(address.host, address.port, reuse_port=settings.reuse_port)
            except OSError as error:
                raise cannot_listen(name, address, error) from None
            return tuple(stack.enter_context(each) for each in made)

        clients = await open_all("listen", settings.listen)
        admin = await open_all("admin_listen", settings.admin_listen)
        # The service manager keeps those that it has given, for the next process.
        yield Sockets(clients, admin, others_accept=lambda: "listen" in given)
