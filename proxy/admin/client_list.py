"""Client connections as admin commands see them: the actions ``clients`` and ``kill``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from bson import decode

from catalog.bson.codec import TOLERANT
from catalog.errors import CommandError
from proxy.admin.arguments import BAD_VALUE, Call
from proxy.admin.handler import Action
from proxy.admin.passing import name_and_namespace
from proxy.admin.table import USUAL_ENTRIES
from proxy.request.command_table import GREETS
from proxy.request.exchange import Exchange
from proxy.request.session import Session

LOOKED_AT_ONCE: Final = 250
"""Connections that are looked at in one turn of the event loop."""
STATES: Final = ("idle", "running", "held", "receiving", "monitoring")


class Connection(Protocol):
    """A client connection (``proxy.clients.connection``)."""

    session: Session | None
    active_at_seconds: float

    @property
    def address(self) -> str:
        """Address and port of the client."""
        ...

    @property
    def exchange(self) -> Exchange | None:
        """The command in progress."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a command is in progress, or its message is being received."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


def state_of(connection: Connection, held: Collection[Exchange]) -> str:
    """One of ``STATES``."""
    exchange = connection.exchange
    if exchange is None:
        return "receiving" if connection.is_busy else "idle"
    if exchange in held:
        return "held"
    return "monitoring" if name_and_namespace(exchange)[0] in GREETS else "running"


def describe(connection: Connection, state: str, now_seconds: float, clock_seconds: float) -> dict[str, Any]:
    """What ``clients`` shows of one connection.

    ``now_seconds`` is the time of connections (monotonic), ``clock_seconds`` that of exchanges (performance counter).
    """
    session, exchange = connection.session, connection.exchange
    assert session is not None
    shown: dict[str, Any] = {"connection": session.connection_id, "address": connection.address, "state": state}
    if exchange is not None:
        name, namespace = name_and_namespace(exchange)
        shown |= {"command": name, "ns": namespace, "seconds": round(clock_seconds - exchange.started_seconds, 3)}
    else:
        shown["idleSeconds"] = round(now_seconds - connection.active_at_seconds, 3)
    shown["connectedSeconds"] = round(now_seconds - session.came_at_seconds, 3)
    shown["users"] = [str(user) for user in session.identity.users]
    return shown | _program(session)


def _program(session: Session) -> dict[str, Any]:
    """What the client says of itself in its first ``hello``: driver and application."""
    greeting = session.upstream.hello
    client = decode(greeting, codec_options=TOLERANT).get("client") if greeting else None
    if not isinstance(client, Mapping):
        return {}
    driver, application = client.get("driver"), client.get("application")
    shown: dict[str, Any] = {}
    if isinstance(driver, Mapping):
        shown["driver"] = {part: str(driver.get(part, "")) for part in ("name", "version")}
    if isinstance(application, Mapping) and application.get("name"):
        shown["application"] = str(application["name"])
    return shown


class ClientList:
    """The actions on client connections."""

    def __init__(
        self,
        connections: Callable[[], Collection[Connection]],
        held: Collection[Exchange],
        now_seconds: Callable[[], float],
        clock_seconds: Callable[[], float],
    ) -> None:
        """``held``: the commands that a pause holds; the two clocks: see ``describe``."""
        self._connections = connections
        self._held = held
        self._now_seconds = now_seconds
        self._clock_seconds = clock_seconds

    @property
    def actions(self) -> Mapping[str, Action]:
        """The actions by name."""
        return {"clients": self._list, "kill": self._kill}

    async def _list(self, call: Call) -> Mapping[str, Any]:
        state = call.fields.get("state")
        if state is not None and state not in STATES:
            raise CommandError(BAD_VALUE, f"'state' of 'clients' must be one of {', '.join(STATES)}")
        found: list[tuple[float, Connection, str]] = []
        connections = [each for each in self._connections() if each.session is not None]
        for position, connection in enumerate(connections):
            if position and not position % LOOKED_AT_ONCE:
                await asyncio.sleep(0)
            its_state = state_of(connection, self._held)
            seconds = self._seconds(connection)
            if self._fits(call, connection, its_state, seconds):
                found.append((seconds, connection, its_state))
        found.sort(key=lambda entry: -entry[0])
        shown: list[dict[str, Any]] = []
        for _, connection, its_state in found[: int(call.number("limit", USUAL_ENTRIES))]:
            if len(shown) % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            shown.append(describe(connection, its_state, self._now_seconds(), self._clock_seconds()))
        return {"clients": shown, "matching": len(found), "total": len(connections)}

    def _seconds(self, connection: Connection) -> float:
        exchange = connection.exchange
        return -1.0 if exchange is None else self._clock_seconds() - exchange.started_seconds

    def _fits(self, call: Call, connection: Connection, state: str, seconds: float) -> bool:
        session, fields = connection.session, call.fields
        assert session is not None
        users = [str(user) for user in session.identity.users]
        return (
            fields.get("address", session.peer) in (session.peer, connection.address)
            and ("user" not in fields or fields["user"] in users)
            and fields.get("state", state) == state
            and ("minSeconds" not in fields or seconds >= fields["minSeconds"])
        )

    async def _kill(self, call: Call) -> Mapping[str, Any]:
        wanted = call.fields["connection"]
        if wanted == call.administrator.connection_id:
            raise CommandError(BAD_VALUE, f"connection {wanted} runs this command")
        for connection in list(self._connections()):
            session = connection.session
            if session is not None and session.connection_id == wanted:
                address = connection.address
                connection.abort()
                return {"killed": wanted, "address": address}
        raise CommandError(BAD_VALUE, f'no client has the connection {wanted}; {{tsproxy: "clients"}} lists them')
