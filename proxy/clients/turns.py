"""Limits how many commands are started in one turn of the event loop.

One poll may report hundreds of sockets. If all their commands were started in the same turn, they would be sent to the
backend together, and the proxy would then be idle until the backend has answered. Commands beyond a limit wait for the
next turn, so the backend already works while the rest is read. Large commands count as several, and no more are started
in a turn that has lasted ``TURN_SECONDS``.

Commands other than inserts are *prompt*: inserts wait for a commit anyway, with those of all others, and hundreds of
them at once would keep a read waiting for several turns. So a few prompt commands are started beyond the limits of a
turn, and those that wait come before inserts that wait. Each of the two kinds has half of the turn if both wait: what
one command takes beyond that is not taken from the other kind.

A connection whose last command held the event loop for a whole turn is *heavy*. Its next command waits behind all
others, and one of those is started in each turn at least. So however many connections send commands that are expensive
to rewrite, the others wait for one of them in each turn, and not for all.

A connection that has received several commands starts a few of them and then queues again, behind all connections that
wait for their first start: a client that sends one command and waits for the reply is not delayed by clients that send
many, however many connections they open. One of those is served in each turn at least, and all together have
``IN_ADVANCE_SECONDS`` of it: a turn is repeated at once if nobody else has anything to do.

A few small commands are started before a turn begins: a turn needs a call of the event loop, which then polls once
more, and few clients never have to wait for one another. A command that held the event loop ends that.

A wait counts from the beginning of the turn in which it began, which is when the command was received, so it needs no
look at the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Protocol

STARTS_IN_A_TURN: Final = 64
START_BYTES: Final = 2048
"""This many bytes of a message count as one more start: staging them takes about as long."""
TURN_SECONDS: Final = 0.001
"""After this time, no further command is started in a turn. A commit takes several turns, so short ones count."""

PROMPT_STARTS: Final = 8
"""The number of starts of prompt commands that are possible beyond the limits of a turn."""
PROMPT_SECONDS: Final = TURN_SECONDS / 2
"""The time that such starts may take."""

UNCOUNTED_STARTS: Final = 4
"""The number of small commands that are started before a turn begins. Each may take nearly ``TURN_SECONDS``."""

IN_ADVANCE_SECONDS: Final = 0.00025
"""Time in a turn for connections that send without waiting for replies."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """``starts`` in one turn, and ``uncounted`` ones of small commands before it begins."""

    starts: int = STARTS_IN_A_TURN
    uncounted: int = UNCOUNTED_STARTS

    @property
    def in_all(self) -> int:
        """All starts until the end of a turn."""
        return self.starts + self.uncounted


LIMITS: Final = TurnLimits()


class QueuedConnection(Protocol):
    """A connection that has a command to start."""

    def go_on(self, since_seconds: float) -> None:
        """Start commands now; the connection has waited since then."""
        ...


class Turns:
    """Gives connections their turns, by kind and then in the order of arrival.

    First come commands that wait for their first start, then those sent in advance, then those of heavy connections.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        limits: TurnLimits = LIMITS,
        now_seconds: Callable[[], float] = perf_counter,
    ) -> None:
        """``call_soon`` schedules a call for the next turn of the event loop."""
        self._call_soon = call_soon
        self._limits = limits
        self._now_seconds = now_seconds
        self._left = limits.in_all
        """Starts until the end of the turn; before it begins, those that do not count come first."""
        self._began_seconds = 0.0
        self._until_seconds = 0.0
        self._prompt_left = PROMPT_STARTS
        self._prompt: deque[tuple[QueuedConnection, int, float]] = deque()
        self._waiting: deque[tuple[QueuedConnection, int, float]] = deque()
        self._in_advance: deque[tuple[QueuedConnection, int, float]] = deque()
        """Connections whose next command was sent before they had the reply of the last one."""
        self._heavy: deque[tuple[QueuedConnection, int, float]] = deque()
        self._is_scheduled = False

    def take(self, connection: QueuedConnection, size_bytes: int, *, is_prompt: bool, is_heavy: bool = False) -> bool:
        """Whether the connection may start a command of this size now; otherwise ``go_on`` is called later."""
        if not self._is_scheduled and not is_heavy and size_bytes < START_BYTES and self._left > self._limits.starts:
            self._left -= 1
            return True
        starts = 1 + size_bytes // START_BYTES
        if not self._is_scheduled:
            self._begin()
        elif is_heavy and self._heavy:
            self._heavy.append((connection, starts, self._began_seconds))
            return False
        elif self._left <= 0 or self._now_seconds() >= self._until_seconds:
            if is_prompt and not is_heavy and self._has_room_for_prompt(starts):
                self._prompt_left -= starts
                return True
            queue = self._heavy if is_heavy else self._prompt if is_prompt else self._waiting
            queue.append((connection, starts, self._began_seconds))
            return False
        self._left -= starts
        return True

    def _has_room_for_prompt(self, starts: int) -> bool:
        """Whether a prompt command may start beyond the limits of the turn."""
        return starts <= self._prompt_left and self._now_seconds() < self._until_seconds + PROMPT_SECONDS

    def started(self, starts: int) -> None:
        """A connection has started ``starts`` further commands in its turn."""
        self._left -= starts
        self._prompt_left -= starts

    def held(self) -> None:
        """A command has held the event loop for a whole turn."""
        self._end_uncounted()

    def _end_uncounted(self) -> None:
        """All further starts count."""
        self._left = min(self._left, self._limits.starts)

    def wait(self, connection: QueuedConnection) -> None:
        """The connection has used its share of this turn; ``go_on`` is called when it may start further commands."""
        if not self._is_scheduled:
            self._begin()
        self._in_advance.append((connection, 1, self._began_seconds))

    def _begin(self) -> None:
        self._is_scheduled = True
        self._end_uncounted()
        self._began_seconds = self._now_seconds()
        self._until_seconds = self._began_seconds + TURN_SECONDS
        self._call_soon(self._next)

    def _next(self) -> None:
        self._left = self._limits.in_all
        self._prompt_left = PROMPT_STARTS
        self._is_scheduled = False
        if not self._waiting and not self._prompt and not self._in_advance and not self._heavy:
            return
        self._begin()
        in_advance, heavy = len(self._in_advance), len(self._heavy)
        self._serve_prompt()
        self._serve(self._waiting, len(self._waiting), self._until_seconds)
        if in_advance:
            until_seconds = min(self._until_seconds, self._now_seconds() + IN_ADVANCE_SECONDS)
            self._serve_first(self._in_advance)
            self._serve(self._in_advance, in_advance - 1, until_seconds)
        if heavy:
            self._serve_first(self._heavy)
            self._serve(self._heavy, heavy - 1, self._until_seconds)

    def _serve_prompt(self) -> None:
        """Serve prompt commands, with half of the turn if others wait, and leave these their half."""
        if not self._prompt:
            return
        if not self._waiting:
            self._serve(self._prompt, len(self._prompt), self._until_seconds)
            return
        kept = self._left // 2
        self._left -= kept
        self._serve(self._prompt, len(self._prompt), self._until_seconds - TURN_SECONDS / 2)
        self._left = max(0, self._left) + kept
        self._until_seconds = max(self._until_seconds, self._now_seconds() + TURN_SECONDS / 2)

    def _serve(self, queue: deque[tuple[QueuedConnection, int, float]], count: int, until_seconds: float) -> None:
        """Serve up to ``count`` connections, so that one that queues again meanwhile waits for the next turn."""
        for _ in range(count):
            if self._left <= 0 or self._now_seconds() >= until_seconds:
                return
            self._serve_first(queue)

    def _serve_first(self, queue: deque[tuple[QueuedConnection, int, float]]) -> None:
        connection, starts, since_seconds = queue.popleft()
        self._left -= starts
        connection.go_on(since_seconds)
