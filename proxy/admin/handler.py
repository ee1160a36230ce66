"""Executes admin commands: checks the fields and the rights, then calls the action of that name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import structlog

from catalog.errors import CommandError
from proxy.admin.arguments import Call, call_of
from proxy.admin.rights import AdminRights
from proxy.admin.table import COMMANDS, AdminCommand, Right
from proxy.admin.workers import FOR_ALL, Workers
from proxy.observe.tasks import TaskSet
from proxy.request.attempt import Refused, Replied, Unexpected
from proxy.request.exchange import Exchange, encode

log = structlog.get_logger(__name__)

Action: TypeAlias = Callable[[Call], Awaitable[Mapping[str, Any]]]
"""Executes a checked command that the client may use; returns the reply without ``ok``, or raises ``CommandError``."""


class AdminHandler:
    """Executes the commands for which there is an action, in tasks of their own."""

    def __init__(
        self, actions: Mapping[str, Action], rights: AdminRights, tasks: TaskSet, workers: Workers | None = None
    ) -> None:
        """``actions`` by names of the table; ``workers``: all of this proxy, if there are several."""
        self._actions: dict[str, Action] = {"help": self._help}
        self._known: dict[str, AdminCommand] = {}
        self._rights = rights
        self._tasks = tasks
        self._workers = workers
        self.add(actions)

    def add(self, actions: Mapping[str, Action]) -> None:
        """Execute these commands, too."""
        self._actions |= actions
        self._known = {name: row for name, row in COMMANDS.items() if name in self._actions}

    def start(self, exchange: Exchange) -> None:
        self._tasks.spawn(self._run(exchange))

    async def _run(self, exchange: Exchange) -> None:
        try:
            document = encode({**await self._execute(exchange), "ok": 1.0})
        except CommandError as error:
            exchange.end(Refused(error))
        except Exception as error:  # noqa: BLE001  (an outcome, too)
            exchange.end(Unexpected(error))
        else:
            exchange.end(Replied(document))

    async def _execute(self, exchange: Exchange) -> Mapping[str, Any]:
        session = exchange.session
        # Before the fields are looked at, so that who may not use a command learns nothing.
        await self._rights.check(session, "", Right.ANYONE)
        call = call_of(exchange, exchange.parsed(), self._known)
        right = self._known[call.name].right
        await self._rights.check(session, call.name, right)
        if right is not Right.CHANGE:
            return await self._act(call)
        users = [str(user) for user in session.identity.users]
        # Not the meta value, which may be secret.
        fields = {name: value for name, value in call.fields.items() if name != "meta"}
        who = {"command": call.name, "fields": fields, "peer": session.peer, "users": users}
        log.info("admin command", **who, connection=session.connection_id)
        try:
            return await self._act(call)
        except CommandError as error:
            log.info("admin command failed", command=call.name, connection=session.connection_id, reason=error.message)
            raise

    async def _act(self, call: Call) -> Mapping[str, Any]:
        workers = self._workers
        if workers is None:
            return await self.here(call)
        if call.name in FOR_ALL:
            return await workers.for_all(call)
        return {**await self.here(call), "worker": workers.describe()}

    async def here(self, call: Call) -> Mapping[str, Any]:
        """Execute a checked command in this process; raises ``CommandError``."""
        return await self._actions[call.name](call)

    async def _help(self, call: Call) -> Mapping[str, Any]:
        return {
            "commands": {
                name: {
                    "text": row.text,
                    "privileges": list(row.right.actions),
                    "fields": {
                        field: f"{each.kind.value}{', required' if each.is_required else ''}: {each.text}"
                        for field, each in row.fields.items()
                    },
                }
                for name, row in self._known.items()
            }
        }
