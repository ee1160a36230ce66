"""Which processes have not answered in time, so that nobody waits for them for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SILENT_SECONDS: Final = 30.0
"""Time for which such a process is not waited for."""


class Silences:
    """The processes by name."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._until: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return self._now_seconds() < self._until.get(name, 0.0)

    def add(self, name: str) -> None:
        """It has not answered in time."""
        now_seconds = self._now_seconds()
        self._until = {each: until for each, until in self._until.items() if until > now_seconds}
        self._until[name] = now_seconds + SILENT_SECONDS
