"""Holds back commands that are about to create a collection, until that is looked at.

If a collection does not exist, the server creates an ordinary one with the first insert. Its inserts are never batched,
which is probably not what users of this proxy want: a rule makes it a time-series collection
(``proxy.clients.ruled_creation``), and without a rule, the log has a warning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from catalog.bounded import BoundedCache
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.clients.ruled_creation import RuledCreation
from proxy.observe.limited_log import noticed
from proxy.request.command import Command
from proxy.request.exchange import Exchange

SEEN_BYTES: Final = 1 << 20
"""Limit of the cache of checked names; a name that was removed from it is checked again."""

WARNING: Final = "an insert creates an ordinary collection, whose inserts are not batched"
REMEDY: Final = "create it as a time-series collection first, or add a rule to create_as_timeseries"


def _weight(namespace: Namespace, seen: bool) -> int:
    return 200 + 4 * (len(namespace.database) + len(namespace.collection))


class NewCollections:
    """Checks whether a collection exists, before it would be created by a command that is relayed."""

    def __init__(
        self,
        exists: Callable[[Namespace], Awaitable[bool]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        record: Callable[[str, str], None] = lambda namespace, reason: None,
        ruled: RuledCreation | None = None,
    ) -> None:
        """``exists`` raises ``CommandError`` if the backend does not respond; ``spawn`` owns the tasks.

        ``record`` is called with the name of each such collection and the warning. ``ruled`` applies the rules;
        ``None`` if there are none.
        """
        self._record = record
        self._exists = exists
        self._spawn = spawn
        self._ruled = ruled
        self._seen: BoundedCache[Namespace, bool] = BoundedCache(SEEN_BYTES, _weight)

    def governs(self, command: Command) -> bool:
        """Whether a rule is for the collection. Such commands have to be looked at each time: it may be dropped.

        Commands in transactions count, too: once they are recognised, the same ones outside of them are.
        """
        return self._ruled is not None and self._ruled.covers(command)

    def looks_first(self, exchange: Exchange, command: Command, go_on: Callable[[Exchange], None]) -> bool:
        """Whether the command has to wait for a look; afterwards ``go_on`` is called, or the exchange ends."""
        ruled = self._ruled
        if ruled is not None:
            if ruled.goes_on(exchange):
                return False
            rule = ruled.rule_of(command)
            if rule is not None:
                if ruled.is_settled(command.namespace):
                    return False
                self._spawn(ruled.create(exchange, rule, go_on))
                return True
            if ruled.disturbed_by(command):
                self._spawn(ruled.wait(exchange, go_on))
                return True
        if not self.is_unseen(command):
            return False
        self._spawn(self._look_and_go_on(exchange, command.namespace, go_on))
        return True

    async def _look_and_go_on(
        self, exchange: Exchange, namespace: Namespace, go_on: Callable[[Exchange], None]
    ) -> None:
        with exchange.times().at_backend():
            await self.look(namespace)
        go_on(exchange)

    def is_unseen(self, command: Command) -> bool:
        """Whether this is the first insert into a collection of that name; records the name."""
        namespace = command.namespace
        if command.name != "insert" or namespace.collection.startswith("system."):
            return False
        if self._seen.get(namespace) is not None:
            return False
        self._seen.put(namespace, True)
        return True

    async def look(self, namespace: Namespace) -> None:
        """Warn if the collection does not exist; do not warn if that is unknown."""
        with suppress(CommandError):
            if not await self._exists(namespace):
                noticed.warning(WARNING, collection=str(namespace), remedy=REMEDY)
                self._record(str(namespace), WARNING)
