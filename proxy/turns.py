"""How much is started in one turn of the event loop.

The sockets that one poll reports may be hundreds. If all their commands were started in that turn, then all would
be sent to the backend together, and the proxy would wait idly for the one answer to all. Commands beyond a limit
wait for the next turn instead, before which the first go out; so the backend works while the rest is read. Large
commands, batches of measurements, count as several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

STARTS_IN_A_TURN: Final = 64
START_BYTES: Final = 2048
"""So many bytes count as one more start: staging what they hold takes about as long."""


class Waiting(Protocol):
    """Who has a command to start."""

    def go_on(self) -> None:
        """It is your turn."""
        ...


class Turns:
    """Gives connections their turns, in the order in which they ask."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any], limit: int = STARTS_IN_A_TURN) -> None:
        """``call_soon`` calls in the next turn of the event loop; ``limit``: starts in one turn."""
        self._call_soon = call_soon
        self._limit = limit
        self._left = limit
        self._waiting: deque[tuple[Waiting, int]] = deque()
        self._is_scheduled = False

    def take(self, connection: Waiting, size_bytes: int) -> bool:
        """Whether the connection may start what came in so many bytes now; else ``go_on`` tells it that it may."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._next)
        starts = 1 + size_bytes // START_BYTES
        if self._left <= 0:
            self._waiting.append((connection, starts))
            return False
        self._left -= starts
        return True

    def _next(self) -> None:
        waiting, chosen = self._waiting, []
        left = self._limit
        while waiting and left > 0:
            connection, starts = waiting.popleft()
            chosen.append(connection)
            left -= starts
        self._left = left
        self._is_scheduled = bool(chosen)
        if chosen:
            self._call_soon(self._next)
        for connection in chosen:
            connection.go_on()
