"""Connections of other proxies that have not proved yet who they are; their TLS handshakes count.

Anybody can open them, and each has a file descriptor, so there are at most ``MOST_STRANGERS``. For one more, the oldest
of the address with the most of them is closed, so that a flood from one address does not keep out proxies at others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

MOST_STRANGERS: Final = 128


class Strangers:
    """Counts strangers by address; implements ``proxy.clients.accepting.Door``."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[Hashable, Callable[[], object]]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def refuses(self, address: str) -> bool:
        # A proxy that connects must not wait for those that say nothing.
        return False

    def begin(self, address: str, handshake: asyncio.Task[None]) -> None:
        self.enter(address, handshake, handshake.cancel)

    def enter(self, address: str, stranger: Hashable, close: Callable[[], object]) -> None:
        """One more has connected; another one may be closed for it."""
        self._by_address.setdefault(address, {})[stranger] = close
        self._number += 1
        if self._number > MOST_STRANGERS:
            busiest = max(self._by_address, key=lambda each: len(self._by_address[each]))
            oldest, close_oldest = next(iter(self._by_address[busiest].items()))
            self.end(busiest, oldest)
            close_oldest()

    def end(self, address: str, handshake: Hashable) -> None:
        of_address = self._by_address.get(address)
        if of_address is None or of_address.pop(handshake, None) is None:
            return
        self._number -= 1
        if not of_address:
            del self._by_address[address]

    def close(self) -> None:
        """Close them all."""
        all_of_them = [close for of_address in self._by_address.values() for close in of_address.values()]
        self._by_address.clear()
        self._number = 0
        for close in all_of_them:
            close()
