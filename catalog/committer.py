"""Group commit: whatever is ready at one moment leaves in as few backend commands as possible (W63-W68).

Claimed batches queue in *lanes*, one for each collection and write concern. A round takes all that is ready in a
lane and sends one ``insert`` for new buckets and one bulk ``update`` for grown ones; batches that arrive while
``rounds_in_flight`` rounds are under way join the next one. Without a linger a round starts at the end of the
event loop's turn, so that everything that came in with one poll of the sockets leaves together.

Commits run in tasks that the committer owns: a client that goes away takes nobody's data with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.catalog import BucketCatalog
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import VirtualCollection
from catalog.ports import BucketStore, Clock, WriteConcern
from catalog.reopening import Reopening
from catalog.round import PreparedWrite, Round, RoundLimits
from catalog.settlement import Settlement
from catalog.write_batch import BatchState, WriteBatch


@dataclass(frozen=True, slots=True)
class CommitterOptions:
    """``linger_seconds``: how long a round waits for company. The rest bounds what is under way."""

    linger_seconds: float = 0.0
    rounds_in_flight: int = 2
    server_selection_timeout_seconds: float = 30.0
    limits: RoundLimits = RoundLimits()


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

    __slots__ = ("collection", "in_flight", "lanes", "ready", "scheduled", "write_concern")

    def __init__(self, lanes: dict[bytes, _Lane], collection: VirtualCollection, write_concern: WriteConcern) -> None:
        self.lanes = lanes
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
        self._report = report
        self._lanes: set[_Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._settlement = Settlement(catalog, store, clock, options.server_selection_timeout_seconds)
        self._reopening = Reopening(catalog, store, clock, options.server_selection_timeout_seconds)

    # --- what is ready -------------------------------------------------------------------------------------

    def submit(self, batch: WriteBatch) -> None:
        """Commit a batch that the caller has claimed."""
        buckets = batch.bucket.series.collection
        lane: _Lane | None = buckets.lanes.get(batch.key.write_concern)
        if lane is None:
            raw = batch.key.write_concern
            lane = buckets.lanes[raw] = _Lane(buckets.lanes, buckets.collection, WriteConcern(raw))
            self._lanes.add(lane)
        lane.ready.append(batch)
        if not lane.scheduled and lane.in_flight < self._options.rounds_in_flight:
            self._schedule(lane)

    def kick(self) -> None:
        """Pick up what the catalog left for nobody in particular: moved batches, looks at the backend."""
        for batch in self._catalog.take_unclaimed():
            if batch.claim():
                self.submit(batch)
        for buckets in self._catalog.take_openings():
            self._spawn(self._reopening.open(buckets))
        for lookup in self._catalog.take_lookups():
            self._spawn(self._reopening.look_up(lookup))

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks or any(lane.ready for lane in self._lanes):
            await asyncio.sleep(0)
            if self._tasks:
                await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    @property
    def batches_ready(self) -> int:
        """How many batches wait for a round."""
        return sum(len(lane.ready) for lane in self._lanes)

    # --- rounds --------------------------------------------------------------------------------------------

    def _schedule(self, lane: _Lane) -> None:
        lane.scheduled = True
        loop = asyncio.get_running_loop()
        if self._options.linger_seconds > 0:
            loop.call_later(self._options.linger_seconds, self._start_round, lane)
        else:
            loop.call_soon(self._start_round, lane)

    def _start_round(self, lane: _Lane) -> None:
        lane.scheduled = False
        ready, lane.ready = lane.ready, []
        round_, left = Round.of(self._catalog, ready, self._options.limits)
        lane.ready.extend(left)
        if not round_.writes:
            return
        self.metrics.rounds += 1
        lane.in_flight += 1
        self._spawn(self._run(lane, round_))
        if lane.ready and lane.in_flight < self._options.rounds_in_flight:
            self._schedule(lane)

    async def _run(self, lane: _Lane, round_: Round) -> None:
        try:
            commits = [self._commit(lane, writes) for writes in (round_.inserts, round_.updates) if writes]
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
            if not lane.scheduled:
                self._schedule(lane)
        elif not lane.in_flight and not lane.scheduled:
            self._lanes.discard(lane)
            lane.lanes.pop(lane.write_concern.raw, None)

    async def _commit(self, lane: _Lane, writes: Sequence[PreparedWrite]) -> None:
        deadline = min(write.batch.staged_at_seconds for write in writes)
        deadline += self._options.server_selection_timeout_seconds
        send = self._store.update if writes[0].batch.base else self._store.insert
        statements = [write.statement for write in writes]
        self.metrics.commands += 1
        self.metrics.statements += len(statements)
        try:
            outcome = await send(lane.collection, statements, lane.write_concern, deadline)
            for batch in await self._settlement.settle(lane.collection, writes, lane.write_concern, outcome, deadline):
                self._ready_again(batch)
        except BaseException as error:
            self._fail(writes, error)
            raise

    def _ready_again(self, batch: WriteBatch) -> None:
        if batch.state is BatchState.CLAIMED:
            self.submit(batch)

    def _fail(self, writes: Sequence[PreparedWrite], error: BaseException) -> None:
        """A bug, or the end of the process: no writer may wait for ever."""
        self.metrics.failures += 1
        told = BackendUnavailable("the proxy is shutting down; the outcome of this write is unknown", code=91)
        if not isinstance(error, asyncio.CancelledError):
            told = CommandError(1, f"internal error while committing a write batch: {error!r}")  # type: ignore[assignment]
        for write in writes:
            if write.batch.state is BatchState.PREPARED:
                self._catalog.abort(write.batch, told)

    # --- tasks ---------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)
        self.kick()
