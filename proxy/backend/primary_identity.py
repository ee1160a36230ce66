"""Notices that another server is the primary, or that it was restarted or elected again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class PrimaryIdentity:
    """Which process the primary is, and which election has made it the primary."""

    def __init__(self) -> None:
        self._known: tuple[object, object] | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when it is another one; what the earlier one kept in memory only is lost."""

    def greeted(self, hello: Mapping[str, Any]) -> None:
        """It has sent this reply to a ``hello`` on a new connection."""
        topology: Mapping[str, Any] = hello.get("topologyVersion", {})
        identity = (topology.get("processId"), hello.get("electionId"))
        known, self._known = self._known, identity
        if known is not None and known != identity:
            self.on_change()
