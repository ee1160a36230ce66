"""Lists the time-series collections of a database with the proxy's own account."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from catalog.bounded import remember
from catalog.bson.codec import TOLERANT
from catalog.errors import UNAUTHORIZED, CommandError
from proxy.backend.driver_calls import DriverCalls, DriverClient
from proxy.backend.explained_views import explained_views
from proxy.backend.lastpoint_indexes import lastpoint_indexes
from proxy.backend.least_role import OF_THE_SERVER, Privilege, is_no_concern
from proxy.backend.namespace_registry import LASTPOINT_INDEXES, VIEW, needed_of
from proxy.backend.service_connection import LOGIN_REFUSED
from proxy.observe.limited_log import noticed
from proxy.request.own_steps import client_message
from proxy.request.ports import RunCommand

log = structlog.get_logger(__name__)

MOST_RELAYED: Final = 1_000
"""How many databases without rights are remembered."""

RELAYED: Final = "commands on a database are relayed: the backend's account has no rights there"

AskPrivileges = Callable[[], Awaitable[Sequence[Privilege] | None]]


class CollectionListing:
    """The listing that a ``NamespaceRegistry`` needs."""

    def __init__(
        self,
        calls: DriverCalls,
        run: RunCommand,
        asked_privileges: AskPrivileges,
        is_logged_out: Callable[[], bool],
        describes: Callable[[], bool],
        covers: Callable[[str], None] = lambda database: None,
    ) -> None:
        """``asked_privileges``: those of the account now, ``None`` without access control.

        ``is_logged_out``: whether the account is known to be logged out.
        ``describes``: whether to ask also what rewritten reads depend on. ``covers`` is called with a database whose
        commands were relayed until now, because the account had no rights there.
        """
        self._covers = covers
        self._relayed: OrderedDict[str, None] = OrderedDict()
        self._calls = calls
        self._run = run
        self._asked_privileges = asked_privileges
        self._is_logged_out = is_logged_out
        self._describes = describes

    async def collections(self, database: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The entries that match; none if only the client's own rights count there. Raises ``CommandError``."""
        describes = self._describes()
        try:
            entries = await self._entries(database, wanted)
        except CommandError as error:
            if error.code != UNAUTHORIZED and error.code not in LOGIN_REFUSED:
                raise
            if await self._must_list(database, describes=describes):
                raise _refused() from None
            remember(self._relayed, database, None, MOST_RELAYED)
            return []
        if database in self._relayed:
            del self._relayed[database]
            self._covers(database)
        log.debug("collections listed", database=database, timeseries=len(entries))
        return await self._described(database, entries) if describes else entries

    async def _entries(self, database: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        if self._is_logged_out():
            # The driver would wait for a new connection, which cannot log in.
            raise _refused()

        async def request(client: DriverClient) -> list[dict[str, Any]]:
            listed = client.get_database(database, codec_options=TOLERANT)
            return [needed_of(entry) async for entry in await listed.list_collections(filter=wanted)]

        return await self._calls.ask(request)

    async def _must_list(self, database: str, *, describes: bool) -> bool:
        """Whether the account must be able to list these collections, after the backend has refused it.

        Natively, everything is up to the client's rights if the account has none.
        """
        if not describes:
            return False
        try:
            privileges = await self._asked_privileges()
        except CommandError:
            return True
        if privileges is None or not is_no_concern(database, privileges):
            return True
        if database not in OF_THE_SERVER:
            noticed.info(RELAYED, database=database)
        return False

    async def _described(self, database: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        series = {
            entry["name"]: entry["options"]["timeseries"]["timeField"]
            for entry in entries
            if entry["type"] == "timeseries" and "timeseries" in entry["options"]
        }
        views, latest = await asyncio.gather(
            explained_views(self._run, database, list(series)), lastpoint_indexes(self._run, database, series)
        )
        return [
            {**entry, VIEW: views[entry["name"]], LASTPOINT_INDEXES: latest.get(entry["name"])}
            if entry["name"] in views
            else entry
            for entry in entries
        ]


def _refused() -> CommandError:
    return CommandError(UNAUTHORIZED, client_message(UNAUTHORIZED, "", holds_data=False))
