"""Room (memory) for partly received messages: one limit for all connections, shared fairly between clients.

A message may have 48 MB, and its sender may stop before the end. The rest of a long message is therefore read only when
there is room for all of it; until then, the connection is not read. One client gets at most half of the room, however
many connections it opens, and waiting clients take turns. While clients wait, a connection that has room but sends
too slowly is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES

LEAST_ROOM_BYTES: Final = 4 * MAX_MESSAGE_SIZE_BYTES
"""Half of it has room for two messages of the maximum size."""
SLOW_SECONDS: Final = 10.0
SLOW_BYTES_PER_SECOND: Final = 64 * 1024
"""A connection that sends more slowly than this for ``SLOW_SECONDS`` is closed if others wait for its room."""


class Sender(Protocol):
    """A connection that receives a long message."""

    @property
    def received_bytes(self) -> int:
        """How much of the message has arrived."""
        ...

    def read_on(self) -> None:
        """There is room for the whole message: continue reading."""
        ...

    def abort(self) -> None:
        """Close immediately; ``ReceivingRoom.release`` follows."""
        ...


@dataclass(slots=True)
class _Client:
    """The room that one client uses, and its waiting connections with the size of their messages."""

    used_bytes: int = 0
    waiting: OrderedDict[Sender, int] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class _Place:
    """The room of one connection, and how much had arrived at the last check."""

    owner: Hashable
    size_bytes: int
    seen_bytes: int
    seen_at_seconds: float


class ReceivingRoom:
    """Allocates the room."""

    def __init__(self, limit_bytes: int) -> None:
        """``limit_bytes`` is at least ``LEAST_ROOM_BYTES``."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._clients: dict[Hashable, _Client] = {}
        self._turns: OrderedDict[Hashable, None] = OrderedDict()
        """Clients with a waiting connection; the first is served next."""
        self._waiting: dict[Sender, Hashable] = {}
        self._places: dict[Sender, _Place] = {}

    def take(self, sender: Sender, owner: Hashable, size_bytes: int, now_seconds: float) -> bool:
        """Whether there is room for a message of this size; otherwise ``read_on`` is called when there is.

        May be called again for the same message.
        """
        if sender in self._places:
            return True
        if sender in self._waiting:
            return False
        self._waiting[sender] = owner
        self._clients.setdefault(owner, _Client()).waiting[sender] = size_bytes
        self._turns.setdefault(owner)
        self._grant(now_seconds, sender)
        return sender in self._places

    def waits(self, sender: Sender) -> bool:
        """Whether this connection must not be read from."""
        return sender in self._waiting

    def release(self, sender: Sender, now_seconds: float) -> None:
        """The message is complete, or its sender has disconnected."""
        place = self._places.pop(sender, None)
        if place is not None:
            self.used_bytes -= place.size_bytes
            self._clients[place.owner].used_bytes -= place.size_bytes
            self._forget(place.owner)
        elif sender in self._waiting:
            owner = self._waiting.pop(sender)
            del self._clients[owner].waiting[sender]
            self._forget(owner)
        else:
            return
        self._grant(now_seconds)

    def _forget(self, owner: Hashable) -> None:
        client = self._clients[owner]
        if not client.waiting:
            self._turns.pop(owner, None)
            if not client.used_bytes:
                del self._clients[owner]

    def _grant(self, now_seconds: float, newcomer: Sender | None = None) -> None:
        # Few clients can use so much that their next message would exceed their half, so few are passed over.
        passed_over: list[Hashable] = []
        while self._turns:
            owner = next(iter(self._turns))
            client = self._clients[owner]
            sender, size_bytes = next(iter(client.waiting.items()))
            if client.used_bytes + size_bytes > self.limit_bytes // 2:
                del self._turns[owner]
                passed_over.append(owner)
                continue
            if self.used_bytes + size_bytes > self.limit_bytes:
                break
            del client.waiting[sender], self._waiting[sender]
            client.used_bytes += size_bytes
            self.used_bytes += size_bytes
            self._places[sender] = _Place(owner, size_bytes, sender.received_bytes, now_seconds)
            self._turns.move_to_end(owner)
            if not client.waiting:
                del self._turns[owner]
            if sender is not newcomer:
                sender.read_on()
        for owner in reversed(passed_over):
            self._turns[owner] = None
            self._turns.move_to_end(owner, last=False)

    def close_slow(self, now_seconds: float) -> None:
        """Close connections that send too slowly while others wait for their room."""
        if not self._turns:
            return
        slow: list[Sender] = []
        for sender, place in self._places.items():
            seconds = now_seconds - place.seen_at_seconds
            if seconds < SLOW_SECONDS or not self._is_wanted(place.owner):
                continue
            received_bytes = sender.received_bytes
            if received_bytes - place.seen_bytes < SLOW_BYTES_PER_SECOND * seconds:
                slow.append(sender)
            place.seen_bytes, place.seen_at_seconds = received_bytes, now_seconds
        for sender in slow:
            sender.abort()

    def _is_wanted(self, owner: Hashable) -> bool:
        """Whether a waiting client could use the room of this one."""
        first = next(iter(self._turns))
        client = self._clients[first]
        fits = client.used_bytes + next(iter(client.waiting.values())) <= self.limit_bytes // 2
        return fits or owner in self._turns
