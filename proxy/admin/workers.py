"""What admin commands know of the other workers, if several processes serve the same clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from proxy.admin.arguments import Call

FOR_ALL: Final = frozenset({"pause", "resume", "drain", "reload", "kill"})
"""The commands that every worker executes, whichever of them they have reached."""


class Workers(Protocol):
    """All workers of this proxy."""

    def describe(self) -> Mapping[str, Any]:
        """Which worker this is, for replies of commands that only show what is here."""
        ...

    async def for_all(self, call: Call) -> Mapping[str, Any]:
        """Have all workers execute the command; returns their reply. Raises ``CommandError``."""
        ...
