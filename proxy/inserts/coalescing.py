"""Coalesces the inserts of all clients of one moment into native inserts.

Documents queue in *lanes*, one for each collection, write concern and identity, so that writers share no more than an
error of the shared command may tell them. A server inserts the documents of a command one by one, in one thread; what
is ready in a lane is therefore divided among several rounds, if it is much, up to the limits of one command each. What
arrives while all rounds are in progress joins the next one; without a linger, a round starts in the
same turn of the event loop, or after the replies that wait. Each writer gets the result of its own documents.

Commands are ordered, because a server writes all buckets of an ordered insert in one storage transaction (W68), which
costs it a quarter less. If a document fails, those after it follow in an unordered command.

If a reply is lost and the backend has retryable writes, the command is sent again under its number until the outcome is
known. Writers that may send their statement again wait for it even beyond their deadline (``Writer.doubt``), so that a
retry is not written twice; the others get an error that says that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from catalog.buckets.write_batch import CombineKey, DoubtfulWriter, Writer
from catalog.commit.commit_outcome import outcome_unknown
from catalog.commit.commit_tasks import CommitTasks
from catalog.commit.committer import CommitterMetrics, CommitterOptions
from catalog.commit.precedence import Precedence
from catalog.commit.reclaiming import Reclaiming
from catalog.errors import BackendUnavailable, CommandError
from catalog.internal_errors import internal_error
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Applied, BulkOutcome, Clock, MaySend, Rejected, Unknown, WriteConcern
from proxy.inserts.coalesced_command import CoalescedCommand, Entry
from proxy.inserts.coalesced_sending import PAUSE_SECONDS, CoalescedSending

WHOLE_DOCUMENTS: Final = 64
"""This many documents are not divided among rounds. Smaller commands would cost more for each document."""
WHOLE_ALONE_DOCUMENTS: Final = 8
"""The same on a standalone: there a command costs less, and the server has a thread for each that is in progress. It is
multiplied by the number of proxies, whose commands are in progress at the same time."""
ROUNDS: Final = 2
"""Rounds in progress, as a multiple of ``rounds_in_flight``; rounds of buckets are a single command for more rows."""
AGAIN_DOCUMENTS: Final = 16
"""This many documents that an unordered command has refused share an ordered one, which each error ends."""
LONGEST_PURSUIT_SECONDS: Final = 600.0
"""How long a command is sent again; servers remember its number for 30 minutes."""
DOUBTS_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the documents that are pursued beyond the deadline of their writers."""
PURSUIT_SLICE_SECONDS: Final = 5.0
_BAD_VALUE: Final = 2
_NO_TIME: Final = "must be present and contain a valid BSON UTC datetime value"


class NativeStore(Protocol):
    """Inserts documents by public commands (``proxy.backend.collection_store``)."""

    def next_number(self) -> Any:
        """What makes the next command repeatable; ``None`` if it cannot be sent again."""
        ...

    def settled(self, number: Any, *, is_known: bool = True) -> None:
        """That command will not be sent again; ``is_known``: its outcome."""
        ...

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        number: Any,
        deadline_seconds: float,
        may_send: MaySend | None = None,
        *,
        ordered: bool,
    ) -> BulkOutcome:
        """One insert; if it is ordered, it ends with the first error."""
        ...


class _Lane:
    """The ready documents of one collection, write concern and identity, and the number of rounds in progress."""

    __slots__ = ("collection", "in_flight", "key", "ready", "scheduled", "write_concern")

    def __init__(self, key: _LaneKey, collection: VirtualCollection, write_concern: WriteConcern) -> None:
        self.key = key
        self.collection = collection
        self.write_concern = write_concern
        self.ready: deque[Entry] = deque()
        self.in_flight = 0
        self.scheduled = False

    @property
    def is_bulk(self) -> bool:
        """Whether it is one of large inserts."""
        return self.key[2]

    def take(self, statements: int, size_bytes: int) -> list[Entry]:
        """Remove the documents of the next round: at least one, and about ``size_bytes`` at most."""
        taken: list[Entry] = []
        ready, size = self.ready, 0
        while ready and len(taken) < statements and size < size_bytes:
            entry = ready.popleft()
            size += len(entry.document)
            taken.append(entry)
        return taken


_LaneKey = tuple[Namespace, CombineKey, bool]


