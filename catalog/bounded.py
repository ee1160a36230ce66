"""A cache that is bounded in bytes, and records that are bounded in entries, whatever clients cause."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES: Final = 400
"""Overhead of an entry in addition to its key and value: its places in two tables and in the order, small objects."""


def remember(record: OrderedDict[K, V], key: K, value: V, most: int) -> V | None:
    """Make this the newest entry; the value of the oldest one if there are more than ``most``, which is removed then.

    Takes constant time, unlike removing the first entry of an ordinary dictionary again and again.
    """
    record[key] = value
    record.move_to_end(key)
    return record.popitem(last=False)[1] if len(record) > most else None


class BoundedCache(Generic[K, V]):
    """Values by key; the least recently used entry is removed first. Each call takes amortised constant time.

    An entry is weighed once, when it is added, so its weight must not change. The newest entry is kept even if it alone
    exceeds the limit, so that the caller finds it; callers must check the weight before if they do not want that.
    """

    __slots__ = ("_entries", "_limit_bytes", "_weigh", "_weights", "size_bytes")

    def __init__(self, limit_bytes: int, weigh: Callable[[K, V], int]) -> None:
        """``weigh``: the size of a key and its value in bytes; ``ENTRY_BYTES`` are added."""
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._limit_bytes = limit_bytes
        self._weigh = weigh
        self.size_bytes = 0

    def get(self, key: K) -> V | None:
        """The value of a key, which counts as used now; ``None`` if there is none."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def peek(self, key: K) -> V | None:
        """As ``get``, but the value does not count as used."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Add or replace a value, and remove the least recently used ones above the limit."""
        self.discard(key)
        weight = self._weigh(key, value) + ENTRY_BYTES
        self._entries[key] = value
        self._weights[key] = weight
        self.size_bytes += weight
        while self.size_bytes > self._limit_bytes and len(self._entries) > 1:
            oldest, _ = self._entries.popitem(last=False)
            self.size_bytes -= self._weights.pop(oldest)

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        weight = self._weights.pop(key, 0)
        if weight:
            del self._entries[key]
            self.size_bytes -= weight

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self._weights.clear()
        self.size_bytes = 0

    def __contains__(self, key: object) -> bool:
        return key in self._weights

    def __len__(self) -> int:
        return len(self._weights)

    def items(self) -> list[tuple[K, V]]:
        """All keys and values, the least recently used first."""
        return list(self._entries.items())
