"""How much is started in one turn of the event loop.

The sockets that one poll reports may be hundreds. If all their commands were started in that turn, then all would
be sent to the backend together, and the proxy would wait idly for the one answer to all. Commands beyond a limit
wait for the next turn instead, before which the first go out; so the backend works while the rest is read. Large
commands, batches of measurements, count as several, and when the commands of a turn have taken long the rest waits
whatever they count.

A connection that has more commands at hand starts a few of them at a time and then asks for another turn, behind
all who asked before: what one client sends is never worked off while others wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, Protocol

STARTS_IN_A_TURN: Final = 64
START_BYTES: Final = 2048
"""So many bytes count as one more start: staging what they hold takes about as long."""
TURN_SECONDS: Final = 0.003
"""After so long no further command is started in a turn."""


class Waiting(Protocol):
    """Who has a command to start."""

    def go_on(self) -> None:
        """It is your turn."""
        ...


class Turns:
    """Gives connections their turns, in the order in which they ask."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        limit: int = STARTS_IN_A_TURN,
        now_seconds: Callable[[], float] = perf_counter,
    ) -> None:
        """``call_soon`` calls in the next turn of the event loop; ``limit``: starts in one turn."""
        self._call_soon = call_soon
        self._limit = limit
        self._now_seconds = now_seconds
        self._left = limit
        self._until_seconds = 0.0
        self._waiting: deque[tuple[Waiting, int]] = deque()
        self._is_scheduled = False

    def take(self, connection: Waiting, size_bytes: int) -> bool:
        """Whether the connection may start what came in so many bytes now; else ``go_on`` tells it that it may."""
        starts = 1 + size_bytes // START_BYTES
        if not self._is_scheduled:
            self._begin()
        elif self._left <= 0 or self._now_seconds() >= self._until_seconds:
            self._waiting.append((connection, starts))
            return False
        self._left -= starts
        return True

    def started(self, starts: int) -> None:
        """A connection whose turn it is has started so many more commands."""
        self._left -= starts

    def wait(self, connection: Waiting) -> None:
        """The connection has had its share of this turn; ``go_on`` tells it when it may start further commands."""
        if not self._is_scheduled:
            self._begin()
        self._waiting.append((connection, 1))

    def _begin(self) -> None:
        self._is_scheduled = True
        self._until_seconds = self._now_seconds() + TURN_SECONDS
        self._call_soon(self._next)

    def _next(self) -> None:
        waiting = self._waiting
        self._left = self._limit
        self._is_scheduled = False
        if not waiting:
            return
        self._begin()
        # Who asks again meanwhile has his turn in the next one.
        for _ in range(len(waiting)):
            if self._left <= 0 or self._now_seconds() >= self._until_seconds:
                return
            connection, starts = waiting.popleft()
            self._left -= starts
            connection.go_on()