class Coalescer:
    """The rounds of native inserts."""

    def __init__(
        self,
        store: NativeStore,
        clock: Clock,
        options: Callable[[], CommitterOptions],
        report: Callable[[BaseException], None],
        precedence: Precedence,
        reclaiming: Reclaiming,
        whole_documents: int = WHOLE_DOCUMENTS,
    ) -> None:
        """``report`` gets internal errors; ``precedence``: of the ``Committer``; ``whole_documents``: see above."""
        self.whole_documents = self._whole_alone = whole_documents
        """This many documents are not divided among rounds now."""
        self.metrics = CommitterMetrics()
        self._sending = CoalescedSending(store, clock, self.metrics, reclaiming)
        self._store = store
        self._clock = clock
        self._options = options
        self._report = report
        self._precedence = precedence
        self._lanes: dict[_LaneKey, _Lane] = {}
        self._tasks = CommitTasks(clock, report)
        self._doubts: dict[CoalescedCommand, int] = {}
        """The commands that are pursued, with the bytes of their documents."""

    def share_backend(self, others: int) -> None:
        """As many other proxies use the backend from now on."""
        self.whole_documents = min(self._whole_alone * (1 + others), WHOLE_DOCUMENTS)

    def pursued(self) -> tuple[int, int]:
        """The measurements of commands with an unknown outcome that are pursued, and the bytes of their documents."""
        return sum(len(command.entries) for command in self._doubts), sum(self._doubts.values())

    def deadline_seconds(self) -> float:
        """The time until which a writer that comes now may wait for its outcome."""
        return self._clock.monotonic_seconds() + self._options().server_selection_timeout_seconds

    def add(
        self,
        collection: VirtualCollection,
        key: CombineKey,
        writer: Writer,
        index: int,
        document: bytes,
        *,
        is_bulk: bool = False,
    ) -> None:
        """Insert a document with the next round; large inserts (``is_bulk``) have rounds of their own."""
        lane_key = (collection.namespace, key, is_bulk)
        lane = self._lanes.get(lane_key)
        if lane is None:
            lane = self._lanes[lane_key] = _Lane(lane_key, collection, WriteConcern(key.write_concern))
        lane.collection = collection
        lane.ready.append(Entry(writer, index, document, self._clock.monotonic_seconds()))
        if not lane.scheduled and lane.in_flight < self._most_rounds(lane):
            self._schedule(lane)

    @property
    def documents_ready(self) -> int:
        """How many documents wait for a round."""
        return sum(len(lane.ready) for lane in self._lanes.values())

    # --- rounds --------------------------------------------------------------------------------------------

    def _schedule(self, lane: _Lane) -> None:
        lane.scheduled = True
        options = self._options()
        if options.linger_seconds > 0:
            asyncio.get_running_loop().call_later(options.linger_seconds, self._start_round, lane)
        elif options.behind_replies is None or not options.behind_replies(partial(self._start_round, lane)):
            self._start_round(lane)

    def _start_round(self, lane: _Lane) -> None:
        # A new task starts in the same turn as a callback would, and sends in that turn.
        self._tasks.spawn(self._round(lane))

    def _most_rounds(self, lane: _Lane) -> int:
        """Maximum number of concurrent rounds of a lane."""
        return self._precedence.rounds(ROUNDS * self._options().rounds_in_flight, is_bulk=lane.is_bulk)

    async def _round(self, lane: _Lane) -> None:
        lane.scheduled = False
        options = self._options()
        most_rounds = self._most_rounds(lane)
        share = max(math.ceil(len(lane.ready) / max(1, most_rounds - lane.in_flight)), self.whole_documents)
        entries = lane.take(min(share, options.limits.statements), options.limits.size_bytes)
        lane.in_flight += 1
        self._precedence.began(is_bulk=lane.is_bulk)
        if lane.ready and lane.in_flight < most_rounds:
            self._schedule(lane)
        try:
            if entries:
                self.metrics.rounds += 1
                await self._commit(lane, entries)
        finally:
            lane.in_flight -= 1
            self._next(lane)

    def _next(self, lane: _Lane) -> None:
        if lane.ready:
            if not lane.scheduled and lane.in_flight < self._most_rounds(lane):
                self._schedule(lane)
        elif not lane.in_flight and not lane.scheduled and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    async def _commit(self, lane: _Lane, entries: Sequence[Entry]) -> None:
        commands = [CoalescedCommand(lane.collection, lane.write_concern, entries)]
        deadline_seconds = entries[0].since_seconds + self._options().server_selection_timeout_seconds
        self.metrics.statements += len(entries)
        told: CommandError = BackendUnavailable("the proxy is shutting down", code=91)
        try:
            while commands:
                command = commands[0]
                command.number = self._store.next_number()
                commands[:1] = self._follow_up(command, await self._sending.resolved(command, deadline_seconds))
        except Exception as error:  # noqa: BLE001 - reported; writers must not wait for ever
            self.metrics.failures += 1
            told = internal_error("inserting measurements", error)
            self._report(error)
        finally:
            for command in commands:
                command.fail(told)

    def _follow_up(self, command: CoalescedCommand, outcome: BulkOutcome) -> list[CoalescedCommand]:
        """Settle what is known of a command; returns those for the documents that must be sent in another one."""
        if isinstance(outcome, Unknown):
            self._doubt(command, outcome.error)
        elif isinstance(outcome, Rejected) or not outcome.errors:
            self._settle(command, outcome)
        elif command.is_ordered:
            return self._rest(command, outcome)
        else:
            return self._refused(command, outcome)
        return []

    def _rest(self, command: CoalescedCommand, outcome: Applied) -> list[CoalescedCommand]:
        """Settle what an ordered command has executed; returns the command for what comes after the first error.

        The ``n`` of an ordered insert may count documents that were not executed (W95).
        """
        first = min(outcome.errors)
        entries, command.entries = command.entries, command.entries[: first + 1]
        self._settle(command, Applied(first, {first: outcome.errors[first]}, outcome.acknowledgement))
        if not entries[first + 1 :]:
            return []
        return [self._another(command, entries[first + 1 :], is_ordered=command.is_last_try)]

    def _refused(self, command: CoalescedCommand, outcome: Applied) -> list[CoalescedCommand]:
        """Settle an unordered command; returns ordered ones for the documents that may be refused because of others.

        An error in a bucket is the error of all documents that an unordered insert, or several at the same moment, puts
        into it (W66).
        """
        entries, errors = command.entries, outcome.errors
        fits = outcome.matched + len(errors) == len(entries)
        if command.is_last_try or not fits or all(map(_is_of_the_document, errors.values())):
            self._settle(command, outcome)
            return []
        again = [entries[position] for position, error in errors.items() if not _is_of_the_document(error)]
        settled = [each for each in enumerate(entries) if each[0] not in errors or _is_of_the_document(errors[each[0]])]
        command.entries = [entry for _, entry in settled]
        kept = {place: errors[position] for place, (position, _) in enumerate(settled) if position in errors}
        self._settle(command, Applied(outcome.matched, kept, outcome.acknowledgement))
        starts = range(0, len(again), AGAIN_DOCUMENTS)
        return [self._another(command, again[start : start + AGAIN_DOCUMENTS], is_ordered=True) for start in starts]

    @staticmethod
    def _another(command: CoalescedCommand, entries: Sequence[Entry], *, is_ordered: bool) -> CoalescedCommand:
        collection, write_concern = command.collection, command.write_concern
        return CoalescedCommand(collection, write_concern, entries, is_ordered=is_ordered, is_last_try=is_ordered)

    def _settle(self, command: CoalescedCommand, outcome: Applied | Rejected) -> None:
        self._store.settled(command.number)
        if isinstance(outcome, Rejected):
            command.fail(outcome.error)
            return
        entries, command.entries = command.entries, ()
        acknowledgement, errors = outcome.acknowledgement, outcome.errors
        if outcome.matched + len(errors) != len(entries):
            self._report(AssertionError(f"{outcome.matched} of {len(entries)} documents and {len(errors)} errors"))
            unknown = outcome_unknown(CommandError(1, "the backend's reply does not fit the command"))
            for entry in entries:
                entry.writer.settle((entry.number,), unknown, None)
            return
        self.metrics.measurements += outcome.matched
        if not errors:
            for entry in entries:
                entry.writer.settle((entry.number,), None, acknowledgement)
            return
        for position, entry in enumerate(entries):
            error = errors.get(position)
            entry.writer.settle((entry.number,), error, acknowledgement if error is None else None)

    # --- in doubt ------------------------------------------------------------------------------------------

    def _doubt(self, command: CoalescedCommand, error: CommandError) -> None:
        """The outcome is unknown at the deadline."""
        unknown = outcome_unknown(error)
        doubtful = command.doubt(unknown, self._clock.monotonic_seconds())
        size_bytes = sum(len(entry.document) for entry in command.entries)
        may_be_sent = command.number is not None and not command.is_barred
        if not doubtful or not may_be_sent or sum(self._doubts.values()) + size_bytes > DOUBTS_LIMIT_BYTES:
            self._store.settled(command.number, is_known=False)
            for writer in doubtful.values():
                writer.lose(unknown)
            return
        self._doubts[command] = size_bytes
        self._tasks.spawn(self._pursue(command, doubtful, unknown))

    async def _pursue(
        self, command: CoalescedCommand, doubtful: dict[int, DoubtfulWriter], unknown: CommandError
    ) -> None:
        """Send a command again until its outcome is known, for writers that may send their statement again."""
        until_seconds = self._clock.monotonic_seconds() + LONGEST_PURSUIT_SECONDS
        try:
            while self._clock.monotonic_seconds() < until_seconds:
                now_seconds = self._clock.monotonic_seconds()
                for writer in doubtful.values():
                    writer.expire(now_seconds, unknown)
                outcome = await self._sending.resolved(command, now_seconds + PURSUIT_SLICE_SECONDS)
                if isinstance(outcome, Applied):
                    self._store.settled(command.number)
                    for position, writer in doubtful.items():
                        error = outcome.errors.get(position)
                        writer.settle((0,), error, None if error is not None else outcome.acknowledgement)
                    doubtful.clear()
                    return
                if not isinstance(outcome.error, BackendUnavailable):
                    return
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            del self._doubts[command]
            if doubtful:
                self._store.settled(command.number, is_known=False)
            for writer in doubtful.values():
                writer.lose(unknown)

    async def drain(self, patience_seconds: float = math.inf) -> bool:
        """Wait until no insert is in progress; those after ``patience_seconds`` are cancelled, and it is false."""
        linger_seconds = self._options().linger_seconds
        return await self._tasks.drain(lambda: self.documents_ready > 0, linger_seconds, patience_seconds)


def _is_of_the_document(error: CommandError) -> bool:
    """Whether a server has refused a document before it looked for a bucket (W96)."""
    return error.code == _BAD_VALUE and error.message.endswith(_NO_TIME)
