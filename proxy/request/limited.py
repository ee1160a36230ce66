"""Users and databases with limits: what each uses now, and the commands that wait for it.

Names come from clients, so only those that use something are remembered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from catalog.errors import CommandError
from catalog.identity import Identity, User
from proxy.observe.allowance import Allowance
from proxy.observe.limit_numbers import LimitCounts, LimitNumbers
from proxy.request.exchange import Exchange
from proxy.request.fair_queue import FairQueue
from proxy.request.session import Session
from proxy.settings.limits import EVERYONE, DatabaseLimits, EffectiveLimits, UserLimits, effective

USER: Final = "user"
DATABASE: Final = "database"
OVERLOADED: Final = 462
LABELS: Final = ("SystemOverloadedError", "RetryableError", "NoWritesPerformed")
"""The labels with which servers from 8.2 refuse commands above a rate: drivers that know them wait, and try again."""
NEEDS_A_NAME: Final = frozenset({"admin", "config", "local"})
"""Databases that ``*`` does not limit, because administrators and drivers use them."""
_IDLE_ENTRIES: Final = 256
"""How many names may be remembered in addition to twice those in use before the unused are forgotten."""


def overloaded(message: str) -> CommandError:
    """The error for a command above a limit, of which nothing was executed."""
    return CommandError(OVERLOADED, message, labels=LABELS, fails_command=True)


class QueuedCommand:
    """A command that waits. ``go_on`` is called when its turn comes, ``refuse`` if it has waited too long."""

    __slots__ = ("_number", "_queue", "_timer", "cost", "exchange", "go_on", "refuse", "since_seconds")

    def __init__(self, exchange: Exchange, cost: int, go_on: Callable[[], None], refuse: Callable[[], None]) -> None:
        self.exchange = exchange
        self.cost = cost
        self.go_on = go_on
        self.refuse = refuse
        self.since_seconds = time.perf_counter()
        self._queue: Line | None = None
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, queue: Line, number: int, max_wait_ms: int) -> None:
        """It stands in this queue now."""
        self._queue, self._number = queue, number
        self._timer = asyncio.get_running_loop().call_later(max_wait_ms / 1000, self._expire)
        self.exchange.on_abandon = self.leave

    def end(self) -> None:
        """It has left the queue."""
        self._queue = None
        if self._timer is not None:
            self._timer.cancel()
        self.exchange.on_abandon = None
        self.exchange.queued(self.since_seconds)

    def leave(self) -> None:
        """Leave the queue before the turn comes: the client has disconnected, or the wait is over."""
        if self._queue is not None:
            self._queue.discard(self._number)
            self.end()

    def _expire(self) -> None:
        self.leave()
        self.refuse()


class Line:
    """Commands that wait, in fair turns of their clients."""

    __slots__ = ("_queue", "changed")

    def __init__(self, changed: Callable[[int], None]) -> None:
        """``changed`` is called with +1 and -1 when a command comes and leaves."""
        self._queue: FairQueue[QueuedCommand] = FairQueue()
        self.changed = changed

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, owner: Hashable, waiting: QueuedCommand, max_wait_ms: int) -> None:
        """Add a command of this client."""
        number = self._queue.add(owner, waiting.cost, waiting)
        self.changed(1)
        waiting.begin(self, number, max_wait_ms)

    @property
    def next_cost(self) -> int:
        """The cost of the next command; there must be one."""
        return self._queue.first.cost

    def pop(self) -> QueuedCommand:
        """Remove and return the next command; there must be one."""
        waiting = self._queue.pop()
        self.changed(-1)
        waiting.end()
        return waiting

    def discard(self, number: int) -> None:
        """Remove a command that waits."""
        self._queue.discard(number)
        self.changed(-1)


class Limited:
    """One user or database."""

    def __init__(self, kind: str, name: str, limits: EffectiveLimits, counts: LimitCounts) -> None:
        self.kind = kind
        self.name = name
        self.limits = limits
        self.counts = counts
        self.connections = 0
        self.running = 0
        self.commands = Line(self._commands_changed)
        self.inserts = Line(self._inserts_changed)
        self._rate: Allowance | None = None
        self._wakes_commands = False
        self._wakes_inserts: asyncio.TimerHandle | None = None

    def _commands_changed(self, by: int) -> None:
        self.counts.waiting_commands += by

    def _inserts_changed(self, by: int) -> None:
        self.counts.waiting_inserts += by

    def configure(self, limits: EffectiveLimits) -> None:
        """New limits; what is used already stays, and what waits may go on."""
        if limits.max_measurements_per_second != self.limits.max_measurements_per_second:
            self._rate = None
        self.limits = limits
        self._wake_commands_soon()
        self._wake_inserts()

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost by forgetting this object."""
        used = self.connections or self.running or len(self.commands) or len(self.inserts)
        return not used and (self._rate is None or self._rate.is_full(time.monotonic()))

    # --- connections ------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Count a connection; raises ``CommandError`` if there are too many."""
        most = self.limits.max_connections
        if most and self.connections >= most:
            self.counts.refused["connections"] += 1
            raise overloaded(f"limit of {most} connections reached for user {self.name} (user_limits)")
        self.connections += 1
        self.counts.connections += 1

    def disconnect(self) -> None:
        """A counted connection has ended."""
        self.connections -= 1
        self.counts.connections -= 1

    # --- commands at once -------------------------------------------------------------------------------------------

    def take(self) -> bool:
        """Take a place for a command, if there is one and no other command waits for it."""
        most = self.limits.max_commands
        if most and (self.running >= most or len(self.commands)):
            return False
        self.occupy()
        return True

    def occupy(self) -> None:
        """Take a place, also above the limit."""
        self.running += 1
        self.counts.commands += 1

    def give_back(self) -> None:
        """A command has left its place; the next one starts soon, but not inside this call."""
        self.running -= 1
        self.counts.commands -= 1
        self._wake_commands_soon()

    def wait_for_place(self, owner: Hashable, waiting: QueuedCommand) -> None:
        """Queue a command, which occupies its place when its turn comes; refuse it if too many wait."""
        limits = self.limits
        if len(self.commands) >= limits.max_waiting:
            waiting.refuse()
        else:
            self.commands.add(owner, waiting, limits.max_wait_ms)

    def _wake_commands_soon(self) -> None:
        if len(self.commands) and not self._wakes_commands:
            self._wakes_commands = True
            asyncio.get_running_loop().call_soon(self._wake_commands)

    def _wake_commands(self) -> None:
        self._wakes_commands = False
        while len(self.commands) and not 0 < self.limits.max_commands <= self.running:
            waiting = self.commands.pop()
            self.occupy()
            waiting.go_on()

    # --- measurements per second ------------------------------------------------------------------------------------

    def pay(self, measurements: int) -> bool:
        """Whether this number of measurements may be inserted now; counts them."""
        per_second = self.limits.max_measurements_per_second
        if not per_second:
            return True
        if len(self.inserts):
            return False
        return self._allowance(per_second).take(time.monotonic(), measurements)

    def _allowance(self, per_second: int) -> Allowance:
        if self._rate is None:
            self._rate = Allowance(per_second, per_second, time.monotonic())
        return self._rate

    def wait_for_rate(self, owner: Hashable, waiting: QueuedCommand) -> None:
        """Queue an insert, whose measurements are counted when its turn comes; refuse it if too many wait."""
        limits = self.limits
        if len(self.inserts) >= limits.max_waiting:
            waiting.refuse()
            return
        self.inserts.add(owner, waiting, limits.max_wait_ms)
        if self._wakes_inserts is None:
            self._wake_inserts()

    def _wake_inserts(self) -> None:
        if self._wakes_inserts is not None:
            self._wakes_inserts.cancel()
            self._wakes_inserts = None
        now_seconds = time.monotonic()
        while len(self.inserts):
            per_second = self.limits.max_measurements_per_second
            if per_second:
                rate, cost = self._allowance(per_second), self.inserts.next_cost
                left_seconds = rate.seconds_until(now_seconds, cost)
                if left_seconds > 0:
                    loop = asyncio.get_running_loop()
                    self._wakes_inserts = loop.call_later(left_seconds + _TICK_SECONDS, self._wake_inserts)
                    return
                rate.take(now_seconds, cost)
            self.inserts.pop().go_on()


