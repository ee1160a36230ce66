"""Measures how fast parts are joined, so that no more of them are made than can be joined in time."""

from __future__ import annotations

MEASURED_DOCUMENTS = 100
"""A pass that joins fewer says nothing about the rate."""
WEIGHT = 0.2
"""Weight of the latest pass."""


class JoinRate:
    """The average of the latest passes that had something to join."""

    __slots__ = ("per_second",)

    def __init__(self) -> None:
        self.per_second = 0.0
        """Documents joined in a second, while a pass is in progress."""

    def measure(self, documents: int, seconds: float) -> float:
        """Count a pass; returns the new rate."""
        if documents >= MEASURED_DOCUMENTS and seconds > 0:
            self.per_second += (documents / seconds - self.per_second) * (WEIGHT if self.per_second else 1.0)
        return self.per_second
