"""Counts events by a text that clients choose, with a limit on the number and length of the texts."""

from __future__ import annotations

from typing import Final

OTHERS: Final = "other"
"""Counts all texts that came after the limit was reached."""
MOST_TEXTS: Final = 100
LONGEST_TEXT: Final = 64
"""Characters; longer texts are cut."""


class BoundedCounts:
    """The first texts get a count of their own. None is ever removed, because a counter must not fall."""

    __slots__ = ("_counts", "_most")

    def __init__(self, most: int = MOST_TEXTS) -> None:
        self._counts: dict[str, int] = {}
        self._most = most

    def count(self, text: str) -> None:
        """Count one event."""
        name = text[:LONGEST_TEXT]
        if name not in self._counts and len(self._counts) >= self._most:
            name = OTHERS
        self._counts[name] = self._counts.get(name, 0) + 1

    def items(self) -> list[tuple[str, int]]:
        """Each text with its count; at most one more than the limit, which is ``OTHERS``."""
        return list(self._counts.items())
