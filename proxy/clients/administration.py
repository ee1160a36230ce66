"""What admin commands can do with client connections; connects ``proxy.admin`` with the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.admin.client_list import ClientList, Connection
from proxy.admin.handler import Action, AdminHandler
from proxy.admin.pause import AdminOnly, BackendGate, Pause, Probe, State
from proxy.admin.rights import AdminRights, Origin, Privileges
from proxy.admin.traffic import Traffic
from proxy.admin.workers import Workers
from proxy.clients.admission import Admission
from proxy.clients.handlers import Gatekeeper
from proxy.clients.leaving import STOPS, Farewell, Leaving, patience
from proxy.clients.roster import Roster
from proxy.hello.handler import HelloHandler
from proxy.observe.metrics import ConnectionNumbers
from proxy.observe.tasks import TaskSet
from proxy.request.authorisation import Rights
from proxy.request.session import Session
from proxy.settings.table import Settings

ADMIN_CONNECTIONS: Final = 64
"""Maximum number of connections through the listener for admin commands."""


def admin_admission(settings: Settings) -> Admission:
    """The limits of that listener, which accepts connections when all others are taken."""
    limits = replace(settings, max_connections=ADMIN_CONNECTIONS, max_connections_per_address=0)
    return Admission(limits, ConnectionNumbers())


class NoAccessControl:
    """The privileges at a backend without access control."""

    is_enforced = False

    async def rights(self, session: Session) -> Rights:
        return Rights(())


async def always_answers() -> None:
    """For a proxy that does not know whether its backend answers."""


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What admin commands need from the other rooms.

    ``uncommitted``: measurements that are staged and not settled, and their bytes; ``probe`` raises ``CommandError`` if
    the backend does not answer; ``workers``: all of this proxy, if there are several.
    """

    privileges: Privileges = field(default_factory=NoAccessControl)
    uncommitted: Callable[[], tuple[int, int]] = lambda: (0, 0)
    probe: Probe = always_answers
    workers: Workers | None = None


class Administration:
    """The admin commands of one server."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        parts: AdminParts,
        clients: Roster,
        hello: HelloHandler,
        tasks: TaskSet,
        install: Callable[[Gatekeeper | None], None],
    ) -> None:
        """``install`` has commands of clients held, or not any more."""
        self._clients = clients
        self._hello = hello
        self._install = install
        self._tasks = tasks
        self._leaving: asyncio.Task[None] | None = None
        """The clients leave while the proxy drains."""
        gate = BackendGate(parts.probe, tasks)
        self.only_admin = AdminOnly(gate)
        self._pause = pause = Pause(gate, tasks)
        self.traffic = Traffic(pause, self, parts.uncommitted, parts.probe, lambda: settings().shutdown_grace_seconds)

        def accepted_from() -> Origin:
            current = settings()
            return current.admin_without_login

        listed = ClientList(self.connections, pause.held, time.monotonic, time.perf_counter)
        rights = AdminRights(parts.privileges, accepted_from)
        self.rights = rights
        self.handler = AdminHandler({**self.traffic.actions, **listed.actions}, rights, tasks, parts.workers)

    def add(self, actions: Mapping[str, Action]) -> None:
        """Further actions."""
        self.handler.add(actions)

    def stop(self) -> None:
        """The server stops: it does not wait for held commands, whose clients get an error that drivers retry."""
        self._pause.stop()
        self._refuse_what_arrives()

    def _refuse_what_arrives(self) -> None:
        """During a stop: what is held would be held for as long as it takes."""
        if self._pause.state is State.PAUSED:
            self._install(Farewell(STOPS))

    # --- proxy.admin.traffic.Clients ----------------------------------------------------------------------------

    def connections(self) -> Collection[Connection]:
        return list(self._clients)

    def hold(self, pause: Pause | None) -> None:
        if self._pause.is_stopping:
            # Clients leave anyway.
            self._refuse_what_arrives()
            return
        self._install(pause)
        if pause is None and self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def disconnect(self, keep: Callable[[Session], bool], grace_seconds: float, refuse: Callable[[], None]) -> None:
        if self._pause.is_stopping:
            return
        leaving = Leaving(self._clients, self._hello.interrupt, time.monotonic)
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = self._tasks.spawn(leaving.all_left(patience(grace_seconds), refuse, keep))

    def abort(self, keep: Callable[[Session], bool]) -> None:
        self._clients.abort(keep)
