"""Databases whose readers were in the way of a join: they are left alone for a while, and others need not wait."""

from __future__ import annotations

from catalog.ports import Clock


class ReaderPauses:
    """One pause for each database, because readers are kept waiting by database."""

    def __init__(self, clock: Clock, pause_seconds: float) -> None:
        self._clock = clock
        self._pause_seconds = pause_seconds
        self._until_seconds: dict[str, float] = {}

    def begin(self, database: str) -> None:
        """Readers of this database were in the way."""
        now_seconds = self._clock.monotonic_seconds()
        for each in [each for each, until_seconds in self._until_seconds.items() if until_seconds <= now_seconds]:
            del self._until_seconds[each]
        self._until_seconds[database] = now_seconds + self._pause_seconds

    def are_on(self, database: str) -> bool:
        """Whether they were, just now."""
        return self._clock.monotonic_seconds() < self._until_seconds.get(database, 0.0)
