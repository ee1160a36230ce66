"""Group commit: sends all batches that are ready at the same moment in as few commands as possible (W63-W68).

Claimed batches queue in *lanes*, two for each collection and write concern: one for batches that only large inserts
wait for, and one for all others, to which the former give way (``catalog.commit.precedence``). A round takes the ready
batches of a lane and sends one ``insert`` for new buckets and one bulk ``update`` for buckets that grow; batches that
arrive while ``rounds_in_flight`` rounds are in progress join the next one. Without a linger, a round starts in the same
turn of the event loop, after the other callbacks of that turn, so measurements that arrived with one poll are committed
together; or, while replies to earlier rounds wait, after these, so that it includes what their clients send next.

A commit that is sent in one command without a wait, and applied as a whole, needs no task. All others run in tasks of
the committer, so a client that disconnects does not cancel a commit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from catalog.buckets.write_batch import BatchState, WriteBatch
from catalog.catalog import BucketCatalog
from catalog.commit.commit_observer import CommitObserver
from catalog.commit.commit_outcome import CommitOutcomes
from catalog.commit.commit_tasks import CANCEL_SECONDS, BegunWork, CommitTasks
from catalog.commit.precedence import Precedence
from catalog.commit.reclaiming import Reclaiming
from catalog.commit.reopening import Reopening
from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.round import PreparedWrite, Round, RoundLimits
from catalog.commit.sending import Commit
from catalog.errors import CommandError
from catalog.internal_errors import internal_error
from catalog.namespaces import VirtualCollection
from catalog.ports import BucketStore, BulkOutcome, Clock, WriteConcern


@dataclass(frozen=True, slots=True)
class CommitterOptions:
    """Options of the committer.

    ``linger_seconds``: how long a round waits for more batches; 0: until the end of the event loop's turn.
    ``rounds_in_flight``: maximum number of concurrent rounds of one lane. ``server_selection_timeout_seconds``: after
    this time, a batch that was not sent fails, and the outcome of one that was sent is unknown.
    ``restart_window_seconds``: for this time after the start, statements may be retries from before it
    (``catalog.commit.restart_dedup``). ``limits``: of a round. ``observer`` sees every commit. ``behind_replies`` makes
    a call once the replies that wait have been written, and is false if none does (``proxy.inserts.paced_replies``).
    """

    linger_seconds: float = 0.0
    rounds_in_flight: int = 2
    server_selection_timeout_seconds: float = 30.0
    restart_window_seconds: float = 120.0
    limits: RoundLimits = RoundLimits()
    observer: CommitObserver | None = None
    behind_replies: Callable[[Callable[[], None]], bool] | None = None


_STOPS = "the proxy is shutting down"
PURSUIT_SLICE_SECONDS = 5.0
PURSUIT_PAUSES_SECONDS = (0.1, 2.0)
"""The first and the longest pause between attempts to resolve writes in doubt."""
EXPIRY_SECONDS = 0.5
"""Interval of checks for writers that have waited long enough for the outcome of a write in doubt."""


class CommitterMetrics:
    """Counters of the committer, which are read at any time."""

    __slots__ = ("commands", "failures", "measurements", "rounds", "statements", "unknown_outcomes")

    def __init__(self) -> None:
        self.rounds = 0
        self.commands = 0
        self.statements = 0
        self.measurements = 0
        self.unknown_outcomes = 0
        self.failures = 0


class _Lane:
    """The ready batches of one collection and write concern, and the number of rounds in progress."""

    __slots__ = ("collection", "in_flight", "is_bulk", "lanes", "ready", "scheduled", "write_concern")

    def __init__(
        self,
        lanes: dict[bytes, _Lane],
        collection: VirtualCollection,
        write_concern: WriteConcern,
        *,
        is_bulk: bool,
    ) -> None:
        self.lanes = lanes
        self.is_bulk = is_bulk
        self.collection = collection
        self.write_concern = write_concern
        self.ready: list[WriteBatch] = []
        self.in_flight = 0
        self.scheduled = False


class Committer:
    """Commits batches and carries out the look-ups of the catalog."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        options: CommitterOptions,
        report: Callable[[BaseException], None],
    ) -> None:
        """``report`` gets internal errors."""
        self.metrics = CommitterMetrics()
        self._catalog = catalog
        self._clock = clock
        self.options = options
        self.report = report
        self._lanes: set[_Lane] = set()
        self.precedence = Precedence(clock)
        self._tasks = CommitTasks(clock, report, self.kick)
        self._pursuit: asyncio.Task[None] | None = None
        patience_seconds = options.server_selection_timeout_seconds
        self.reclaiming = Reclaiming(
            RestartDedup(store, clock, options.restart_window_seconds, patience_seconds, self._tasks.spawn)
        )
        self._outcomes = CommitOutcomes(catalog, store, clock, patience_seconds, self.reclaiming, self.kick)
        self._reopening = Reopening(catalog, store, clock, patience_seconds / 3)

    @property
    def restart_dedup(self) -> RestartDedup:
        """Looks up what other processes have written."""
        return self.reclaiming.restart_dedup

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what an insert waits for; the end of the process waits for it as for a commit."""
        self._tasks.spawn(work)

    # --- how it commits from now on ------------------------------------------------------------------------

    def pace(self, linger_seconds: float, rounds_in_flight: int) -> None:
        """Change how long rounds wait for further batches, and how many are in flight (``CommitterOptions``)."""
        self.options = replace(self.options, linger_seconds=linger_seconds, rounds_in_flight=rounds_in_flight)

    def observe(self, observer: CommitObserver | None) -> None:
        """``observer`` sees every commit; ``None``: nobody does."""
        self.options = replace(self.options, observer=observer)

    # --- what is ready -------------------------------------------------------------------------------------

    def submit(self, batch: WriteBatch) -> None:
        """Commit a batch that the caller has claimed."""
        buckets = batch.bucket.series.collection
        lanes: dict[bytes, _Lane] = buckets.lanes[batch.bulk]
        lane = lanes.get(batch.key.write_concern)
        if lane is None:
            raw = batch.key.write_concern
            lane = lanes[raw] = _Lane(lanes, buckets.collection, WriteConcern(raw), is_bulk=batch.bulk)
            self._lanes.add(lane)
        lane.ready.append(batch)
        if not lane.scheduled and self._may_begin(lane):
            self._schedule(lane)

    def hasten(self, batch: WriteBatch) -> None:
        """A small insert has joined a batch of a large one: move the batch to the ordinary lane."""
        batch.bulk = False
        if batch.state is BatchState.CLAIMED:
            self.submit(batch)

    def kick(self) -> None:
        """Start the work that the catalog has queued: moved batches, look-ups, resumed placement, freeing."""
        for batch in self._catalog.take_unclaimed():
            if batch.claim():
                self.submit(batch)
        for batch in self._catalog.take_ready():
            if batch.state is BatchState.CLAIMED:
                self.submit(batch)
        for buckets in self._catalog.take_openings():
            self._tasks.spawn(self._reopening.open(buckets))
        for lookup in self._catalog.take_lookups():
            self._tasks.spawn(self._reopening.look_up(lookup))
        if self._catalog.take_resumption():
            self._tasks.spawn(self._resume())
        if self._catalog.take_cleared():
            self._tasks.spawn(self._free_cleared())
        if self._outcomes.doubts and self._pursuit is None:
            self._pursuit = asyncio.get_running_loop().create_task(self._pursue())
            self._pursuit.add_done_callback(self._pursued)

    async def _resume(self) -> None:
        """Place the measurements that waited for look-ups, a part of them in each turn of the event loop."""
        while self._catalog.resume():
            self.kick()
            await asyncio.sleep(0)

    async def _free_cleared(self) -> None:
        """Free the buckets of dropped and cleared collections, a part of them in each turn of the event loop."""
        has_more = True
        while has_more:
            await asyncio.sleep(0)
            has_more = self._catalog.free_cleared()
            self.kick()

    def deadline_seconds(self) -> float:
        """The time until which a writer that comes now may wait for its outcome."""
        return self._clock.monotonic_seconds() + self.options.server_selection_timeout_seconds

    def pursued(self) -> tuple[int, int]:
        """The measurements of writes with an unknown outcome that are pursued, and the bytes of their statements."""
        return self._outcomes.pursued()

    def is_over(self, deadline_seconds: float) -> bool:
        """Whether this deadline has passed."""
        return self._clock.monotonic_seconds() >= deadline_seconds

    async def drain(self, patience_seconds: float = math.inf) -> bool:
        """Wait until no commit is in progress; writes in doubt are not resolved any further.

        Commits that are in progress after ``patience_seconds`` are cancelled, and their writers get an error; then the
        result is false.
        """
        linger_seconds = self.options.linger_seconds
        drained = await self._tasks.drain(lambda: self.batches_ready > 0, linger_seconds, patience_seconds)
        if self._pursuit is not None:
            self._pursuit.cancel()
            await asyncio.wait({self._pursuit}, timeout=CANCEL_SECONDS)
        return drained

    @property
    def batches_ready(self) -> int:
        """How many batches wait for a round."""
        return sum(len(lane.ready) for lane in self._lanes)

    # --- rounds --------------------------------------------------------------------------------------------

    def _may_begin(self, lane: _Lane) -> bool:
        return lane.in_flight < self.precedence.rounds(self.options.rounds_in_flight, is_bulk=lane.is_bulk)

    def _limits(self, lane: _Lane) -> RoundLimits:
        return self.precedence.limits(self.options.limits, is_bulk=lane.is_bulk)

    def _schedule(self, lane: _Lane) -> None:
        lane.scheduled = True
        loop, behind_replies = asyncio.get_running_loop(), self.options.behind_replies
        if self.options.linger_seconds > 0:
            loop.call_later(self.options.linger_seconds, self._start_round, lane)
        elif behind_replies is None or not behind_replies(partial(self._start_round, lane)):
            # After the other callbacks of this turn.
            loop.call_soon(self._start_round, lane)

    def _start_round(self, lane: _Lane) -> None:
        lane.scheduled = False
        try:
            commits = self._commits_of_round(lane)
        except Exception as error:  # noqa: BLE001 - reported; nobody else would hear of it
            self.report(error)
            return
        if commits and not self._begin(lane, commits):
            self._tasks.spawn(self._commit_all(lane, commits))

    def _begin(self, lane: _Lane, commits: Sequence[Commit]) -> bool:
        """Send the round without a task if that is possible."""
        if len(commits) > 1 or self.options.observer is not None:
            return False
        commit = commits[0]
        begun = BegunWork(partial(self._told, lane, commit), partial(self._given_up, lane, commit))
        try:
            is_begun = self._outcomes.begin(commit, begun.told)
        except Exception as error:  # noqa: BLE001 - reported
            self._failed(commit, error)
            self._ended(lane)
            return True
        if is_begun:
            self._tasks.begun(begun)
        return is_begun

    def _commits_of_round(self, lane: _Lane) -> list[Commit]:
        """Take what is ready for a round that begins now; nothing if there is nothing to write."""
        ready, lane.ready = lane.ready, []
        round_, left = Round.of(self._catalog, ready, self._limits(lane))
        lane.ready.extend(left)
        for failure in round_.failures:
            self.metrics.failures += 1
            self.report(failure)
        commits = [self._commit_of(lane, writes) for writes in round_.commands]
        if not commits:
            self._next(lane)
            return commits
        self.metrics.rounds += 1
        lane.in_flight += 1
        self.precedence.began(is_bulk=lane.is_bulk)
        if lane.ready and self._may_begin(lane):
            self._schedule(lane)
        return commits

    def _commit_of(self, lane: _Lane, writes: Sequence[PreparedWrite]) -> Commit:
        since = min(write.batch.staged_at_seconds for write in writes)
        self.metrics.commands += 1
        self.metrics.statements += len(writes)
        deadline = since + self.options.server_selection_timeout_seconds
        return Commit(lane.collection, lane.write_concern, writes, since, deadline)

    async def _commit_all(self, lane: _Lane, commits: Sequence[Commit], begun: BulkOutcome | None = None) -> None:
        try:
            if len(commits) == 1:
                await self._commit(commits[0], begun)
            else:
                await asyncio.gather(*[self._commit(commit) for commit in commits])
        finally:
            self._ended(lane)

    def _ended(self, lane: _Lane) -> None:
        lane.in_flight -= 1
        self._next(lane)

    def _told(self, lane: _Lane, commit: Commit, outcome: BulkOutcome) -> None:
        """A commit that was begun has this outcome."""
        try:
            is_settled = self._outcomes.settle_at_once(commit, outcome)
        except Exception as error:  # noqa: BLE001 - reported
            self._failed(commit, error)
            is_settled = True
        if is_settled:
            self._ended(lane)
        else:
            self._tasks.spawn(self._commit_all(lane, [commit], outcome))

    def _given_up(self, lane: _Lane, commit: Commit) -> None:
        """Nobody waits any longer for the outcome of a commit that was begun."""
        self._outcomes.give_up(commit, CommandError(91, _STOPS))
        self._ended(lane)

    def _next(self, lane: _Lane) -> None:
        self.kick()
        if lane.ready:
            if not lane.scheduled and self._may_begin(lane):
                self._schedule(lane)
        elif not lane.in_flight and not lane.scheduled:
            self._lanes.discard(lane)
            if lane.lanes.get(lane.write_concern.raw) is lane:
                del lane.lanes[lane.write_concern.raw]

    async def _commit(self, commit: Commit, begun: BulkOutcome | None = None) -> None:
        observer, outcome = self.options.observer, None
        observed = None if observer is None else observer.began(commit)
        try:
            outcome = await self._outcomes.commit(commit, begun)
        except asyncio.CancelledError:
            self._outcomes.give_up(commit, CommandError(91, _STOPS))
            raise
        except Exception as error:  # noqa: BLE001 - reported
            self._failed(commit, error)
        finally:
            if observed is not None:
                observed.ended(outcome)

    def _failed(self, commit: Commit, error: Exception) -> None:
        """An internal error: writers must not wait for ever, and what was sent may have been written."""
        self.metrics.failures += 1
        told = internal_error("committing", error)
        self.report(error)
        self._outcomes.give_up(commit, told)

    # --- in doubt ------------------------------------------------------------------------------------------

    async def _pursue(self) -> None:
        """Resolve writes in doubt, for clients that may send them again (W127)."""
        pause_seconds, longest_seconds = PURSUIT_PAUSES_SECONDS
        while self._outcomes.doubts:
            attempt = asyncio.get_running_loop().create_task(self._outcomes.pursue(PURSUIT_SLICE_SECONDS))
            try:
                while not attempt.done():
                    await asyncio.wait({attempt}, timeout=EXPIRY_SECONDS)
                    self._outcomes.expire()
            finally:
                attempt.cancel()
            if not attempt.cancelled() and (error := attempt.exception()) is not None:
                self.report(error)
            await asyncio.sleep(pause_seconds)
            self._outcomes.expire()
            pause_seconds = min(pause_seconds * 2, longest_seconds)

    def _pursued(self, task: asyncio.Task[None]) -> None:
        self._pursuit = None
        if not task.cancelled():
            if (error := task.exception()) is not None:
                self.report(error)
            self.kick()
