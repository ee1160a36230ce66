"""Group commit: whatever is ready at one moment leaves in as few backend commands as possible (W63-W68).

Claimed batches queue in *lanes*, two for each collection and write concern: one for what large inserts alone wait
for, one for all others, who wait neither in the queue nor for a command in flight of the former. A round takes what is
ready in a lane and sends one ``insert`` for new buckets and one bulk ``update`` for grown ones; batches that arrive
while ``rounds_in_flight`` rounds are under way join the next one. Without a linger a round starts at the end of the
event loop's turn, so that everything that came in with one poll of the sockets leaves together.

Commits run in tasks that the committer owns: a client that goes away takes nobody's data with it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.catalog import BucketCatalog
from catalog.commit_outcome import Commit, CommitOutcomes
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from catalog.ports import BucketStore, Clock, WriteConcern
from catalog.reopening import Reopening
from catalog.restart_dedup import RestartDedup
from catalog.round import BULK, PreparedWrite, Round, RoundLimits
from catalog.write_batch import BatchState, WriteBatch


@dataclass(frozen=True, slots=True)
class CommitterOptions:
    """``linger_seconds``: how long a round waits for more batches; without it, until the end of the loop's turn.

    ``rounds_in_flight``: of each lane. ``server_selection_timeout_seconds``: after that a batch that was not sent
    fails, and one whose outcome is unknown stays so. ``restart_window_seconds``: how long after the start statements
    may be retries of an earlier process' (``catalog.restart_dedup``). ``limits``: of a round, ``bulk_limits``: of one
    of large inserts.
    """

    linger_seconds: float = 0.0
    rounds_in_flight: int = 2
    server_selection_timeout_seconds: float = 30.0
    restart_window_seconds: float = 120.0
    limits: RoundLimits = RoundLimits()
    bulk_limits: RoundLimits = BULK


PURSUIT_SLICE_SECONDS = 5.0
PURSUIT_PAUSES_SECONDS = (0.1, 2.0)
"""The first and the longest pause between attempts to find out what became of doubtful writes."""
CANCEL_ROUNDS = 5
CANCEL_SECONDS = 0.3
"""How often, and for how long each, the end of cancelled commits is waited for when a stop may take no longer."""
EXPIRY_SECONDS = 0.5
"""How precisely those who wait for a verdict are told that their time is over."""


class CommitterMetrics:
    """What happened, as plain numbers that somebody may read at any time."""

    __slots__ = ("commands", "failures", "measurements", "rounds", "statements", "unknown_outcomes")

    def __init__(self) -> None:
        self.rounds = 0
        self.commands = 0
        self.statements = 0
        self.measurements = 0
        self.unknown_outcomes = 0
        self.failures = 0


class _Lane:
    """Batches of one collection and write concern that are ready, and how many rounds are under way."""

    __slots__ = ("collection", "in_flight", "lanes", "limits", "ready", "scheduled", "write_concern")

    def __init__(
        self,
        lanes: dict[bytes, _Lane],
        collection: VirtualCollection,
        write_concern: WriteConcern,
        limits: RoundLimits,
    ) -> None:
        self.lanes = lanes
        self.limits = limits
        self.collection = collection
        self.write_concern = write_concern
        self.ready: list[WriteBatch] = []
        self.in_flight = 0
        self.scheduled = False


class Committer:
    """Carries out what the catalog asks for; the only writer of buckets."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        options: CommitterOptions,
        report: Callable[[BaseException], None],
    ) -> None:
        """``report`` is told of exceptions that nobody else can be told of."""
        self.metrics = CommitterMetrics()
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._options = options
        self.report = report
        self._lanes: set[_Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pursuit: asyncio.Task[None] | None = None
        patience_seconds = options.server_selection_timeout_seconds
        self._settlement = CommitOutcomes(catalog, store, clock, patience_seconds, self.kick)
        self.restart_dedup = RestartDedup(store, clock, options.restart_window_seconds, patience_seconds, self._spawn)
        self._reopening = Reopening(catalog, store, clock, patience_seconds / 3)

    # --- what is ready -------------------------------------------------------------------------------------

    def submit(self, batch: WriteBatch) -> None:
        """Commit a batch that the caller has claimed."""
        buckets = batch.bucket.series.collection
        lanes: dict[bytes, _Lane] = buckets.lanes[batch.bulk]
        lane = lanes.get(batch.key.write_concern)
        if lane is None:
            raw = batch.key.write_concern
            limits = self._options.bulk_limits if batch.bulk else self._options.limits
            lane = lanes[raw] = _Lane(lanes, buckets.collection, WriteConcern(raw), limits)
            self._lanes.add(lane)
        lane.ready.append(batch)
        if not lane.scheduled and lane.in_flight < self._options.rounds_in_flight:
            self._schedule(lane)

    def hasten(self, batch: WriteBatch) -> None:
        """Somebody with little to write has joined a batch that is behind others of a large insert."""
        batch.bulk = False
        if batch.state is BatchState.CLAIMED:
            self.submit(batch)

    def kick(self) -> None:
        """Pick up what the catalog left for nobody in particular: moved batches, looks at the backend."""
        for batch in self._catalog.take_unclaimed():
            if batch.claim():
                self.submit(batch)
        for batch in self._catalog.take_ready():
            if batch.state is BatchState.CLAIMED:
                self.submit(batch)
        for buckets in self._catalog.take_openings():
            self._spawn(self._reopening.open(buckets))
        for lookup in self._catalog.take_lookups():
            self._spawn(self._reopening.look_up(lookup))
        if self._catalog.take_resumption():
            self._spawn(self._resume())
        if self._catalog.take_doomed():
            self._spawn(self._let_go())
        if self._settlement.doubts and self._pursuit is None:
            self._pursuit = asyncio.get_running_loop().create_task(self._pursue())
            self._pursuit.add_done_callback(self._pursued)

    async def _resume(self) -> None:
        """What waited for a look is placed in the following turns, a part in each."""
        while self._catalog.resume():
            self.kick()
            await asyncio.sleep(0)

    async def _let_go(self) -> None:
        """Buckets of dropped collections are freed in the following turns, a part in each."""
        is_left = True
        while is_left:
            await asyncio.sleep(0)
            is_left = self._catalog.let_go()
            self.kick()

    def deadline_seconds(self) -> float:
        """Until when a writer who comes now may have to wait for the truth."""
        return self._clock.monotonic_seconds() + self._options.server_selection_timeout_seconds

    def is_over(self, deadline_seconds: float) -> bool:
        """Whether this time has come."""
        return self._clock.monotonic_seconds() >= deadline_seconds

    async def drain(self, patience_seconds: float = math.inf) -> bool:
        """Wait until nothing is under way; what is in doubt then stays so.

        False if something still was after ``patience_seconds``: it is cancelled, and its writers are told so.
        """
        until_seconds = self._clock.monotonic_seconds() + patience_seconds
        while self._is_busy() and not self.is_over(until_seconds):
            await asyncio.sleep(0)
            if self._tasks:
                left_seconds = until_seconds - self._clock.monotonic_seconds()
                await asyncio.wait(
                    set(self._tasks),
                    timeout=None if math.isinf(left_seconds) else max(left_seconds, 0.0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        drained = not self._is_busy()
        for _ in range(CANCEL_ROUNDS):  # what ends makes room for what is ready
            if not self._tasks:
                break
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks), timeout=CANCEL_SECONDS)
        if self._pursuit is not None:
            self._pursuit.cancel()
            await asyncio.wait({self._pursuit}, timeout=CANCEL_SECONDS)
        return drained

    def _is_busy(self) -> bool:
        return bool(self._tasks) or any(lane.ready for lane in self._lanes)

    @property
    def batches_ready(self) -> int:
        """How many batches wait for a round."""
        return sum(len(lane.ready) for lane in self._lanes)

    # --- rounds --------------------------------------------------------------------------------------------

    def _schedule(self, lane: _Lane) -> None:
        lane.scheduled = True
        if self._options.linger_seconds > 0:
            asyncio.get_running_loop().call_later(self._options.linger_seconds, self._start_round, lane)
        else:
            # A task of its own at once: it begins in the same turn as a callback would, and sends in that turn.
            self._spawn(self._round(lane))

    def _start_round(self, lane: _Lane) -> None:
        self._spawn(self._round(lane))

    async def _round(self, lane: _Lane) -> None:
        lane.scheduled = False
        ready, lane.ready = lane.ready, []
        round_, left = Round.of(self._catalog, ready, lane.limits)
        lane.ready.extend(left)
        for failure in round_.failures:
            self.metrics.failures += 1
            self.report(failure)
        if not round_.writes:
            self._next(lane)
            return
        self.metrics.rounds += 1
        lane.in_flight += 1
        if lane.ready and lane.in_flight < self._options.rounds_in_flight:
            self._schedule(lane)
        try:
            commits = [self._commit(lane, writes) for writes in round_.commands]
            if len(commits) == 1:
                await commits[0]
            else:
                await asyncio.gather(*commits)
        finally:
            lane.in_flight -= 1
            self._next(lane)

    def _next(self, lane: _Lane) -> None:
        self.kick()
        if lane.ready:
            if not lane.scheduled and lane.in_flight < self._options.rounds_in_flight:
                self._schedule(lane)
        elif not lane.in_flight and not lane.scheduled:
            self._lanes.discard(lane)
            if lane.lanes.get(lane.write_concern.raw) is lane:
                del lane.lanes[lane.write_concern.raw]

    async def _commit(self, lane: _Lane, writes: Sequence[PreparedWrite]) -> None:
        since = min(write.batch.staged_at_seconds for write in writes)
        deadline = since + self._options.server_selection_timeout_seconds
        self.metrics.commands += 1
        self.metrics.statements += len(writes)
        commit = Commit(lane.collection, lane.write_concern, writes, since, deadline)
        try:
            await self._settlement.commit(commit)
        except asyncio.CancelledError:
            self._settlement.give_up(commit, CommandError(91, "the proxy is shutting down"))
            raise
        except Exception as error:  # noqa: BLE001 - reported; the waiters must not depend on our bugs
            # A bug: no writer may wait for ever, and what was sent may have been written.
            self.metrics.failures += 1
            self.report(error)
            self._settlement.give_up(commit, CommandError(1, f"internal error while committing: {error!r}"))

    # --- tasks ---------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report(error)
        self.kick()

    async def _pursue(self) -> None:
        """Find out what became of doubtful writes, for those who may send them again (W127)."""
        pause_seconds, longest_seconds = PURSUIT_PAUSES_SECONDS
        while self._settlement.doubts:
            attempt = asyncio.get_running_loop().create_task(self._settlement.pursue(PURSUIT_SLICE_SECONDS))
            try:
                while not attempt.done():
                    await asyncio.wait({attempt}, timeout=EXPIRY_SECONDS)
                    self._settlement.expire()
            finally:
                attempt.cancel()
            if not attempt.cancelled() and (error := attempt.exception()) is not None:
                self.report(error)
            await asyncio.sleep(pause_seconds)
            self._settlement.expire()
            pause_seconds = min(pause_seconds * 2, longest_seconds)

    def _pursued(self, task: asyncio.Task[None]) -> None:
        self._pursuit = None
        if not task.cancelled():
            if (error := task.exception()) is not None:
                self.report(error)
            self.kick()
