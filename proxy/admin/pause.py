"""Pausing and draining: keeps the commands of clients from starting, while admin commands are executed.

*Paused*: new commands wait until ``resume``, each at most for a limit; then it fails with an error that drivers retry.
What needs no backend starts nevertheless: greetings (drivers close connections otherwise) and admin commands. Logins
start when the backend answers, so that an administrator can log in.

*Draining*: clients leave as at SIGTERM (``proxy.clients.leaving``), and new ones are turned away, except for those of
the listener for admin commands. If the administrator has come through the ordinary port, that client stays, too: a
driver needs several connections (one of them watches the server), so connections with the same address and the same
client metadata count as that client. They may only use admin commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final

from catalog.errors import UNAUTHORIZED, BackendUnavailable, CommandError
from proxy.admin.administrator import Administrator
from proxy.admin.passing import Passage, command_of, passage_of
from proxy.admin.waiting import HeldCommand
from proxy.observe.tasks import TaskSet
from proxy.request.attempt import Refused
from proxy.request.command import Command
from proxy.request.command_table import GREETS
from proxy.request.exchange import SHUTDOWN_IN_PROGRESS, Exchange
from proxy.request.session import Session

PROBE_PAUSE_SECONDS: Final = 0.5
"""Interval at which the backend is asked whether it answers, while logins wait for it."""
LOGIN_SECONDS: Final = 60.0
"""Maximum time for which a login waits for the backend."""

Probe = Callable[[], Awaitable[None]]
"""Asks the backend whether it answers; raises ``CommandError`` if not."""


class State(Enum):
    """Whether commands of clients start."""

    SERVING = auto()
    PAUSED = auto()
    DRAINING = auto()


class BackendGate:
    """Holds logins, and commands that programs send for themselves, until it is known whether the backend answers."""

    def __init__(self, probe: Probe, tasks: TaskSet) -> None:
        self._probe = probe
        self._tasks = tasks
        self.logins = HeldCommand(lambda: BackendUnavailable("the backend does not answer"))
        self.own = HeldCommand(lambda: BackendUnavailable("the backend does not answer"))
        self._is_asking = False

    def refuse_all(self, error: BackendUnavailable) -> None:
        """End all commands that wait."""
        for waiting in (self.logins, self.own):
            waiting.refuse_all(error)

    def holds(self, exchange: Exchange, passage: Passage) -> bool:
        """Whether the command waits for an answer of the backend."""
        if passage not in (Passage.LOGIN, Passage.OWN):
            return False
        (self.logins if passage is Passage.LOGIN else self.own).add(exchange, LOGIN_SECONDS)
        if not self._is_asking:
            self._is_asking = True
            self._tasks.spawn(self._ask())
        return True

    async def _ask(self) -> None:
        try:
            while self.logins or self.own:
                try:
                    await self._probe()
                except CommandError:
                    self.own.refuse_all()
                    if self.logins:
                        await asyncio.sleep(PROBE_PAUSE_SECONDS)
                else:
                    await self.logins.let_go(while_true=lambda: True)
                    await self.own.let_go(while_true=lambda: True)
        finally:
            self._is_asking = False


class AdminOnly:
    """Refuses everything that is not administration, on the listener for admin commands."""

    def __init__(self, gate: BackendGate) -> None:
        self._gate = gate

    def holds(self, exchange: Exchange) -> bool:
        command = command_of(exchange)
        passage = passage_of(command)
        if command is None or passage is not Passage.HELD:
            return self._gate.holds(exchange, passage)
        reason = f"'{command.name[:64]}' is not accepted here: this listener is for admin commands"
        exchange.end(Refused(CommandError(UNAUTHORIZED, reason)))
        return True


class Pause:
    """The state, and the commands that it holds."""

    def __init__(self, gate: BackendGate, tasks: TaskSet) -> None:
        self.state = State.SERVING
        self.since_seconds = 0.0
        self.limit_seconds = 0.0
        self.held = HeldCommand(self._too_long)
        self._gate = gate
        self._tasks = tasks
        self._administrator: Administrator | None = None
        self._since = 0.0
        """When draining began, as sessions know the time."""
        self._refuses = False
        self.is_stopping = False
        """Whether the proxy stops, so that clients leave whatever is asked for."""

    @property
    def is_serving(self) -> bool:
        """Whether commands start as usual."""
        return self.state is State.SERVING

    def pause(self, limit_seconds: float) -> None:
        """Hold new commands, each for at most this time; those that are held already keep their limit."""
        if self.state is not State.PAUSED:
            self.since_seconds = asyncio.get_running_loop().time()
        self.state = State.PAUSED
        self.limit_seconds = limit_seconds

    def drain(self, administrator: Administrator) -> None:
        """Serve only this client, and only its admin commands.

        Until ``refuse``, the commands of clients that are connected start as usual, so that they can leave.
        """
        self.state = State.DRAINING
        self.since_seconds = asyncio.get_running_loop().time()
        self._since = time.monotonic()
        self._refuses = False
        self._administrator = administrator

    def refuse(self) -> None:
        """Clients that have not left get errors from now on."""
        self._refuses = True

    def resume(self) -> None:
        """Start commands as usual, first those that are held."""
        self.state = State.SERVING
        self._administrator = None
        self._tasks.spawn(self.held.let_go(while_true=lambda: self.is_serving))

    def stop(self) -> None:
        """The proxy is stopping: what is held cannot start any more."""
        self.is_stopping = True
        error = BackendUnavailable("the proxy is stopping", code=SHUTDOWN_IN_PROGRESS)
        self.held.refuse_all(error)
        self._gate.refuse_all(error)

    def is_administrators(self, session: Session) -> bool:
        """Whether a connection stays while the proxy drains."""
        administrator = self._administrator
        return session.is_for_admin or (administrator is not None and administrator.is_program_of(session))

    def holds(self, exchange: Exchange) -> bool:
        command = command_of(exchange)
        passage = passage_of(command)
        if self.state is State.DRAINING:
            return self._turns_away(exchange, command, passage)
        if passage is Passage.HELD:
            self.held.add(exchange, self.limit_seconds)
            return True
        return self._gate.holds(exchange, passage)

    def _turns_away(self, exchange: Exchange, command: Command | None, passage: Passage) -> bool:
        """Close connections of all clients but the administrator's, which may only use admin commands."""
        session = exchange.session
        if not (self.is_administrators(session) or (command is not None and self._greets_again(session, command))):
            if session.came_at_seconds > self._since:
                exchange.close()
                return True
            if not self._refuses:
                return False
        if passage is not Passage.HELD:
            return self._gate.holds(exchange, passage)
        exchange.end(Refused(_draining()))
        return True

    def _greets_again(self, session: Session, command: Command) -> bool:
        """Whether this is the first greeting of a further connection of the administrator's program."""
        administrator, metadata = self._administrator, command.raw(b"client")
        if administrator is None or administrator.is_for_admin or session.has_client_metadata:
            return False
        if command.name not in GREETS or not metadata:
            return False
        return session.peer == administrator.peer and metadata in administrator.greeting

    def _too_long(self) -> BackendUnavailable:
        return BackendUnavailable(f"the proxy is paused, and the command was held for {self.limit_seconds:g} s")


def _draining() -> BackendUnavailable:
    return BackendUnavailable("the proxy is draining: only admin commands are executed", code=SHUTDOWN_IN_PROGRESS)
