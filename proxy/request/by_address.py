"""What waits at the door, by address: if there is too much of it, the oldest of the busiest address goes.

So a flood from one address does not keep out clients and proxies at others.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class ByAddress(Generic[T]):
    """Items in the order of their arrival, by address."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[T, None]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def of(self, address: str) -> int:
        """The number of items of this address."""
        return len(self._by_address.get(address, ()))

    def add(self, address: str, item: T) -> None:
        """One more has arrived."""
        self._by_address.setdefault(address, {})[item] = None
        self._number += 1

    def remove(self, address: str, item: T) -> bool:
        """It is no longer there; whether it was."""
        of_address = self._by_address.get(address)
        if of_address is None or item not in of_address:
            return False
        del of_address[item]
        self._number -= 1
        if not of_address:
            del self._by_address[address]
        return True

    def oldest_of_busiest(self) -> tuple[str, T]:
        """The address with the most items, and its oldest one; there must be one."""
        busiest = max(self._by_address, key=self.of)
        return busiest, next(iter(self._by_address[busiest]))

    def clear(self) -> None:
        """None is there any more."""
        self._by_address.clear()
        self._number = 0
