"""Warns of inserts that are about to create an ordinary collection.

If a collection does not exist, the server creates an ordinary one with the first insert. Its inserts are never batched,
which is probably not what users of this proxy want.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from catalog.bounded import BoundedCache
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.observe.limited_log import noticed
from proxy.request.command import Command
from proxy.request.exchange import Exchange

SEEN_BYTES: Final = 1 << 20
"""Limit of the cache of checked names; a name that was removed from it is checked again."""

WARNING: Final = "an insert creates an ordinary collection, whose inserts are not batched"
REMEDY: Final = "create it as a time-series collection first"


def _weight(namespace: Namespace, seen: bool) -> int:
    return 200 + 4 * (len(namespace.database) + len(namespace.collection))


class NewCollections:
    """Checks whether a collection exists, before the first insert that is relayed to it."""

    def __init__(
        self,
        exists: Callable[[Namespace], Awaitable[bool]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        record: Callable[[str, str], None] = lambda namespace, reason: None,
    ) -> None:
        """``exists`` raises ``CommandError`` if the backend does not respond; ``spawn`` owns the tasks.

        ``record`` is called with the name of each such collection and the warning.
        """
        self._record = record
        self._exists = exists
        self._spawn = spawn
        self._seen: BoundedCache[Namespace, bool] = BoundedCache(SEEN_BYTES, _weight)

    def looks_first(self, exchange: Exchange, command: Command, go_on: Callable[[], None]) -> bool:
        """Whether the insert has to wait for a check; ``go_on`` is called after it."""
        if not self.is_unseen(command):
            return False
        self._spawn(self._look_and_go_on(exchange, command.namespace, go_on))
        return True

    async def _look_and_go_on(self, exchange: Exchange, namespace: Namespace, go_on: Callable[[], None]) -> None:
        with exchange.times().at_backend():
            await self.look(namespace)
        go_on()

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
