"""How clients leave a proxy that stops or drains, so that no driver sees a broken connection for a command it has sent.

A connection between two commands may have the next one under way. If the proxy closed it, the driver would get an error
for a command that nobody has executed. So the drivers are made to leave: the connections with which they monitor the
server are closed, on which they discard their pools, each connection when its command has ended, and find the server
again, which is the process that listens now. Commands are executed meanwhile. A connection that was idle for
``IDLE_SECONDS`` is closed, because drivers look whether it is closed before they use it again.

Clients that do not leave in time, because they do not monitor, get an error for their next command instead of being
disconnected. It says that nothing was executed, and drivers retry on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from catalog.errors import BackendUnavailable
from proxy.admin.passing import command_of
from proxy.clients.connection import ClientConnection
from proxy.clients.roster import Roster
from proxy.request.attempt import Refused
from proxy.request.exchange import SHUTDOWN_IN_PROGRESS, Exchange
from proxy.request.session import Session

IDLE_SECONDS: Final = 1.5
"""Drivers check a connection before they use it if it was idle for a second."""
PATIENCE_SECONDS: Final = 3.0
"""Time in which drivers have noticed that their monitoring connection was closed."""
END_SECONDS: Final = 0.5
"""Time in which a connection that was closed must end. With TLS, it ends when the client confirms that, which one that
does not read does not."""
LOOK_SECONDS: Final = 0.05
STOPS: Final = "the proxy is stopping"

Keep = Callable[[Session], bool]


def nobody_stays(session: Session) -> bool:
    """Everybody leaves."""
    return False


def patience(grace_seconds: float) -> float:
    """How long commands are executed as usual while clients leave; the rest is for commands that run long."""
    return min(PATIENCE_SECONDS, grace_seconds / 2)


class Farewell:
    """Refuses all commands: what a client gets that has not left in time."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def holds(self, exchange: Exchange) -> bool:
        client = exchange.client
        # The error has labels that depend on the command.
        command_of(exchange)
        exchange.end(Refused(BackendUnavailable(self._reason, code=SHUTDOWN_IN_PROGRESS)))
        client.close()
        return True


class Leaving:
    """Lets the clients of a server leave."""

    def __init__(self, clients: Roster, interrupt: Callable[[Keep], None], now_seconds: Callable[[], float]) -> None:
        """``interrupt`` closes the connections of clients that wait for a change of the server."""
        self._clients = clients
        self._interrupt = interrupt
        self._now_seconds = now_seconds

    async def all_left(
        self,
        patience_seconds: float,
        refuse: Callable[[], None],
        keep: Keep = nobody_stays,
        arriving: Callable[[], int] = lambda: 0,
    ) -> None:
        """Wait until all have left but those to ``keep``.

        ``refuse`` is called after ``patience_seconds``, from when on no command is to be executed. ``arriving``: the
        number of accepted clients that are not connected yet, which are waited for until then; some may never be.
        """
        until_seconds = self._now_seconds() + patience_seconds
        idle_seconds = min(IDLE_SECONDS, patience_seconds)
        is_patient = True
        closed_at_seconds: dict[ClientConnection, float] = {}
        while True:
            self._interrupt(keep)
            now_seconds = self._now_seconds()
            if is_patient and now_seconds >= until_seconds:
                is_patient = False
                refuse()
            staying = 0
            for client in self._clients:
                if client.session is not None and keep(client.session):
                    staying += 1
                elif client.is_closed:
                    since_seconds = closed_at_seconds.setdefault(client, now_seconds)
                    if now_seconds - since_seconds >= END_SECONDS and not client.unsent_bytes:
                        client.abort()
                elif is_idle(client, now_seconds, idle_seconds):
                    client.close()
            if len(self._clients) == staying and not (is_patient and arriving()):
                return
            await self._clients.changed(LOOK_SECONDS)


def is_idle(client: ClientConnection, now_seconds: float, idle_seconds: float) -> bool:
    """Whether a client cannot have a command under way, and looks before it sends the next one."""
    return not client.is_busy and not client.received_bytes and now_seconds - client.active_at_seconds >= idle_seconds
