"""The bucket catalog: where each measurement goes, and what becomes of it (W30-W72).

All calls are synchronous, so that each is atomic under asyncio. What has to wait comes back as a value: a batch
that somebody has to claim and commit, or a look at the backend that somebody has to take. The usual way of a
measurement::

    place → (claim) → prepare → the committer sends the statement → finish | abort | replace

Buckets in memory are believed only as far as the guards of their updates prove them: whatever contradicts one
goes through ``replace``, which forgets the bucket and places its measurements anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from catalog.errors import CommandError
from catalog.kernel import BucketState, Limits, Measurement, bucket_id, rounded_start_ms
from catalog.namespaces import Namespace, VirtualCollection
from catalog.open_bucket import Bucket, CollectionBuckets, Parked, Series
from catalog.ports import Acknowledgement, Clock, IdSource
from catalog.rollover import RolloverReason
from catalog.stats import Counters
from catalog.write_batch import BatchEvent, BatchState, CombineKey, WriteBatch, Writer

MOVES_LIMIT = 25
"""How often a measurement may lose its bucket to other writers before its writer is told."""

TIME_REASONS = frozenset({RolloverReason.TIME_FORWARD, RolloverReason.TIME_BACKWARD})


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """Limits of the catalog under their native meanings (W41-W48)."""

    limits: Limits = Limits()
    memory_threshold_bytes: int = 100 * 1024 * 1024
    reopening: bool = True
    archived_per_series: int = 64


@dataclass(frozen=True, slots=True)
class Lookup:
    """Stored buckets are wanted for ``wanted`` (series, time in ms) of one collection."""

    buckets: CollectionBuckets
    wanted: tuple[tuple[Series, int], ...]


@dataclass(slots=True)
class _Work:
    """What the committer has to pick up."""

    unclaimed: list[WriteBatch]
    openings: list[CollectionBuckets]
    lookups: dict[CollectionBuckets, list[tuple[Series, int]]]


class BucketCatalog:
    """All open buckets of this process."""

    def __init__(self, options: CatalogOptions, clock: Clock, ids: IdSource) -> None:
        self.options = options
        self.totals = Counters()
        self._clock = clock
        self._ids = ids
        self._collections: dict[Namespace, CollectionBuckets] = {}
        self._idle: OrderedDict[Bucket, None] = OrderedDict()
        self._work = _Work([], [], {})
        self._bucket_count = 0
        self._memory_bytes = 0

    # --- placing -------------------------------------------------------------------------------------------

    def collection(self, virtual: VirtualCollection) -> CollectionBuckets:
        """The state of this collection; another incarnation or other options of the name replace it."""
        buckets = self._collections.get(virtual.namespace)
        if buckets is not None and buckets.collection is virtual:
            return buckets
        if buckets is not None and buckets.collection.uuid == virtual.uuid and _same_fields(buckets, virtual):
            # A coarser granularity keeps open buckets and applies at once (W49).
            _apply_options(buckets, virtual)
            return buckets
        if buckets is not None:
            self.clear(virtual.namespace)
        buckets = CollectionBuckets(virtual, Counters())
        self._collections[virtual.namespace] = buckets
        if self.options.reopening:
            self._work.openings.append(buckets)
        else:
            buckets.stored_until_ms = -(1 << 63)
        return buckets

    def place(
        self,
        buckets: CollectionBuckets,
        measurement: Measurement,
        writer: Writer,
        index: int,
        key: CombineKey,
        moves: int = 0,
    ) -> WriteBatch | None:
        """Stage one measurement (W62); the batch it is in, or ``None`` when it waits for a look at the backend."""
        series = buckets.series.get(measurement.meta)
        if series is None:
            series = buckets.series[measurement.meta] = Series(buckets, measurement.meta)
        elif series.parked is not None:
            series.parked.append(Parked(measurement, writer, index, key, moves))
            return None
        bucket = series.current
        reason = 0
        if bucket is None or (reason := bucket.state.try_stage(measurement)):
            found = self._other_bucket(series, measurement, reason, moves)
            if found is None:
                self._park(series, Parked(measurement, writer, index, key, moves))
                return None
            bucket = found
        batch = bucket.batches.get(key)
        if batch is None:
            if not bucket.batches:
                self._idle.pop(bucket, None)
            batch = bucket.batches[key] = WriteBatch(bucket, key, self._clock.monotonic_seconds(), moves)
        batch.add(measurement, writer, index)
        return batch

    def _other_bucket(
        self, series: Series, measurement: Measurement, refusal: int, moves: int
    ) -> Bucket | None:
        """Roll over: an archived bucket, or a new one, that took the measurement; ``None``: look first.

        ``refusal`` is the ``RolloverReason`` of the current bucket, 0 when there is none.
        """
        due_to_metadata = refusal == 0 and not series.archived
        if refusal:
            self._roll_over(series, RolloverReason(refusal))
        while (bucket := series.take_archived(measurement.time_ms)) is not None:
            if not bucket.state.try_stage(measurement):
                for counters in (series.collection.counters, self.totals):
                    counters.numBucketsReopened += 1
                series.current = bucket
                return bucket
            self._close(bucket)
        by_time = refusal == 0 or RolloverReason(refusal) in TIME_REASONS
        if moves == 0 and by_time and self._may_be_stored(series, measurement):
            return None
        return self._open(series, measurement, due_to_metadata=due_to_metadata)

    def _roll_over(self, series: Series, reason: RolloverReason) -> None:
        """The current bucket takes no more for now (time order) or ever (W41-W47)."""
        current, series.current = series.current, None
        for counters in (series.collection.counters, self.totals):
            counters.closed(reason)
        if current is None:
            return
        if reason in TIME_REASONS:
            self._archive(series, current)
        else:
            self._close(current)

    def _open(self, series: Series, measurement: Measurement, *, due_to_metadata: bool) -> Bucket:
        buckets = series.collection
        start_ms = rounded_start_ms(measurement.time_ms, buckets.rounding_seconds)
        state = BucketState(
            bucket_id(start_ms, self._ids.suffix()),
            buckets.time_field,
            buckets.meta_field,
            series.meta,
            start_ms,
            buckets.span_ms,
            self.options.limits,
        )
        state.try_stage(measurement)
        if due_to_metadata:
            buckets.counters.numBucketsOpenedDueToMetadata += 1
            self.totals.numBucketsOpenedDueToMetadata += 1
        bucket = self._adopt(series, state)
        self._let_go_over_threshold(buckets)
        return bucket

    def _adopt(self, series: Series, state: BucketState) -> Bucket:
        bucket = Bucket(series, state)
        series.current = bucket
        self._bucket_count += 1
        bucket.memory_bytes = state.memory_bytes()
        self._memory_bytes += bucket.memory_bytes
        return bucket

    # --- looking at the backend ----------------------------------------------------------------------------

    def _may_be_stored(self, series: Series, measurement: Measurement) -> bool:
        buckets = series.collection
        until_ms = buckets.stored_until_ms
        return until_ms is None or measurement.time_ms < until_ms + buckets.span_ms

    def _park(self, series: Series, parked: Parked) -> None:
        buckets = series.collection
        series.parked = deque((parked,))
        if buckets.stored_until_ms is not None:
            self._work.lookups.setdefault(buckets, []).append((series, parked.measurement.time_ms))

    def opened(self, buckets: CollectionBuckets, stored_until_ms: int) -> None:
        """The latest start of any stored bucket is known now; the measurements that waited for it go on."""
        buckets.stored_until_ms = stored_until_ms
        for series in [series for series in buckets.series.values() if series.parked is not None]:
            self._resume(series)

    def looked_up(self, lookup: Lookup, found: Mapping[bytes, BucketState]) -> None:
        """Stored buckets by meta that can go on; the measurements that waited for them do (W50)."""
        for series, _ in lookup.wanted:
            state = found.get(series.meta)
            parked = series.parked
            if state is not None and parked:
                self._reopen(series, state)
            self._resume(series, looked=True)

    def _reopen(self, series: Series, state: BucketState) -> None:
        counters = series.collection.counters
        for each in (counters, self.totals):
            each.numBucketsReopened += 1
        self._adopt(series, state)

    def _resume(self, series: Series, *, looked: bool = False) -> None:
        parked, series.parked = series.parked, None
        if parked is None:
            return
        while parked:
            item = parked.popleft()
            # The look was for the first of them; it must not be taken again for the same measurement.
            moves = max(item.moves, 1) if looked else item.moves
            looked = False
            batch = self.place(series.collection, item.measurement, item.writer, item.index, item.key, moves)
            if batch is not None:
                batch.moves = item.moves
                self._work.unclaimed.append(batch)
            elif _waits_behind(series, parked):
                return

    def take_openings(self) -> list[CollectionBuckets]:
        """Collections whose ``stored_until_ms`` somebody has to find out."""
        taken, self._work.openings = self._work.openings, []
        return taken

    def take_lookups(self) -> list[Lookup]:
        """Looks at the backend that somebody has to take."""
        if not self._work.lookups:
            return []
        taken, self._work.lookups = self._work.lookups, {}
        return [Lookup(buckets, tuple(wanted)) for buckets, wanted in taken.items()]

    def take_unclaimed(self) -> list[WriteBatch]:
        """Batches whose measurements moved or waited, so that no writer claims them."""
        if not self._work.unclaimed:
            return []
        taken, self._work.unclaimed = self._work.unclaimed, []
        return taken

    # --- the life of a batch -------------------------------------------------------------------------------

    def prepare(self, batch: WriteBatch) -> bytes | None:
        """Number the rows and build the statement (W64); ``None`` while another batch of the bucket is prepared."""
        bucket = batch.bucket
        if bucket.prepared is not None:
            bucket.waiting.append(batch)
            counters = bucket.series.collection.counters
            counters.numWaits += 1
            self.totals.numWaits += 1
            return None
        batch.advance(BatchEvent.PREPARE)
        bucket.batches.pop(batch.key, None)
        bucket.prepared = batch
        state = bucket.state
        batch.base = state.committed_rows
        return state.prepare(batch.measurements)

    def finish(self, batch: WriteBatch, acknowledgement: Acknowledgement) -> list[WriteBatch]:
        """The backend has it (W65): tell the writers; returns the batches that waited for their turn."""
        batch.advance(BatchEvent.FINISH)
        bucket = batch.bucket
        count = len(batch.measurements)
        for counters in (bucket.series.collection.counters, self.totals):
            counters.numCommits += 1
            counters.numMeasurementsCommitted += count
            if batch.base:
                counters.numBucketUpdates += 1
            else:
                counters.numBucketInserts += 1
        bucket.prepared = None
        bucket.state.committed(count)
        waiting, bucket.waiting = bucket.waiting, []
        if not bucket.batches and self._is_known(bucket):
            self._idle[bucket] = None
            if bucket.state.rows & 63 <= 1:
                self._weigh(bucket)
        batch.settle(None, acknowledgement)
        return waiting

    def abort(self, batch: WriteBatch, error: CommandError) -> None:
        """The batch failed: its writers are told, and those of the bucket's other batches with it (W66)."""
        batch.advance(BatchEvent.ABORT)
        others = self._forget(batch.bucket)
        batch.settle(error, None)
        for other in others:
            other.advance(BatchEvent.ABORT)
            other.settle(error, None)

    def replace(self, batch: WriteBatch) -> None:
        """The bucket changed underneath: place all that was staged for it anew, telling nobody (W67)."""
        batch.advance(BatchEvent.ABORT)
        others = self._forget(batch.bucket)
        self._move(batch)
        for other in others:
            other.advance(BatchEvent.ABORT)
            self._move(other)

    def waited(self, batch: WriteBatch) -> None:
        """A writer waits for a batch that another one commits (W63, W81)."""
        batch.bucket.series.collection.counters.numWaits += 1
        self.totals.numWaits += 1

    def _move(self, batch: WriteBatch) -> None:
        moves = batch.moves + 1
        if moves > MOVES_LIMIT:
            batch.settle(CommandError(112, "time-series bucket changed too often while it was written"), None)
            return
        staged_for = batch.bucket.series.collection
        buckets = self._collections.get(staged_for.collection.namespace, staged_for)
        position = iter(batch.measurements)
        shares, batch.shares = batch.shares, []
        for writer, indexes in shares:
            for index in indexes:
                placed = self.place(buckets, next(position), writer, index, batch.key, moves)
                if placed is not None:
                    self._work.unclaimed.append(placed)

    # --- forgetting ----------------------------------------------------------------------------------------

    def clear(self, namespace: Namespace, bucket_ids: Iterable[bytes] | None = None) -> None:
        """Direct writes changed these buckets, or all of the collection (W72): never append to them again."""
        buckets = self._collections.get(namespace)
        if buckets is None:
            return
        ids = None if bucket_ids is None else frozenset(bucket_ids)
        doomed = [
            bucket
            for series in buckets.series.values()
            for bucket in (series.current, *series.archived)
            if bucket is not None and (ids is None or bucket.state.bucket_id in ids)
        ]
        for bucket in doomed:
            self._evict(bucket)

    def drop(self, namespace: Namespace) -> None:
        """The collection is gone: its buckets and its counters too (W72)."""
        self.clear(namespace)
        self._collections.pop(namespace, None)

    def drop_database(self, database: str) -> None:
        """As ``drop`` for every collection of a database."""
        for namespace in [each for each in self._collections if each.database == database]:
            self.drop(namespace)

    def _evict(self, bucket: Bucket) -> None:
        """Forget a bucket; batches that were not sent go elsewhere, a prepared one ends as it ends (W71)."""
        for batch in self._forget(bucket):
            batch.advance(BatchEvent.ABORT)
            self._move(batch)

    def _forget(self, bucket: Bucket) -> list[WriteBatch]:
        """Remove from memory; returns the batches that were not prepared."""
        pending = [batch for batch in bucket.batches.values() if batch.state < BatchState.PREPARED]
        bucket.batches = {}
        bucket.waiting = []
        series = bucket.series
        if series.current is bucket:
            series.current = None
        elif bucket in series.archived:
            series.archived.remove(bucket)
        self._close(bucket)
        self._stored_until(series.collection, bucket.state.start_ms)
        self._drop_if_empty(series)
        return pending

    def _archive(self, series: Series, bucket: Bucket) -> None:
        series.archived.append(bucket)
        if len(series.archived) > self.options.archived_per_series:
            oldest = series.archived.pop(0)
            self._close(oldest)
            self._stored_until(series.collection, oldest.state.start_ms)

    def _close(self, bucket: Bucket) -> None:
        """No longer known by its series; batches that it has go on by themselves."""
        self._idle.pop(bucket, None)
        if bucket.memory_bytes:
            self._bucket_count -= 1
            self._memory_bytes -= bucket.memory_bytes
            bucket.memory_bytes = 0

    def _is_known(self, bucket: Bucket) -> bool:
        return bucket.memory_bytes > 0

    def _weigh(self, bucket: Bucket) -> None:
        weight = bucket.state.memory_bytes()
        self._memory_bytes += weight - bucket.memory_bytes
        bucket.memory_bytes = weight

    def _stored_until(self, buckets: CollectionBuckets, start_ms: int) -> None:
        if buckets.stored_until_ms is not None and self.options.reopening:
            buckets.stored_until_ms = max(buckets.stored_until_ms, start_ms)

    def _drop_if_empty(self, series: Series) -> None:
        if series.is_empty and series.collection.series.get(series.meta) is series:
            del series.collection.series[series.meta]

    def _let_go_over_threshold(self, cause: CollectionBuckets) -> None:
        """Over the memory threshold the buckets that were idle longest are let go (W48)."""
        while self._memory_bytes > self.options.memory_threshold_bytes and self._idle:
            bucket = next(iter(self._idle))
            for counters in (cause.counters, self.totals):
                counters.closed(RolloverReason.MEMORY)
            self._forget(bucket)

    # --- statistics ----------------------------------------------------------------------------------------

    def counters(self, namespace: Namespace) -> Counters:
        """The counters of one collection; zeroes for one that was not used (W80)."""
        buckets = self._collections.get(namespace)
        return Counters() if buckets is None else buckets.counters

    def gauges(self) -> dict[str, int]:
        """``numBuckets`` … ``memoryUsage`` of W82."""
        return {
            "numBuckets": self._bucket_count,
            "numOpenBuckets": self._bucket_count,
            "numIdleBuckets": len(self._idle),
            "memoryUsage": self._memory_bytes,
        }


def _waits_behind(series: Series, parked: deque[Parked]) -> bool:
    """After another look was asked for: the rest waits for it too."""
    if series.parked is None:
        return False
    series.parked.extend(parked)
    return True


def _same_fields(buckets: CollectionBuckets, virtual: VirtualCollection) -> bool:
    mine, theirs = buckets.collection.options, virtual.options
    return mine.time_field == theirs.time_field and mine.meta_field == theirs.meta_field


def _apply_options(buckets: CollectionBuckets, virtual: VirtualCollection) -> None:
    options = virtual.options
    buckets.collection = virtual
    span_ms = options.max_span_seconds * 1000
    if span_ms != buckets.span_ms:
        buckets.span_ms = span_ms
        buckets.rounding_seconds = options.rounding_seconds
        for series in buckets.series.values():
            for bucket in (series.current, *series.archived):
                if bucket is not None:
                    bucket.state.span_ms = span_ms
