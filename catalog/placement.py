"""Chooses the bucket of a measurement: series, rollover, archived buckets, memory (W30-W50).

The lower half of the catalog; the upper half, ``catalog.catalog``, prepares batches and carries out their outcomes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.buckets.memory import BucketMemory, EndedBucket
from catalog.buckets.open_bucket import Bucket, CollectionBuckets, Parked, Series
from catalog.buckets.queued_work import Work
from catalog.buckets.stats import Counters
from catalog.buckets.write_batch import SETTLED, BatchEvent, BatchState, CombineKey, StagedRow, WriteBatch, Writer
from catalog.errors import WRITE_CONFLICT, CommandError, InvariantViolated
from catalog.growth.growth import BucketGrowth, GrowthOptions
from catalog.kernel import BucketState, Limits, Measurement, bucket_id, rounded_start_ms
from catalog.kernel.rollover import ID_RANGE_MS, RolloverReason, size_cap_bytes
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Clock, IdSource

MOVES_LIMIT = 25
"""How often a measurement may be moved, because its bucket has changed, before its write fails."""

FREED_AT_ONCE = 1_000
CHECKED_AT_ONCE = 2_000
"""Maximum number of series and buckets that are freed in one turn of the event loop."""
MOVED_AS_FREED = 4
"""Moving one measurement takes as long as freeing this number of buckets."""

_CACHE_PRESSURE: Final = int(RolloverReason.CACHE_PRESSURE)
TIME_REASONS = frozenset({RolloverReason.TIME_FORWARD, RolloverReason.TIME_BACKWARD})


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """Limits of the catalog, with the meaning of the server's parameters (W41-W51).

    ``cache_share_bytes``: the part of the server's cache that open buckets may fill; 0 if unknown.
    """

    limits: Limits = Limits()
    cache_share_bytes: int = 0
    memory_threshold_bytes: int = 100 * 1024 * 1024
    reopening: bool = True
    archived_per_series: int = 256
    growth: GrowthOptions = GrowthOptions()


class Placement:
    """The buckets of this process, and the placement of measurements in them."""

    def __init__(self, options: CatalogOptions, clock: Clock, ids: IdSource) -> None:
        self.options = options
        self.totals = Counters()
        self._clock = clock
        self._ids = ids
        self._collections: dict[Namespace, CollectionBuckets] = {}
        self._memory = BucketMemory()
        self._cap_bytes = 0  # the size limit of open buckets while the server's cache is short
        self._work = Work()
        self._halves = 0
        self.growth = BucketGrowth(options.growth, clock, ids, self._memory.get)
        self.begins_extended_range: Callable[[Namespace], object] = lambda _: None
        """Called before the first time is stored for which bucket ids are not in order (Q12)."""

    def hold_extended_range(self, buckets: CollectionBuckets) -> None:
        """A time outside the range of bucket ids is going to be stored, by this process (Q12)."""
        if not buckets.holds_extended_range:
            buckets.holds_extended_range = True
            self.begins_extended_range(buckets.collection.namespace)

    def holds_extended_range(self, namespace: Namespace) -> bool:
        """Whether this process has written times outside the range of bucket ids (Q12)."""
        known = self._collections.get(namespace)
        return known is not None and known.holds_extended_range

    def collection(self, virtual: VirtualCollection) -> CollectionBuckets:
        """The state of this collection; replaces the state of another incarnation or of other fields."""
        known = self._collections.get(virtual.namespace)
        if known is not None and known.collection is virtual:
            return known
        if known is not None and known.collection.uuid == virtual.uuid and known.has_fields_of(virtual):
            known.apply_options(virtual)
            return known
        buckets = self._collections[virtual.namespace] = CollectionBuckets(virtual, Counters())
        if not self.options.reopening:
            buckets.stored_until_ms = -(1 << 63)
        if known is not None:
            known.replaced = True
            self._clear_all(known)
            self.free_cleared()
        return buckets

    def collections(self) -> list[CollectionBuckets]:
        """The collections that this process has written to."""
        return list(self._collections.values())

    def place(
        self,
        buckets: CollectionBuckets,
        measurement: Measurement,
        writer: Writer,
        index: int,
        key: CombineKey,
        origin: Parked | None = None,
    ) -> WriteBatch | None:
        """Stage one measurement (W62); returns its batch, or ``None`` while it is parked for a look-up.

        ``origin`` is the parked measurement if it was staged before.
        """
        series = buckets.series.get(measurement.meta)
        if series is None:
            series = buckets.series[measurement.meta] = Series(buckets, measurement.meta)
        elif series.parked is not None:
            series.parked.append(origin or self._parked(measurement, writer, index, key))
            return None
        bucket = series.current
        reason = 0
        if self._cap_bytes and bucket is not None:
            bucket.state.cap_bytes = self._cap_bytes
        if bucket is None or (reason := bucket.state.try_stage(measurement)):
            found = self._other_bucket(series, measurement, reason, may_look=origin is None or not origin.looked)
            if found is None:
                self._park(series, origin or self._parked(measurement, writer, index, key))
                return None
            bucket = found
        batch = bucket.batches.get(key)
        if batch is None:
            if not bucket.batches:
                self._memory.wake(bucket)
            batch = bucket.batches[key] = WriteBatch(bucket, key, self._clock.monotonic_seconds())
        if origin is not None:
            batch.moves = max(batch.moves, origin.moves)
            batch.staged_at_seconds = min(batch.staged_at_seconds, origin.staged_at_seconds)
        batch.add(measurement, writer, index)
        return batch

    def _parked(self, measurement: Measurement, writer: Writer, index: int, key: CombineKey) -> Parked:
        return Parked(measurement, writer, index, key, self._clock.monotonic_seconds())

    def _other_bucket(self, series: Series, measurement: Measurement, refusal: int, *, may_look: bool) -> Bucket | None:
        """Roll over to an archived or a new bucket and stage the measurement; ``None`` if a look-up must come first.

        ``refusal`` is the ``RolloverReason`` of the current bucket, 0 if there is none.
        """
        due_to_metadata = refusal == 0 and not series.archived
        if refusal == _CACHE_PRESSURE and (current := series.current) is not None:
            # The cap may be that of a time with more buckets.
            self._cap_bytes = current.state.cap_bytes = self._new_cap_bytes()
            if not (refusal := current.state.try_stage(measurement)):
                return current
        if refusal:
            self._roll_over(series, RolloverReason(refusal))
        while (bucket := series.take_archived(measurement.time_ms)) is not None:
            self._memory.archived -= 1
            bucket.state.cap_bytes = self._cap_bytes
            if not bucket.state.try_stage(measurement):
                self._count_both(series.collection, "numBucketsReopened")
                series.current = bucket
                return bucket
            self._memory.release(bucket, full=True)
        by_time = refusal == 0 or RolloverReason(refusal) in TIME_REASONS
        if may_look and by_time and self.growth.has_to_look(series.collection, measurement.time_ms):
            return None
        if due_to_metadata:
            self._count_both(series.collection, "numBucketsOpenedDueToMetadata")
        return self._open(series, measurement)

    def _roll_over(self, series: Series, reason: RolloverReason) -> None:
        """Archive the current bucket, if only the time did not fit, or close it (W41-W47)."""
        current, series.current = series.current, None
        for counters in (series.collection.counters, self.totals):
            counters.closed(reason)
        if current is None:
            return
        if reason not in TIME_REASONS:
            self._memory.release(current, full=True)
            return
        series.archive(current)
        self._memory.archived += 1
        if len(series.archived) > self.options.archived_per_series:
            # The earliest one, so that as few measurements as possible are looked up (``stored_until_ms``).
            earliest = series.archived.pop(0)
            self._memory.archived -= 1
            self._memory.release(earliest, full=True)
            self._stored_until(earliest)

    def _open(self, series: Series, measurement: Measurement) -> Bucket:
        buckets = series.collection
        start_ms = rounded_start_ms(measurement.time_ms, buckets.rounding_seconds)
        if not 0 <= start_ms < ID_RANGE_MS:
            self.hold_extended_range(buckets)
        state = BucketState(
            bucket_id(start_ms, self._ids.suffix()),
            buckets.time_field,
            buckets.meta_field,
            series.meta,
            start_ms,
            buckets.span_ms,
            self.options.limits,
        )
        if refusal := state.try_stage(measurement):
            raise InvariantViolated(f"a new bucket refuses its first measurement: {RolloverReason(refusal).name}")
        return self._adopt(series, state, own=True)

    def _adopt(self, series: Series, state: BucketState, *, own: bool) -> Bucket:
        bucket = series.current = Bucket(series, state, own=own)
        self._memory.adopt(bucket)
        self._cap_bytes = self._new_cap_bytes()
        self._close_over_threshold(series.collection)
        return bucket

    def _new_cap_bytes(self) -> int:
        """The cap for the buckets that are open now."""
        options, memory = self.options, self._memory
        return size_cap_bytes(options.limits, options.cache_share_bytes, memory.count - memory.archived)

    def _park(self, series: Series, parked: Parked) -> None:
        buckets = series.collection
        series.parked = deque((parked,))
        if buckets.stored_until_ms is not None:
            self._work.lookups.setdefault(buckets, []).append((series, parked.measurement.time_ms))
            return
        if not buckets.waiting:
            self._work.openings.append(buckets)
        buckets.waiting.append(series)

    def _place_again(self, staged_for: CollectionBuckets, item: Parked) -> None:
        if item.writer is SETTLED:
            return
        buckets = self._collections.get(staged_for.collection.namespace)
        if buckets is None or not buckets.has_fields_of(staged_for.collection):
            # The collection was dropped: the backend will refuse the write, and its error is the client's.
            buckets = staged_for
        batch = self.place(buckets, item.measurement, item.writer, item.index, item.key, item)
        if batch is None:
            return
        is_bulk: bool = getattr(item.writer, "is_bulk", False)
        if len(batch.measurements) == 1:
            batch.bulk = is_bulk
        elif batch.bulk and not is_bulk:
            batch.bulk = False
            if batch.state is BatchState.CLAIMED:
                self._work.ready.append(batch)
        if batch.state is BatchState.OPEN:
            self._work.unclaimed.append(batch)

    def _move(self, batches: Sequence[WriteBatch], *, is_changed: bool = True) -> None:
        """Place the measurements of these batches again, because their bucket is no longer in memory.

        ``is_changed``: because others have changed it, for which there is a limit.
        """
        for batch in batches:
            if batch.state is not BatchState.ABORTED:
                batch.advance(BatchEvent.ABORT)
        for batch in batches:
            moves = batch.moves + is_changed
            if moves > MOVES_LIMIT:
                batch.settle(
                    CommandError(WRITE_CONFLICT, "time-series bucket changed repeatedly by other writers; retry"), None
                )
                continue
            self._place_rows(batch, batch.rows(), batch.key, moves)

    def _place_rows(self, batch: WriteBatch, rows: Sequence[StagedRow], key: CombineKey, moves: int) -> None:
        batch.shares = []
        for measurement, writer, index in rows:
            item = Parked(measurement, writer, index, key, batch.staged_at_seconds, moves)
            item.looked = True
            self._place_again(batch.bucket.series.collection, item)

    # --- forgetting ----------------------------------------------------------------------------------------

    def _clear(self, buckets: CollectionBuckets, bucket_ids: Iterable[bytes]) -> None:
        """Forget buckets: batches that were not sent are placed again; prepared ones are completed (W71)."""
        buckets.generation += 1
        known = map(self._memory.get, bucket_ids)
        # Several ids may be parts of one bucket.
        doomed = dict.fromkeys(each for each in known if each is not None and each.series.collection is buckets)
        self._move([batch for bucket in doomed for batch in self._forget(bucket)])

    def _clear_all(self, buckets: CollectionBuckets) -> None:
        """As ``_clear`` for all buckets of a collection; ``free_cleared`` frees them later, in pieces."""
        buckets.generation += 1
        self._work.cleared.append(buckets.series)
        buckets.series = {}
        if buckets.replaced:
            self.growth.gone(buckets)

    def free_cleared(self, limit: int = FREED_AT_ONCE) -> bool:
        """Free up to ``limit`` series that were cleared, or fewer with measurements; whether some are left."""
        cleared = self._work.cleared
        while cleared and limit > 0:
            if not cleared[-1]:
                cleared.pop()
                continue
            _, series = cleared[-1].popitem()
            limit -= 1
            for bucket in (series.current, *series.archived):
                if bucket is not None:
                    pending = self._forget(bucket)
                    limit -= 1 + sum(MOVED_AS_FREED * len(batch.measurements) for batch in pending)
                    self._move(pending)
        has_more = self.growth.forget_dropped(limit) or bool(cleared)
        self._work.is_freeing = self._work.is_freeing and has_more
        return has_more

    def take_cleared(self) -> bool:
        """Whether the caller must call ``free_cleared`` until nothing is left."""
        work = self._work
        if work.is_freeing or not (work.cleared or self.growth.has_dropped):
            return False
        work.is_freeing = True
        return True

    def _forget(self, bucket: Bucket) -> list[WriteBatch]:
        """Remove a bucket from memory; returns its batches that are not prepared."""
        pending = list(bucket.batches.values())
        bucket.batches = {}
        bucket.waiting = []
        series = bucket.series
        if series.current is bucket:
            series.current = None
        elif bucket in series.archived:
            series.archived.remove(bucket)
            self._memory.archived -= 1
        self._memory.release(bucket)
        self._stored_until(bucket)
        self._drop_if_empty(series)
        return pending

    def _stored_until(self, bucket: Bucket) -> None:
        self.growth.let_go(bucket)
        buckets, start_ms = bucket.series.collection, bucket.state.start_ms
        if buckets.stored_until_ms is not None and self.options.reopening:
            buckets.stored_until_ms = max(buckets.stored_until_ms, start_ms)

    # --- buckets that take no more -------------------------------------------------------------------------

    def take_full(self) -> list[EndedBucket]:
        """The buckets that accept no more rows and whose last batch has ended since the previous call."""
        taken = list(self._memory.ended)
        self._memory.ended.clear()
        return taken

    def keep_full(self, ended: EndedBucket) -> None:
        """Return a bucket to the list of ``take_full``."""
        self._memory.ended.append(ended)

    def close_inactive(self, before: Mapping[bytes, int], rows: dict[bytes, int]) -> Iterator[None]:
        """Close archived buckets with as many rows as ``before``; fill ``rows`` by bucket id. Yields in between."""
        checked = 0
        for buckets in list(self._collections.values()):
            for meta in list(buckets.series):
                checked += 1
                if checked % CHECKED_AT_ONCE == 0:
                    yield
                series = buckets.series.get(meta)
                if series is None:
                    continue
                for bucket in list(series.archived):
                    state = bucket.state
                    rows[state.bucket_id] = state.rows
                    if before.get(state.bucket_id) == state.rows and bucket.is_idle:
                        series.archived.remove(bucket)
                        self._memory.archived -= 1
                        self._memory.release(bucket, full=True)
                        self._stored_until(bucket)
                self._drop_if_empty(series)

    def _drop_if_empty(self, series: Series) -> None:
        if series.is_empty and series.collection.series.get(series.meta) is series:
            del series.collection.series[series.meta]

    def _close_over_threshold(self, cause: CollectionBuckets) -> None:
        """Close the buckets that were idle longest while memory is above the threshold (W48)."""
        while self._memory.size_bytes > self.options.memory_threshold_bytes:
            bucket = self._memory.longest_idle()
            if bucket is None:
                return
            for counters in (cause.counters, self.totals):
                counters.closed(RolloverReason.MEMORY)
            self._forget(bucket)

    def _count_both(self, buckets: CollectionBuckets, name: str) -> None:
        buckets.counters.count(name)
        self.totals.count(name)
