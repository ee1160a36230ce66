"""Held inserts: inserts that wait unstaged because too many measurements are pending.

A client that keeps the limits full delays itself, not others. Small inserts use a reserve beyond the limits. All others
are staged in fair turns of their clients (``proxy.request.fair_queue``), and free room goes to small and large inserts
alternately.

When a client disconnects, its held inserts are discarded. Only inserts without a reply keep their turn, because clients
may disconnect after sending them; these use at most as many bytes as the reserve has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from catalog.errors import BackendUnavailable
from catalog.identity import Identity
from catalog.namespaces import VirtualCollection
from catalog.ports import Acknowledgement
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply, ReplyToInsert
from proxy.request.fair_queue import FairQueue
from proxy.request.session import Session

SMALL_BYTES: Final = 64 * 1024
SMALL_MEASUREMENTS: Final = 100
"""An insert up to these sizes is small."""
RESERVED_PART: Final = 4
"""The reserve is the limits divided by this."""
MEASUREMENT_COST: Final = 1024
"""Bytes that a measurement counts in addition to its size when clients take turns."""


class Recipient:
    """Sends the reply to a client, and shows whether the client is still connected."""

    __slots__ = ("_reply", "_session", "origin", "waited")

    def __init__(
        self,
        reply: ReplyToInsert,
        session: Session,
        waited: Callable[[float], None] = lambda since_seconds: None,
        origin: object = None,
    ) -> None:
        """``waited`` records that the insert has waited since then (``time.perf_counter``). ``origin``: the command."""
        self._reply = reply
        self._session = session
        self.waited = waited
        self.origin = origin

    def __call__(self, document: bytes | None, acknowledgement: Acknowledgement | None = None) -> None:
        """The raw reply document, ``None`` for no reply; the acknowledgement of the last commit."""
        self._reply(document, acknowledgement)

    @property
    def owner(self) -> Hashable:
        """The client for fair turns."""
        return self._session.owner

    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._session.upstream.is_closed

    def on_disconnect(self, call: Callable[[], None]) -> None:
        """Call this when the client disconnects; replaces an earlier callback."""
        self._session.on_disconnect = call


@dataclass(slots=True)
class HeldInsert:
    """An insert to be staged later; ``reply`` is called once, or never if the client disconnects before."""

    insert: InsertCommand
    collection: VirtualCollection
    identity: Identity
    reply: Recipient
    deadline_seconds: float
    held_at_seconds: float = field(default_factory=time.perf_counter)
    is_disconnected: bool = False
    """Whether its client has disconnected since."""

    def turn_away(self) -> None:
        """Refuse the insert, which has waited for ``server_selection_timeout_ms``; none of it was written."""
        self.reply.waited(self.held_at_seconds)
        insert_reply = InsertReply(self.insert, self.reply)
        insert_reply.fail(BackendUnavailable("the backend is too slow: too many measurements are pending", code=262))
        insert_reply.staged()


class Pending:
    """Counts measurements that are staged and not settled, and their bytes, with their limits."""

    __slots__ = ("_max_bytes", "_max_measurements", "measurements", "size_bytes")

    def __init__(self, max_bytes: int, max_measurements: int) -> None:
        """Until a limit is exceeded, there is room for one more insert of any size."""
        self._max_bytes = max_bytes
        self._max_measurements = max_measurements
        self.size_bytes = 0
        self.measurements = 0

    def takes(self, size_bytes: int) -> bool:
        """Whether this number of bytes is within the limit by itself."""
        return size_bytes <= self._max_bytes

    @property
    def is_full(self) -> bool:
        """Whether further inserts wait."""
        return self.size_bytes > self._max_bytes or self.measurements > self._max_measurements

    def take(self, size_bytes: int, measurements: int) -> None:
        """Add to the counts; negative numbers subtract."""
        self.size_bytes += size_bytes
        self.measurements += measurements

    def limit(self, max_bytes: int, max_measurements: int) -> None:
        """Change the limits; what is counted stays counted."""
        self._max_bytes = max_bytes
        self._max_measurements = max_measurements

    def reserve(self) -> Pending:
        """Counts with smaller limits, for small inserts beyond these limits."""
        return Pending(self._max_bytes // RESERVED_PART, self._max_measurements // RESERVED_PART)


class StagedInsert:
    """What one insert has pending, until it is settled.

    This is an object, because compiled functions inside a function form a reference cycle, which would keep the command
    in memory until the garbage collector runs.
    """

    __slots__ = ("_count", "_pending", "_release", "_reply", "_size_bytes")

    def __init__(
        self, pending: Pending, size_bytes: int, count: int, reply: ReplyToInsert, release: Callable[[], None]
    ) -> None:
        pending.take(size_bytes, count)
        self._pending = pending
        self._size_bytes = size_bytes
        self._count = count
        self._reply = reply
        self._release = release

    def stored(self) -> None:
        """All measurements are stored, so nothing is pending; the write concern may still be waited for."""
        self._pending.take(-self._size_bytes, -self._count)
        self._size_bytes = self._count = 0
        self._release()

    def settled(self, document: bytes | None, acknowledgement: Acknowledgement | None) -> None:
        """The reply is complete."""
        self.stored()
        self._reply(document, acknowledgement)


StageHeld = Callable[[HeldInsert, Pending], None]
"""Stages an insert, which is counted in that ``Pending`` until it is settled."""


class HeldInserts:
    """The queues of held inserts."""

    def __init__(self, pending: Pending, is_over: Callable[[float], bool]) -> None:
        """``pending`` counts all inserts outside ``reserve``; ``is_over``: whether a deadline has passed."""
        self._pending = pending
        self.reserve = pending.reserve()
        self._is_over = is_over
        self._small: FairQueue[HeldInsert] = FairQueue()
        self._large: FairQueue[HeldInsert] = FairQueue()
        self._is_turn_of_large = False
        self._releasing = False
        self._left_bytes = 0
        """Size of the held inserts whose clients have disconnected."""

    def __bool__(self) -> bool:
        """Whether any insert waits."""
        return bool(self._small or self._large)

    def limit(self, max_bytes: int, max_measurements: int) -> None:
        """Change the limits of all inserts, and those of the reserve in proportion."""
        self._pending.limit(max_bytes, max_measurements)
        self.reserve.limit(max_bytes // RESERVED_PART, max_measurements // RESERVED_PART)

    def add(self, held: HeldInsert, stage: StageHeld) -> None:
        """Stage a small insert at once if the reserve has room; queue any other behind those of its client."""
        size_bytes, measurements = held.insert.size_bytes, len(held.insert.documents)
        is_small = size_bytes <= SMALL_BYTES and measurements <= SMALL_MEASUREMENTS
        if is_small and not self._small and not self.reserve.is_full:
            stage(held, self.reserve)
            return
        queue = self._small if is_small else self._large
        number = queue.add(held.reply.owner, size_bytes + MEASUREMENT_COST * measurements, held)
        held.reply.on_disconnect(partial(self._left, queue, number))

    def _left(self, queue: FairQueue[HeldInsert], number: int) -> None:
        """The client of an insert, which may have left the queue already, has disconnected."""
        held = queue.get(number)
        if held is None:
            return
        size_bytes = held.insert.size_bytes
        if held.insert.expects_reply or not self.reserve.takes(self._left_bytes + size_bytes):
            queue.discard(number)
            return
        held.is_disconnected = True
        self._left_bytes += size_bytes

    def _taken(self, held: HeldInsert) -> HeldInsert:
        """``held``, which has just left its queue."""
        if held.is_disconnected:
            self._left_bytes -= held.insert.size_bytes
        return held

    def release(self, stage: StageHeld) -> None:
        """Stage as many inserts as there is room for."""
        if self._releasing:
            # An insert may be settled while it is staged, which calls this again: do not recurse.
            return
        self._releasing = True
        try:
            self._turn_away()
            while self._small and not self.reserve.is_full:
                stage(self._taken(self._small.pop()), self.reserve)
            while self and not self._pending.is_full:
                queue = self._large if self._large and (self._is_turn_of_large or not self._small) else self._small
                self._is_turn_of_large = queue is self._small
                stage(self._taken(queue.pop()), self._pending)
        finally:
            self._releasing = False

    def _turn_away(self) -> None:
        for queue in (self._small, self._large):
            while queue and self._is_over(queue.oldest.deadline_seconds):
                self._taken(queue.pop_oldest()).turn_away()
