"""Warns of inserts that are about to create an ordinary collection.

The server creates a collection that does not exist with the first insert. It is an ordinary one for ever, so that its
inserts are never batched, which is hardly what somebody wants who sends them through this proxy.
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

SEEN_BYTES: Final = 1 << 20
"""For the names of collections that were looked at; one that is forgotten is looked at once more."""

WARNING: Final = "an insert creates an ordinary collection, whose inserts are not batched"
REMEDY: Final = "create it as a time-series collection first"


def _weight(namespace: Namespace, seen: bool) -> int:
    return 200 + 4 * (len(namespace.database) + len(namespace.collection))


class NewCollections:
    """Looks once whether a collection exists, before the first insert that is relayed to it."""

    def __init__(
        self,
        exists: Callable[[Namespace], Awaitable[bool]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """``exists`` raises ``CommandError`` if the backend cannot be asked; ``spawn`` owns the look."""
        self._exists = exists
        self._spawn = spawn
        self._seen: BoundedCache[Namespace, bool] = BoundedCache(SEEN_BYTES, _weight)

    def looks_first(self, command: Command, go_on: Callable[[], None]) -> bool:
        """Whether the insert has to wait for a look; ``go_on`` is called after it."""
        if not self.is_unseen(command):
            return False
        self._spawn(self._look_and_go_on(command.namespace, go_on))
        return True

    async def _look_and_go_on(self, namespace: Namespace, go_on: Callable[[], None]) -> None:
        await self.look(namespace)
        go_on()

    def is_unseen(self, command: Command) -> bool:
        """Whether this is the first insert into a collection of that name; from now on it is none."""
        namespace = command.namespace
        if command.name != "insert" or namespace.collection.startswith("system."):
            return False
        if self._seen.get(namespace) is not None:
            return False
        self._seen.put(namespace, True)
        return True

    async def look(self, namespace: Namespace) -> None:
        """Warn if the collection does not exist; what cannot be found out is no reason to warn."""
        with suppress(CommandError):
            if not await self._exists(namespace):
                noticed.warning(WARNING, collection=str(namespace), remedy=REMEDY)
