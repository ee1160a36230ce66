"""Limits connections, by address, in all and by the limit of open files, and concurrent TLS handshakes.

A TLS handshake costs memory and CPU before the peer has authenticated. Above ``HANDSHAKES_AT_ONCE``, the oldest
handshake of the address with the most of them is cancelled, so that other addresses are served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from proxy.clients.receiving import ReceivingRoom
from proxy.observe.limited_log import noticed
from proxy.observe.metrics import ConnectionNumbers
from proxy.request.by_address import ByAddress
from proxy.settings.table import Settings
from proxy.upstream.file_limit import clients_within, file_limit, is_reserved

HANDSHAKES_AT_ONCE: Final = 512


class Handshake(Hashable, Protocol):
    """A TLS handshake in progress."""

    def cancel(self) -> object:
        """End the handshake and close its connection."""
        ...


class Admission:
    """Counts connections by address."""

    def __init__(self, settings: Settings, numbers: ConnectionNumbers, *, leaves_files: bool = False) -> None:
        """``leaves_files``: reject connections also to leave files for those to the backend and for the proxy."""
        self._leaves_files = leaves_files
        self._settings = settings
        self._numbers = numbers
        self._clients = 0
        self._per_address: Counter[str] = Counter()
        self._handshakes: ByAddress[Handshake] = ByAddress()
        self.room = ReceivingRoom(settings.max_receiving_bytes)
        self.on_change: Callable[[int], object] | None = None
        """Called with the number of connections, handshakes in progress included, when it has changed."""

    def follow(self, settings: Settings) -> None:
        """Apply reloaded settings; open connections stay open."""
        self._settings = settings
        self.room.limit_bytes = settings.max_receiving_bytes

    def refuses(self, address: str, file_number: int = 0) -> bool:
        """Whether to reject one more connection; counts rejections. Handshakes in progress count as connections."""
        settings = self._settings
        connections = self._per_address[address] + self._handshakes.of(address)
        clients = self._clients + len(self._handshakes)
        if clients >= settings.max_connections:
            self._reject(address, "too_many")
        elif 0 < settings.max_connections_per_address <= connections:
            self._reject(address, "too_many_per_address")
        elif self._leaves_files and _takes_too_many_files(clients, file_number):
            self._reject(address, "too_many_files")
        else:
            return False
        return True

    def _reject(self, address: str, reason: str) -> None:
        self._numbers.reject(reason)
        noticed.info("client connection rejected", peer=address, reason=reason, open=self._clients)

    def arriving(self) -> int:
        """Connections that are accepted and not yet admitted."""
        return len(self._handshakes)

    def entered(self, address: str) -> None:
        """A client has been admitted."""
        self._clients += 1
        self._per_address[address] += 1
        self._numbers.accept()
        self._changed()

    def left(self, address: str) -> None:
        """An admitted client has disconnected."""
        self._clients -= 1
        self._numbers.close()
        self._per_address[address] -= 1
        if self._per_address[address] <= 0:
            del self._per_address[address]
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self._clients + len(self._handshakes))

    def begin(self, address: str, handshake: Handshake) -> None:
        """A handshake begins; another one may be cancelled for it."""
        self._handshakes.add(address, handshake)
        if len(self._handshakes) > HANDSHAKES_AT_ONCE:
            busiest, oldest = self._handshakes.oldest_of_busiest()
            self.end(busiest, oldest)
            self._reject(busiest, "too_many_handshakes")
            oldest.cancel()
        self._changed()

    def end(self, address: str, handshake: Handshake) -> None:
        """The handshake has ended; does nothing if it no longer counts."""
        if self._handshakes.remove(address, handshake):
            self._changed()


def _takes_too_many_files(clients: int, file_number: int) -> bool:
    limit = file_limit()
    return clients >= clients_within(limit) or is_reserved(file_number, limit)