_TICK_SECONDS: Final = 0.001
"""Timers may be a little early."""


class LimitBook:
    """The limited users and databases that are in use.

    ``limits_users`` and ``limits_databases``: whether any has a limit; if not, nothing has to be asked.
    """

    def __init__(self, numbers: LimitNumbers) -> None:
        self._numbers = numbers
        self._users: Mapping[str, UserLimits] = {}
        self._databases: Mapping[str, DatabaseLimits] = {}
        self._known: dict[tuple[str, str | User], Limited] = {}
        self._tidy_at = _IDLE_ENTRIES
        self._connections: dict[int, Limited] = {}
        self.limits_users = False
        self.limits_databases = False

    def __len__(self) -> int:
        return len(self._known)

    @property
    def limits_anything(self) -> bool:
        """Whether any user or database has a limit."""
        return self.limits_users or self.limits_databases

    def configure(self, users: Mapping[str, UserLimits], databases: Mapping[str, DatabaseLimits]) -> None:
        """Apply these tables from now on, also to what is in use."""
        self._users, self._databases = dict(users), dict(databases)
        for kind, names in ((USER, users), (DATABASE, databases)):
            for name in names:
                # An increase from nothing would not be noticed.
                self._numbers.of(kind, name)
        self.limits_users = any(effective(users, name).limit_anything for name in users)
        self.limits_databases = any(effective(databases, name).limit_anything for name in databases)
        for (kind, who), limited in self._known.items():
            limited.configure(self._limits(kind, _name_of(who)))

    def user(self, identity: Identity) -> Limited | None:
        """The user of a connection, the first if it has several; ``None`` if it has none, or no limits."""
        if not self.limits_users or not identity.users:
            return None
        return self._of(USER, identity.users[0])

    def database(self, name: str) -> Limited | None:
        """The database with this name; ``None`` if it has no limits."""
        return self._of(DATABASE, name) if self.limits_databases else None

    def identified(self, session: Session) -> None:
        """The users of a connection may have changed; raises ``CommandError`` if its user has too many connections."""
        user = self.user(session.identity)
        if user is not self._connections.get(session.connection_id):
            self.left(session)
            if user is not None:
                user.connect()
                self._connections[session.connection_id] = user

    def left(self, session: Session) -> None:
        """A connection has ended."""
        user = self._connections.pop(session.connection_id, None)
        if user is not None:
            user.disconnect()

    def _of(self, kind: str, who: str | User) -> Limited | None:
        known = self._known.get((kind, who))
        if known is not None:
            return known
        name = _name_of(who)
        limits = self._limits(kind, name)
        if not limits.limit_anything:
            return None
        if len(self._known) >= self._tidy_at:
            self._known = {key: limited for key, limited in self._known.items() if not limited.is_idle}
            self._tidy_at = 2 * len(self._known) + _IDLE_ENTRIES
        table: Mapping[str, object] = self._users if kind == USER else self._databases
        counts = self._numbers.of(kind, name if name in table else EVERYONE)
        known = self._known[kind, who] = Limited(kind, str(who), limits, counts)
        return known

    def _limits(self, kind: str, name: str) -> EffectiveLimits:
        if kind == USER:
            return effective(self._users, name)
        if name in NEEDS_A_NAME and name not in self._databases:
            return EffectiveLimits()
        return effective(self._databases, name)


def _name_of(who: str | User) -> str:
    """The name in the settings, where the database begins behind the last @; ``""`` for one that contains an @."""
    return "" if isinstance(who, User) and "@" in who.database else str(who)
