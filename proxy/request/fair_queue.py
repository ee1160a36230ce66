"""A queue in which owners have their turns by what they ask for, so that nobody's many delay another's few."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

_STALE: Final = 64
"""So much may be kept of items that were dropped, and of owners who have none, beyond what is kept of items."""


@dataclass(slots=True)
class _Owner:
    """Whose items wait: their number, and when the next one would begin."""

    waiting: int
    next_start: int


class FairQueue(Generic[Item]):
    """Start-time fair queueing.

    Each item begins, on a clock of costs, where its owner's previous one ends, but not before now; that which begins
    first comes first. So an owner who comes anew waits for one item of each other owner at most, cheap items come
    before dear ones, and a dear one waits for a limited amount of cheap ones only. Owners without items are known for
    as long as their last ones count, but never many of them.
    """

    def __init__(self) -> None:
        self._items: OrderedDict[int, tuple[Hashable, Item]] = OrderedDict()
        self._heap: list[tuple[int, int]] = []
        self._owners: dict[Hashable, _Owner] = {}
        self._now = 0
        self._number = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, owner: Hashable, cost: int, item: Item) -> int:
        """One more at the end of this owner's; the number by which ``discard`` knows it."""
        state = self._owners.get(owner)
        if state is None:
            if len(self._owners) > 2 * len(self._items) + _STALE:
                self._owners = {known: kept for known, kept in self._owners.items() if kept.waiting}
            state = self._owners[owner] = _Owner(0, self._now)
        start = max(self._now, state.next_start)
        state.waiting += 1
        state.next_start = start + cost
        self._number += 1
        self._items[self._number] = owner, item
        heapq.heappush(self._heap, (start, self._number))
        return self._number

    def pop(self) -> Item:
        """The next one; there must be any."""
        while True:
            start, number = heapq.heappop(self._heap)
            if number in self._items:
                self._now = start
                return self._remove(number)

    @property
    def oldest(self) -> Item:
        """The one that waits longest; there must be any."""
        return next(iter(self._items.values()))[1]

    def pop_oldest(self) -> Item:
        """The one that waits longest, out of turn; there must be any."""
        item = self._remove(next(iter(self._items)))
        self._tidy()
        return item

    def get(self, number: int) -> Item | None:
        """This one, if it still waits."""
        return self._items.get(number, (None, None))[1]

    def discard(self, number: int) -> None:
        """This one waits no more, if it still did."""
        if number in self._items:
            self._remove(number)
            self._tidy()

    def _remove(self, number: int) -> Item:
        owner, item = self._items.pop(number)
        state = self._owners[owner]
        state.waiting -= 1
        if not state.waiting and state.next_start <= self._now:
            del self._owners[owner]
        if not self._items:
            self._owners.clear()
        return item

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._items) + _STALE:
            self._heap = [entry for entry in self._heap if entry[1] in self._items]
            heapq.heapify(self._heap)
