"""The latest slow commands in memory, for status pages and administrators."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

RING_BYTES: Final = 1024 * 1024
"""Maximum memory of all entries: a few hundred to a few thousand."""
_ENTRY_BYTES: Final = 1_200
"""Memory of an entry in addition to its texts: names, numbers and their places."""


@dataclass(frozen=True, slots=True)
class SlowEntry:
    """One slow command, or an insert that created an ordinary collection.

    ``at``: the end of the command, in UTC, as text (ISO 8601). ``values``: plain texts, numbers and lists of texts by
    name, as in the log; ``docs/operating.md`` explains the names.
    """

    at: str
    event: str
    values: Mapping[str, Any]

    def as_document(self) -> dict[str, Any]:
        """Everything in one document, ready for BSON or JSON."""
        return {"at": self.at, "event": self.event, **self.values}


def _size_bytes(entry: SlowEntry) -> int:
    size = _ENTRY_BYTES
    for value in entry.values.values():
        # Texts that are not ASCII take up to four bytes a character.
        texts = value if isinstance(value, list) else [value]
        size += sum(60 + (len(text) if text.isascii() else 4 * len(text)) for text in texts if isinstance(text, str))
    return size


class SlowRing:
    """Keeps the latest entries, up to ``limit_bytes``."""

    def __init__(self, limit_bytes: int = RING_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._entries: deque[tuple[SlowEntry, int]] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: SlowEntry) -> None:
        """Keep an entry; the oldest give way."""
        size_bytes = _size_bytes(entry)
        self._entries.append((entry, size_bytes))
        self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes:
            self.size_bytes -= self._entries.popleft()[1]

    def latest(self, most: int) -> list[SlowEntry]:
        """At most ``most`` entries, the newest first."""
        newest_first = reversed(self._entries)
        return [entry for (entry, _), _ in zip(newest_first, range(max(most, 0)), strict=False)]

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
        self.size_bytes = 0
