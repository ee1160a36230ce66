"""The bucket catalog: chooses the bucket of each measurement, and settles batches (W30-W72).

All calls are synchronous, so each is atomic under asyncio. Work that has to wait is queued for the committer: batches
to be claimed and committed, and look-ups of stored buckets. The usual path of a measurement::

    place → (claim) → prepare → the committer sends the statement → finish | abort | replace

A bucket in memory may be outdated, which the guards of its updates detect. ``replace`` then forgets the bucket and
places its measurements again.

Writers are settled at the end of a call, when the catalog is consistent, because they may call it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from catalog.buckets.open_bucket import Bucket, CollectionBuckets, Parked, Series
from catalog.buckets.queued_work import BucketSearch
from catalog.buckets.stats import Counters
from catalog.buckets.write_batch import BatchEvent, WriteBatch, halves
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import BucketState
from catalog.namespaces import Namespace
from catalog.placement import CatalogOptions, Placement
from catalog.ports import Acknowledgement

__all__ = ["BucketCatalog", "BucketSearch", "CatalogOptions"]

_PREPARE: Final = BatchEvent.PREPARE
_FINISH: Final = BatchEvent.FINISH
"""Constants, because looking up members of an enumeration is slow."""

RESUMED_AT_ONCE: Final = 250
"""Maximum number of parked measurements that are placed in one turn of the event loop."""


class BucketCatalog(Placement):
    """All open buckets of this process."""

    # --- look-ups ------------------------------------------------------------------------------------------

    def opened(self, buckets: CollectionBuckets, stored_until_ms: int | None) -> None:
        """The latest start of any stored bucket is known; ``None`` if the look-up failed.

        The measurements that were parked for it are placed.
        """
        buckets.stored_until_ms = stored_until_ms
        waiting, buckets.waiting = buckets.waiting, deque()
        (self._work.failed_openings if stored_until_ms is None else self._work.resuming).extend(waiting)
        self.resume()

    def looked_up(self, lookup: BucketSearch, found: Mapping[bytes, BucketState] | None) -> None:
        """The result of a look-up: stored buckets by meta value; ``None`` if it failed.

        The buckets are reopened, and the measurements that were parked for them are placed (W50).
        """
        stale = lookup.generation != lookup.buckets.generation or lookup.buckets.replaced
        for series, time_ms in lookup.wanted:
            state = None if found is None or stale else found.get(series.meta)
            reopened: Bucket | None = None
            if state is not None and series.current is None and not self.is_under_way(state.bucket_id):
                self._count_both(lookup.buckets, "numBucketsReopened")
                self.growth.found(lookup.buckets, time_ms)
                reopened = self._adopt(series, state, own=False)
            self._resume(series, looked_for=1 if found is not None else len(series.parked or ()))
            if reopened is not None and reopened.is_known and reopened.is_idle:
                self._memory.rest(reopened)
        self.resume()

    def is_under_way(self, stored_id: bytes) -> bool:
        """Whether this document belongs to a bucket in memory, or to one whose parts are to be joined."""
        return self._memory.holds(stored_id) or self.growth.holds(stored_id)

    def grows_in_parts(self, stored_id: bytes) -> bool:
        """Whether this document belongs to a bucket that this process made and may still add parts to."""
        bucket = self._memory.get(stored_id)
        return self.growth.holds(stored_id) or (bucket is not None and bucket.own)

    def _resume(self, series: Series, *, looked_for: int) -> None:
        """Queue the parked measurements for ``resume``; the first ``looked_for`` request no further look-up."""
        series.look_ended(looked_for)
        self._work.resuming.append(series)

    def resume(self, limit: int = RESUMED_AT_ONCE) -> bool:
        """Place up to ``limit`` measurements whose look-up has ended; whether some are left for the next turn."""
        work = self._work
        while work.failed_openings and limit > 0:
            series = work.failed_openings.popleft()
            limit -= len(series.parked or ())
            self._resume(series, looked_for=len(series.parked or ()))
        while work.resuming and limit > 0:
            series = work.resuming.popleft()
            parked = series.parked or deque()
            series.parked = None
            while parked and limit > 0 and not series.waits:
                limit -= 1
                self._place_again(series.collection, parked.popleft())
            self._wait_on(series, parked)
        work.is_resuming = work.is_resuming and self._has_resumptions
        return self._has_resumptions

    @property
    def _has_resumptions(self) -> bool:
        return bool(self._work.resuming or self._work.failed_openings)

    def _wait_on(self, series: Series, rest: deque[Parked]) -> None:
        if not rest:
            series.looks = 0
            self._drop_if_empty(series)
        elif series.parked is None:
            series.parked = rest
            self._work.resuming.appendleft(series)
        else:
            # The last one that was placed has requested another look-up, so the rest waits behind it.
            rest.extendleft(reversed(series.parked))
            series.parked = rest

    @property
    def has_work(self) -> bool:
        """Whether there is work for the committer (see the ``take_…`` methods)."""
        work = self._work
        waits = self._has_resumptions and not work.is_resuming
        return bool(work.unclaimed or work.ready or work.openings or work.lookups or waits)

    def take_resumption(self) -> bool:
        """Whether the caller must call ``resume`` until nothing is left."""
        work = self._work
        if work.is_resuming or not self._has_resumptions:
            return False
        work.is_resuming = True
        return True

    def take_openings(self) -> list[CollectionBuckets]:
        """Collections whose ``stored_until_ms`` the caller must look up."""
        taken, self._work.openings = self._work.openings, []
        return taken

    def take_lookups(self) -> list[BucketSearch]:
        """Look-ups that the caller must carry out."""
        if not self._work.lookups:
            return []
        taken, self._work.lookups = self._work.lookups, {}
        return [BucketSearch(buckets, tuple(wanted), buckets.generation) for buckets, wanted in taken.items()]

    def take_unclaimed(self) -> list[WriteBatch]:
        """Batches that the caller must claim, because their measurements were moved or parked."""
        if not self._work.unclaimed:
            return []
        taken, self._work.unclaimed = self._work.unclaimed, []
        return taken

    def take_ready(self) -> list[WriteBatch]:
        """Claimed batches that can be prepared now, because the previous batch of their bucket has ended."""
        if not self._work.ready:
            return []
        taken, self._work.ready = self._work.ready, []
        return taken

    # --- the life of a batch -------------------------------------------------------------------------------

    def prepare(self, batch: WriteBatch, batches_in_round: int = 1) -> bytes | None:
        """Number the rows and build the statement (W64); ``None`` while another batch of the bucket is prepared.

        Also ``None`` if the bucket was cleared, has parts and no more may be made, or is left for one that can have
        parts: then the measurements are placed again. ``batches_in_round``: number of batches in the same round.
        """
        bucket = batch.bucket
        if bucket.is_cleared:
            # ``free_cleared`` has not freed it yet.
            self._move(self._forget(bucket))
            return None
        if bucket.prepared is not None:
            bucket.waiting.append(batch)
            self.waited(batch)
            return None
        state = bucket.state
        base = state.committed_rows
        as_part = base > 0 and self.growth.leaves_as_part(bucket, batches_in_round, self._memory.count)
        if bucket.parts is not None and not as_part:
            # Rows in parts are not in the document that an update would change. Its guard is a number of rows, which
            # would fit if other writers had added as many.
            self._move(self._forget(bucket))
            return None
        if base and not bucket.own and self._is_left(bucket, batches_in_round):
            self._move(self._forget(bucket))
            return None
        batch.advance(_PREPARE)
        bucket.batches.pop(batch.key, None)
        bucket.prepared = batch
        if as_part:
            return self.growth.part(bucket, batch)
        batch.base = base
        batch.stored_id = state.bucket_id
        return state.prepare(batch.measurements)

    def _is_left(self, bucket: Bucket, batches_in_round: int) -> bool:
        """Whether the series goes on in a new bucket, instead of this one that was reopened.

        This happens once with each bucket that other processes have stored, so that there are at most twice as many.
        """
        if self._ids.made(bucket.state.bucket_id):
            return False
        return self.growth.ends(bucket, batches_in_round, self._memory.count)

    def finish(self, batches: Sequence[WriteBatch], acknowledgement: Acknowledgement) -> None:
        """The backend has acknowledged these batches (W65): settle the writers, and make waiting batches ready."""
        now_seconds = self._clock.monotonic_seconds()
        self.growth.committed(batches, now_seconds)
        for batch in batches:
            self._finished(batch, now_seconds)
        for batch in batches:
            batch.settle(None, acknowledgement)

    def _finished(self, batch: WriteBatch, now_seconds: float) -> None:
        batch.advance(_FINISH)
        bucket = batch.bucket
        state = bucket.state
        buckets = bucket.series.collection
        count = len(batch.measurements)
        for counters in (buckets.counters, self.totals):
            counters.numCommits += 1
            counters.numMeasurementsCommitted += count
            if batch.base:
                counters.numBucketUpdates += 1
            else:
                counters.numBucketInserts += 1
        bucket.prepared = None
        state.committed(count)
        self.growth.stored(bucket, batch.stored_id, count, now_seconds)
        if state.kept_open_for_large and not bucket.counted_large:
            bucket.counted_large = True
            self._count_both(buckets, "numBucketsKeptOpenDueToLargeMeasurements")
        if bucket.waiting:
            self._work.ready += bucket.waiting
            bucket.waiting = []
        if not bucket.batches:
            if not bucket.memory_bytes:
                self._memory.forget_ended(bucket)
            elif buckets.replaced:
                self._forget(bucket)
            else:
                self._memory.rest(bucket)

    def abort(self, batch: WriteBatch, error: CommandError) -> None:
        """The batch failed: its writers get the error; the bucket's other batches are placed again (W66)."""
        others = self._end(batch)
        batch.settle(error, None)
        self._move(others, is_changed=False)

    def refuse(self, batch: WriteBatch, error: CommandError) -> None:
        """The backend refuses a measurement of the batch, and does not say which (W66).

        A batch of several writers is placed again in two halves. So only the writers of what is refused get the error.
        """
        parts = halves(batch.rows())
        if not parts:
            self.abort(batch, error)
            return
        others = self._end(batch)
        for rows in parts:
            self._halves += 1
            self._place_rows(batch, rows, batch.key._replace(half=self._halves), batch.moves)
        self._move(others, is_changed=False)

    def replace(self, batch: WriteBatch) -> None:
        """The stored bucket has changed: place all measurements again that were staged for it (W67)."""
        others = self._end(batch)
        if batch.doubtful is not None:
            batch.unwanted(BackendUnavailable("the measurement was not written"))
            batch.staged_at_seconds = self._clock.monotonic_seconds()
        self._move([batch, *others])

    def doubt(self, batch: WriteBatch, error: CommandError) -> bool:
        """The outcome is unknown at the deadline: the writers get an error, and the bucket is forgotten.

        Returns whether a writer waits for the outcome; then the batch stays prepared until ``finish``, ``replace``,
        ``abort`` or ``lose``. Measurements of the bucket that were not sent are placed again.
        """
        self._move(self._forget(batch.bucket))
        if batch.doubt(error, self._clock.monotonic_seconds()):
            return True
        self._end(batch)
        return False

    def lose(self, batch: WriteBatch, error: CommandError) -> None:
        """The outcome of a batch will never be known: its statements are lost and not executed again."""
        others = self._end(batch)
        if batch.doubtful is None:
            batch.doubt(error, self._clock.monotonic_seconds())
        for writer in batch.doubtful or ():
            writer.lose(error)
        self._move(others, is_changed=False)

    def give_up(self, bucket: Bucket) -> None:
        """Forget a bucket that rests: it is another process's from now on (``catalog.background.gathering``)."""
        bucket.is_given_up = True
        self._move(self._forget(bucket))

    def absorbed(self, bucket: Bucket, document: bytes | None) -> None:
        """The bucket absorbed others and is this document now; ``None``: the outcome is unknown."""
        buckets, parts = bucket.series.collection, bucket.parts
        if not bucket.is_known:
            return
        try:
            if document is None or parts is None or parts.stored != 1 or not bucket.is_idle:
                raise ValueError("the bucket has got other rows meanwhile")
            state = BucketState.from_document(
                document, buckets.time_field, buckets.meta_field, buckets.span_ms, self.options.limits
            )
        except ValueError:
            self._move(self._forget(bucket))
            return
        bucket.state = state
        parts.absorbed(state.rows)
        self._memory.rest(bucket)
        # A third process may have some of its series.
        self.growth.resting.note(bucket)

    def waited(self, batch: WriteBatch) -> None:
        """A writer waits for a batch that another one commits (W63, W81)."""
        batch.bucket.series.collection.counters.numWaits += 1
        self.totals.numWaits += 1

    def _end(self, batch: WriteBatch) -> list[WriteBatch]:
        """Abort a batch and forget its bucket; returns the bucket's other batches, which are not prepared."""
        batch.advance(BatchEvent.ABORT)
        bucket = batch.bucket
        if bucket.prepared is batch:
            bucket.prepared = None
        others = [each for each in self._forget(bucket) if each is not batch]
        self._memory.forget_ended(bucket)
        return others

    def limit_memory(self, threshold_bytes: int) -> None:
        """Close buckets while all of them are larger, from now on (W48)."""
        self.options = replace(self.options, memory_threshold_bytes=threshold_bytes)

    # --- forgetting ----------------------------------------------------------------------------------------

    def clear(self, namespace: Namespace, bucket_ids: Iterable[bytes] | None = None) -> None:
        """Direct writes have changed these buckets, or the whole collection (W72): never append to them again."""
        buckets = self._collections.get(namespace)
        if buckets is not None and bucket_ids is not None:
            self._clear(buckets, bucket_ids)
        elif buckets is not None:
            self._clear_all(buckets)
            self.free_cleared()

    def drop(self, namespace: Namespace) -> None:
        """The collection was dropped: forget its buckets and counters (W72)."""
        self._drop([namespace])

    def drop_database(self, database: str) -> None:
        """As ``drop`` for every collection of a database."""
        self._drop([each for each in self._collections if each.database == database])

    def _drop(self, namespaces: Sequence[Namespace]) -> None:
        for namespace in namespaces:
            buckets = self._collections.pop(namespace, None)
            if buckets is not None:
                buckets.replaced = True
                self._clear_all(buckets)
        self.free_cleared()

    # --- statistics ----------------------------------------------------------------------------------------

    def known(self, namespace: Namespace) -> CollectionBuckets | None:
        """The state of this collection, if there is one."""
        return self._collections.get(namespace)

    def counters(self, namespace: Namespace) -> Counters:
        """The counters of one collection; zeroes for one that was not used (W80)."""
        buckets = self.known(namespace)
        return Counters() if buckets is None else buckets.counters

    def gauges(self) -> dict[str, int]:
        """The gauges ``numBuckets`` … ``memoryUsage`` (W82)."""
        return self._memory.gauges()
