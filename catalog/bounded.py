"""A cache that never takes more than so many bytes, whatever its keys and values are made of by clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES: Final = 400
"""What an entry costs beside its key and value: its places in two tables and in the order, and small objects."""


class BoundedCache(Generic[K, V]):
    """Values by key; the one not asked for longest goes first. Every call takes a time that no content lengthens.

    A weight is taken once, when the entry comes; it must hold for as long as the entry stays. The newest entry stays
    even if it alone is too heavy, so that who has just made it finds it: who wants to keep nothing so long weighs
    before.
    """

    __slots__ = ("_entries", "_limit_bytes", "_weigh", "_weights", "size_bytes")

    def __init__(self, limit_bytes: int, weigh: Callable[[K, V], int]) -> None:
        """``weigh``: the bytes of a key and its value; ``ENTRY_BYTES`` are added."""
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._limit_bytes = limit_bytes
        self._weigh = weigh
        self.size_bytes = 0

    def get(self, key: K) -> V | None:
        """The value, which counts as asked for now."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def peek(self, key: K) -> V | None:
        """As ``get``, without being asked for."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep it, in the place of what had this key, and let others go."""
        self.discard(key)
        weight = self._weigh(key, value) + ENTRY_BYTES
        self._entries[key] = value
        self._weights[key] = weight
        self.size_bytes += weight
        while self.size_bytes > self._limit_bytes and len(self._entries) > 1:
            oldest, _ = self._entries.popitem(last=False)
            self.size_bytes -= self._weights.pop(oldest)

    def discard(self, key: K) -> None:
        """Let it go, if it is there."""
        weight = self._weights.pop(key, 0)
        if weight:
            del self._entries[key]
            self.size_bytes -= weight

    def clear(self) -> None:
        """Let everything go."""
        self._entries.clear()
        self._weights.clear()
        self.size_bytes = 0

    def __contains__(self, key: object) -> bool:
        return key in self._weights

    def __len__(self) -> int:
        return len(self._weights)

    def items(self) -> list[tuple[K, V]]:
        """All of them, those not asked for longest first."""
        return list(self._entries.items())
