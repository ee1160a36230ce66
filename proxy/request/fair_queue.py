"""A fair queue: owners take turns by the cost of their items, so that one owner's items do not delay the others."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

_STALE: Final = 64
"""How many discarded items, and owners without items, may be kept in addition to the waiting items."""


@dataclass(slots=True)
class _Owner:
    """An owner: the number of its waiting items, and the start time of its next one."""

    waiting: int
    next_start: int


class FairQueue(Generic[Item]):
    """Start-time fair queueing.

    On a virtual clock that counts costs, each item starts when its owner's previous item ends, but not before now; the
    item with the earliest start comes first. So a new owner waits for at most one item of each other owner, cheap items
    come before expensive ones, and an expensive one waits for a limited amount of cheap ones. Owners without items are
    kept while their last item counts, but never many of them.
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
        """Add an item after the others of its owner; returns its number for ``discard``."""
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
        """Remove and return the next item; the queue must not be empty."""
        while True:
            start, number = heapq.heappop(self._heap)
            if number in self._items:
                self._now = start
                return self._remove(number)

    @property
    def first(self) -> Item:
        """The next item, which stays in the queue; the queue must not be empty."""
        while self._heap[0][1] not in self._items:
            heapq.heappop(self._heap)
        return self._items[self._heap[0][1]][1]

    @property
    def oldest(self) -> Item:
        """The item that has waited longest; the queue must not be empty."""
        return next(iter(self._items.values()))[1]

    def pop_oldest(self) -> Item:
        """Remove and return the item that has waited longest; the queue must not be empty."""
        item = self._remove(next(iter(self._items)))
        self._tidy()
        return item

    def get(self, number: int) -> Item | None:
        """The item with this number, if it still waits."""
        return self._items.get(number, (None, None))[1]

    def discard(self, number: int) -> None:
        """Remove the item with this number, if it still waits."""
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
