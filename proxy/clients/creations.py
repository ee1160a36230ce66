"""The creations of time-series collections that this process has under way.

A server makes the buckets of a time-series collection first and then its name (H16). Commands that could take the name
in between wait until the creation has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from catalog.namespaces import Namespace
from proxy.clients.creating_commands import may_create_others, may_create_own
from proxy.request.command import Command

WAIT_SECONDS: Final = 5.0
"""Maximum time for which a command waits for a creation."""


class Creations:
    """The names that are being created."""

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds
        self._under_way: dict[Namespace, asyncio.Event] = {}

    @contextmanager
    def creating(self, namespace: Namespace) -> Iterator[None]:
        """The body creates the collection."""
        ended = self._under_way[namespace] = asyncio.Event()
        try:
            yield
        finally:
            ended.set()
            if self._under_way.get(namespace) is ended:
                del self._under_way[namespace]

    def is_under_way(self, namespace: Namespace) -> bool:
        """Whether this name is being created."""
        return namespace in self._under_way

    async def ended(self, namespace: Namespace) -> bool:
        """Wait until this name is not being created; false if that took too long."""
        return await self._all_ended([namespace])

    def disturbed_by(self, command: Command) -> bool:
        """Whether the command might take a name that is being created."""
        return bool(self._under_way) and bool(self._names(command))

    async def undisturbed(self, command: Command) -> bool:
        """Wait until the creations have ended that the command might disturb; false if that took too long."""
        return await self._all_ended(self._names(command))

    def _names(self, command: Command) -> list[Namespace]:
        if may_create_own(command):
            return [command.namespace] if command.namespace in self._under_way else []
        if not may_create_others(command):
            return []
        database = command.namespace.database
        return [name for name in self._under_way if database in (name.database, "admin")]

    async def _all_ended(self, names: list[Namespace]) -> bool:
        events = [self._under_way[name] for name in names if name in self._under_way]
        try:
            async with asyncio.timeout(self._wait_seconds):
                for event in events:
                    await event.wait()
        except TimeoutError:
            return False
        return True
