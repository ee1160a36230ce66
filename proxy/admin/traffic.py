"""The actions ``pause``, ``resume`` and ``drain``: they stop and start the commands of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from catalog.errors import CommandError
from proxy.admin.arguments import Call
from proxy.admin.client_list import Connection, state_of
from proxy.admin.handler import Action
from proxy.admin.passing import name_and_namespace
from proxy.admin.pause import Pause, Probe, State
from proxy.request.command_table import ADMIN
from proxy.request.session import Session

CONFLICT: Final = 117
USUAL_LIMIT_SECONDS: Final = 60.0
"""How long a command is held, if the administrator does not say."""
USUAL_WAIT_SECONDS: Final = 10.0
_FIRST_LOOK_SECONDS: Final = 0.02
_LAST_LOOK_SECONDS: Final = 0.25


class Clients(Protocol):
    """All client connections (``proxy.clients.server``)."""

    def connections(self) -> Collection[Connection]:
        """The admitted connections."""
        ...

    def hold(self, pause: Pause | None) -> None:
        """From now on, ``pause`` decides whether a command starts; ``None``: all do."""
        ...

    def disconnect(self, keep: Callable[[Session], bool], grace_seconds: float, refuse: Callable[[], None]) -> None:
        """Let all other clients leave; ``refuse`` is called when no further command of theirs shall be executed."""
        ...

    def abort(self, keep: Callable[[Session], bool]) -> None:
        """Close the connections of all other clients at once."""
        ...


class Traffic:
    """The actions, and what ``status`` shows of them."""

    def __init__(
        self,
        pause: Pause,
        clients: Clients,
        uncommitted: Callable[[], tuple[int, int]],
        probe: Probe,
        grace_seconds: Callable[[], float],
    ) -> None:
        """``uncommitted``: measurements and bytes; ``grace_seconds``: how long draining waits for running commands."""
        self._pause = pause
        self._clients = clients
        self._uncommitted = uncommitted
        self._probe = probe
        self._grace_seconds = grace_seconds
        self._asked = 0
        """How often commands of clients were to be stopped."""
        self._end: asyncio.TimerHandle | None = None
        """The end of the time that draining gives to running commands."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """The actions by name."""
        return {"pause": self._hold, "resume": self._resume, "drain": self._drain}

    @property
    def why_not_ready(self) -> str:
        """Why no clients can be served; ``""`` if they can. A pause is no reason: clients wait."""
        return "the proxy is draining" if self._pause.state is State.DRAINING else ""

    def status(self) -> dict[str, Any]:
        """What ``status`` shows."""
        pause = self._pause
        shown: dict[str, Any] = {"state": pause.state.name.lower(), "running": self._running(), "held": len(pause.held)}
        if not pause.is_serving:
            shown["sinceSeconds"] = round(asyncio.get_running_loop().time() - pause.since_seconds, 3)
        if pause.state is State.PAUSED:
            shown["limitSeconds"] = pause.limit_seconds
        return shown

    def brief(self) -> tuple[str, int]:
        """The state, and the number of held commands, without looking at the connections."""
        return self._pause.state.name.lower(), len(self._pause.held)

    def _running(self) -> int:
        """Commands that have started and not ended, without admin commands and those that watch the proxy."""
        held = self._pause.held
        return sum(
            1
            for each in self._clients.connections()
            if state_of(each, held) == "running"
            and each.exchange is not None
            and name_and_namespace(each.exchange)[0] != ADMIN
        )

    async def _quiet(self, wait_seconds: float) -> Mapping[str, Any]:
        """Wait until no command runs and everything is committed, for limited time; returns what is left."""
        loop = asyncio.get_running_loop()
        until_seconds, pause_seconds = loop.time() + wait_seconds, _FIRST_LOOK_SECONDS
        while True:
            running, (uncommitted, _) = self._running(), self._uncommitted()
            if not (running or uncommitted) or loop.time() + pause_seconds > until_seconds:
                return {"running": running, "uncommitted": uncommitted}
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LAST_LOOK_SECONDS)

    async def _hold(self, call: Call) -> Mapping[str, Any]:
        self._refuse_while(State.DRAINING, "pause")
        self._asked += 1
        self._pause.pause(call.number("limitSeconds", USUAL_LIMIT_SECONDS))
        self._clients.hold(self._pause)
        left = await self._quiet(call.number("waitSeconds", USUAL_WAIT_SECONDS))
        return {**self.status(), **left}

    async def _resume(self, call: Call) -> Mapping[str, Any]:
        was, asked = self._pause.state, self._asked
        if was is State.PAUSED and not call.fields.get("force"):
            try:
                await self._probe()
            except CommandError as error:
                raise CommandError(
                    error.code,
                    f"the backend does not answer, so commands stay held; force: true starts them: {error.message}",
                ) from None
            if self._asked != asked:
                raise CommandError(CONFLICT, "clients were paused again meanwhile: commands stay held")
        held = len(self._pause.held)
        if self._end is not None:
            self._end.cancel()
        self._pause.resume()
        self._clients.hold(None)
        return {"was": was.name.lower(), "started": held}

    async def _drain(self, call: Call) -> Mapping[str, Any]:
        self._refuse_while(State.PAUSED, "drain")
        self._asked += 1
        self._pause.drain(call.administrator)
        self._clients.hold(self._pause)
        grace_seconds = self._grace_seconds()
        self._clients.disconnect(self._pause.is_administrators, grace_seconds, self._pause.refuse)
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(grace_seconds, self._abort)
        left = await self._quiet(call.number("waitSeconds", grace_seconds))
        return {**self.status(), **left}

    def _abort(self) -> None:
        self._clients.abort(self._pause.is_administrators)

    def _refuse_while(self, state: State, name: str) -> None:
        if self._pause.state is state:
            raise CommandError(
                CONFLICT, f"'{name}' is not possible while the proxy is {state.name.lower()}: resume first"
            )
