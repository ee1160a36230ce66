"""Connections of other proxies that have not proved yet who they are; their TLS handshakes count.

Anybody can open them, and each has a file descriptor, so there are at most ``MOST_STRANGERS``. For one more, the oldest
of the address with the most of them is closed, so that a flood from one address does not keep out proxies at others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from proxy.request.by_address import ByAddress

MOST_STRANGERS: Final = 128


class Strangers:
    """Counts strangers by address; implements ``proxy.clients.accepting.Door``."""

    def __init__(self) -> None:
        self._strangers: ByAddress[Hashable] = ByAddress()
        self._close: dict[Hashable, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._strangers)

    def refuses(self, address: str, file_number: int) -> bool:
        # A proxy that connects must not wait for those that say nothing.
        return False

    def begin(self, address: str, handshake: asyncio.Task[None]) -> None:
        self.enter(address, handshake, handshake.cancel)

    def enter(self, address: str, stranger: Hashable, close: Callable[[], object]) -> None:
        """One more has connected; another one may be closed for it."""
        self._strangers.add(address, stranger)
        self._close[stranger] = close
        if len(self._strangers) > MOST_STRANGERS:
            busiest, oldest = self._strangers.oldest_of_busiest()
            close_oldest = self._close[oldest]
            self.end(busiest, oldest)
            close_oldest()

    def end(self, address: str, handshake: Hashable) -> None:
        if self._strangers.remove(address, handshake):
            del self._close[handshake]

    def close(self) -> None:
        """Close them all."""
        all_of_them = list(self._close.values())
        self._strangers.clear()
        self._close.clear()
        for close in all_of_them:
            close()
