"""Decides how buckets grow: by updates in place, or in parts that are joined later (``catalog.parts``).

The catalog asks how to write each batch and reports the result; joins report theirs. Parts are worthwhile under load
only. Joins need moments without readers; without these, no further parts are made, because reads of many small buckets
are slow. Buckets of very many columns are the exception: each append to them is expensive, so load does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from catalog.buckets.open_bucket import Bucket, CollectionBuckets
from catalog.buckets.resting import Rested, Resting
from catalog.buckets.write_batch import WriteBatch
from catalog.growth.backlog import BEHIND_SECONDS, FEWEST_BEHIND, FULL, Backlog
from catalog.growth.join_obstacles import JoinObstacles
from catalog.growth.lookup_cost import LookupCosts
from catalog.growth.scatter import Scatter
from catalog.growth.segments import Segments
from catalog.parts import TOGETHER, Parts, Pending, bucket_key, in_segment, part_document
from catalog.ports import Clock, IdSource

LOAD_SECONDS = 2.0
"""The time after which a commit no longer counts as load."""
BEGINNING = 0.1
"""At this share of the load at which buckets grow in parts, it is rising, while look-ups of buckets hold it up."""
BATCHES_OF_A_ROUND = 32
"""This number of batches in a round counts as much as one more round."""
REWRITING_OF_A_ROUND = 2_000
"""So does this number of rows that are appended, each times the rows that its bucket has.

A server compares the name of each appended field with those of all rows before it.
"""
WIDE_COLUMNS = 300
"""From this number of columns on, buckets grow in parts without load, too.

An update of a thousand columns takes a server several times as long as the insert of a new bucket with them.
"""
JOIN_SECONDS = 30e-6
SEALED_JOIN_SECONDS = 50e-6
"""What the server's processor needs to join one part in a transaction, and on a standalone.

``python -m bench.join_cost`` measures it.
"""


class Load:
    """The recent load: rounds, their batches and what they rewrite; each counts less the longer ago it was."""

    __slots__ = ("_at_seconds", "batches", "level")

    def __init__(self) -> None:
        self.level = 0.0
        self.batches = 0.0
        """The most of a recent round."""
        self._at_seconds = 0.0

    def committed(self, batches: int, now_seconds: float, rewriting: int = 0) -> None:
        """Count a round with this number of batches; ``rewriting``: see ``REWRITING_OF_A_ROUND``."""
        left = max(0.0, 1.0 - (now_seconds - self._at_seconds) / LOAD_SECONDS)
        self.level = self.level * left + 1.0 + batches / BATCHES_OF_A_ROUND + rewriting / REWRITING_OF_A_ROUND
        self.batches = max(self.batches * left, batches)
        self._at_seconds = now_seconds

    def is_on(self, now_seconds: float) -> bool:
        """Whether the level is that of now, and not of some time ago."""
        return now_seconds - self._at_seconds < LOAD_SECONDS


@dataclass(frozen=True, slots=True)
class GrowthOptions:
    """When buckets grow in parts.

    ``in_parts``: whether the backend can join parts in one atomic step; otherwise all growth is in place.
    ``sealed``: parts are closed (``control.closed``), because that step does not detect other writers.
    Rows are written as a part if ``batches_in_round`` batches or more leave in the same round, or if the bucket then
    has ``rows_in_place`` rows. No parts are made while there are more than ``unjoined_limit`` unjoined ones, for a
    collection whose readers have prevented joins for ``blocked_seconds``, or while ``Load`` is below ``busy``; rows of
    buckets of ``WIDE_COLUMNS`` do not need load or company.
    While more than ``ended_limit`` buckets wait for their last join, which use some kilobytes each, no further bucket
    begins to grow in parts. A segment (``catalog.growth.segments``) ends when it has ``segment_parts``, which a
    server's cache holds until they are joined, or ``segment_seconds`` after its first part, so that they are joined in
    time. ``runs_together``: how many runs of about the same size become one (``catalog.parts``).
    ``behind_parts``, ``behind_seconds``, ``full_parts``: see ``catalog.growth.backlog``. ``rest_seconds``: see
    ``catalog.buckets.resting``.
    """

    in_parts: bool = False
    sealed: bool = False
    batches_in_round: int = 8
    rows_in_place: int = 2
    unjoined_limit: int = 1_000_000
    ended_limit: int = 20_000
    blocked_seconds: float = 30.0
    busy: float = 0.0
    segment_parts: int = 50_000
    segment_seconds: float = 5.0
    runs_together: int = TOGETHER
    behind_parts: int = FEWEST_BEHIND
    behind_seconds: float = BEHIND_SECONDS
    full_parts: int = FULL
    rest_seconds: float = 3.0


class BucketGrowth:
    """Decides for each batch, and records which buckets are stored in parts."""

    __slots__ = (
        "_clock",
        "_grown",
        "_leaving",
        "_load",
        "_lookups",
        "_options",
        "_parted",
        "_scatters",
        "backlog",
        "obstacles",
        "resting",
        "segments",
    )

    def __init__(
        self,
        options: GrowthOptions,
        clock: Clock,
        ids: IdSource,
        find: Callable[[bytes], Bucket | None],
    ) -> None:
        """``find`` gives the bucket in memory to which a document belongs."""
        self._options = options
        self._clock = clock
        self._load = Load()
        self.segments = Segments(ids, options.segment_parts, options.segment_seconds)
        self._parted: dict[bytes, Bucket] = {}
        """By ``bucket_key``."""
        self._grown: dict[CollectionBuckets, int] = {}
        """How many parts were made in each collection that has ever grown in parts, until it is dropped or replaced."""
        self._leaving: list[bytes] = []
        """Keys of buckets whose collection may have been dropped, for ``forget_dropped``."""
        self._scatters: dict[CollectionBuckets, Scatter] = {}
        """Collections that have grown while parts were not possible."""
        self._lookups = LookupCosts()
        self.backlog = Backlog(options.behind_parts, options.full_parts, options.behind_seconds)
        self.resting = Resting(find, options.rest_seconds)
        self.obstacles = JoinObstacles(clock, may_join=options.in_parts, blocked_seconds=options.blocked_seconds)

    @property
    def unjoined(self) -> int:
        """The number of documents that are stored and not joined yet, beyond one for each bucket."""
        return self.backlog.unjoined

    @property
    def committed_at_seconds(self) -> float:
        """When the latest part was acknowledged."""
        return self.segments.stored_at_seconds

    # --- the catalog asks ----------------------------------------------------------------------------------

    def leaves_as_part(self, bucket: Bucket, batches_in_round: int, buckets_in_memory: int) -> bool:
        """Whether to write the next batch of a stored bucket as a part; ``batches_in_round``: number in its round."""
        return bucket.own and self._pays(bucket, batches_in_round, buckets_in_memory)

    def ends(self, bucket: Bucket, batches_in_round: int, buckets_in_memory: int) -> bool:
        """Whether the series should go on in a bucket of this process, because this one cannot grow in parts.

        The ids next to its own are not free. Appending to it would cost more with each row.
        """
        return not bucket.own and self._pays(bucket, batches_in_round, buckets_in_memory)

    def _pays(self, bucket: Bucket, batches_in_round: int, buckets_in_memory: int) -> bool:
        options, state = self._options, bucket.state
        level = self._load.level + batches_in_round / BATCHES_OF_A_ROUND
        if (level < options.busy and state.columns < WIDE_COLUMNS) or self._is_hindered(bucket.series.collection):
            return False
        if bucket.parts is not None:
            return True
        if len(self._parted) > buckets_in_memory + options.ended_limit:
            return False
        if batches_in_round >= options.batches_in_round or state.rows >= options.rows_in_place:
            return True
        return state.columns >= WIDE_COLUMNS

    def _is_hindered(self, buckets: CollectionBuckets) -> bool:
        """Whether no parts may be made for now: too many wait to be joined, or these cannot be joined."""
        if self.unjoined > self._options.unjoined_limit:
            return True
        return self.obstacles.may_be_there and self.obstacles.are_there(buckets)

    def has_to_look(self, buckets: CollectionBuckets, time_ms: int) -> bool:
        """Whether a measurement may go to a stored bucket that has to be looked up.

        Buckets of other processes are not looked up while look-ups are slow, nor under load, where they would be left.
        """
        if not buckets.may_be_stored(time_ms):
            return False
        if self._lookups.may_find_own(buckets, time_ms):
            return True
        if self._lookups.may_be_slow and self._lookups.are_slow(buckets, self._clock.monotonic_seconds()):
            return False
        return not self._leaves_others(buckets)

    def _leaves_others(self, buckets: CollectionBuckets) -> bool:
        """Whether a series would soon leave a bucket that another process has stored (``ends``), if it was found."""
        options, load = self._options, self._load
        # Where joins are expensive, it is worth while to find them.
        if options.sealed or load.level < BEGINNING * options.busy or load.batches < options.batches_in_round:
            return False
        return load.is_on(self._clock.monotonic_seconds()) and not self._is_hindered(buckets)

    def parts_of(self, bucket: Bucket) -> Parts:
        """The stored documents of a bucket, of which there is one if it has never had parts."""
        state, parts = bucket.state, bucket.parts
        if parts is None:
            parts = bucket.parts = Parts(state.bucket_id, state.committed_rows, self._clock.monotonic_seconds())
        return parts

    def part(self, bucket: Bucket, batch: WriteBatch) -> bytes:
        """The rows of a batch as a part; sets the batch's ``stored_id``."""
        state, parts = bucket.state, self.parts_of(bucket)
        measurements = batch.measurements
        state.fold(measurements)
        batch.base = 0
        batch.stored_id = part_id = parts.next_id(in_segment(state.bucket_id, self.segments.current))
        buckets = bucket.series.collection
        return part_document(
            part_id,
            buckets.time_field,
            buckets.meta_field,
            bucket.series.meta,
            state.start_ms,
            measurements,
            sealed=self._options.sealed,
        )

    def is_scattered(self, buckets: CollectionBuckets) -> bool:
        """Whether the catalog's ways are expensive for single rows of many series.

        Joins are behind, or rows have to wait for slow look-ups, or growth in place would rewrite a bucket for about
        each row and parts are not possible.
        """
        if self.backlog.is_behind:
            return True
        now_seconds = self._clock.monotonic_seconds()
        if self._lookups.are_slow(buckets, now_seconds) and self._lookups.have_let_go(buckets):
            return True
        scatter = self._scatters.get(buckets)
        return scatter is not None and scatter.holds(now_seconds) and self.obstacles.are_there(buckets)

    def holds(self, stored_id: bytes) -> bool:
        """Whether this document belongs to a bucket that is stored in parts."""
        return bucket_key(stored_id) in self._parted

    def rested(self, now_seconds: float, series_key: bytes) -> list[Rested]:
        """Some buckets that rest, of which other processes were not told; from now on, these are remembered.

        ``series_key``: of the digests of series (``catalog.buckets.resting``).
        """
        return self.resting.take(now_seconds, self.committed_at_seconds, series_key)

    # --- the catalog tells ---------------------------------------------------------------------------------

    def committed(self, batches: Sequence[WriteBatch], now_seconds: float) -> None:
        """A command with these batches, which are of one collection, was acknowledged."""
        rewriting = 0
        for batch in batches:
            rewriting += batch.base * len(batch.measurements)
        self._load.committed(len(batches), now_seconds, rewriting)
        if self.obstacles.may_be_there and batches:
            buckets = batches[0].bucket.series.collection
            if buckets.replaced or not self.obstacles.are_there(buckets):
                return
            scatter = self._scatters.get(buckets)
            if scatter is None:
                scatter = self._scatters[buckets] = Scatter(now_seconds)
            scatter.committed(len(batches), sum(len(batch.measurements) for batch in batches), now_seconds)

    def let_go(self, bucket: Bucket) -> None:
        """This bucket is no longer in memory, but stored."""
        buckets = bucket.series.collection
        # One of another process is left under load, found or not (``ends``).
        if bucket.own and not bucket.is_given_up and not buckets.replaced:
            self._lookups.let_go(buckets, bucket.state.start_ms)

    def looked_up(self, buckets: CollectionBuckets, series: int, since_seconds: float) -> None:
        """A query for stored buckets of this number of series has ended."""
        if not buckets.replaced:
            self._lookups.queried(buckets, series, since_seconds, self._clock.monotonic_seconds())

    def found(self, buckets: CollectionBuckets, time_ms: int) -> None:
        """A stored bucket was found for this time, and goes on."""
        self._lookups.found(buckets, time_ms)

    def stored(self, bucket: Bucket, part_id: bytes, rows: int, now_seconds: float) -> None:
        """A batch of this bucket was acknowledged as the document ``part_id`` with this number of ``rows``."""
        parts = bucket.parts
        if parts is None or part_id == bucket.state.bucket_id:
            if rows == bucket.state.committed_rows:
                self.resting.note(bucket)
            return
        parts.committed(part_id, rows, now_seconds)
        self.backlog.stored()
        self.segments.stored(now_seconds)
        self._parted[bucket_key(part_id)] = bucket
        buckets = bucket.series.collection
        self._grown[buckets] = self._grown.get(buckets, 0) + 1

    def gone(self, buckets: CollectionBuckets) -> None:
        """The collection was dropped or replaced: ``forget_dropped`` will forget its parts."""
        self._scatters.pop(buckets, None)
        self._lookups.forget(buckets)
        if self._grown.pop(buckets, 0):
            self._leaving = list(self._parted)

    @property
    def has_dropped(self) -> bool:
        """Whether ``forget_dropped`` has to be called."""
        return bool(self._leaving)

    def forget_dropped(self, limit: int) -> bool:
        """Check up to ``limit`` buckets and forget those whose collection was dropped; whether some are left.

        Joins in progress detect a dropped collection themselves.
        """
        leaving = self._leaving
        while leaving and limit > 0:
            limit -= 1
            key = leaving.pop()
            bucket = self._parted.get(key)
            if bucket is None or not bucket.series.collection.replaced:
                continue
            parts = bucket.parts
            if parts is not None and not parts.joining:
                del self._parted[key]
                self.backlog.removed(parts.stored - 1, parts.fresh)
                # A batch in progress may still add to them.
                parts.joined(parts.pending(everything=True))
        return bool(leaving)

    # --- joins tell ----------------------------------------------------------------------------------------

    @property
    def parted(self) -> Collection[Bucket]:
        """Buckets that are stored in parts, in the order of their first part."""
        return self._parted.values()

    def joined(self, bucket: Bucket, parts: Parts, pending: Pending, joined_id: bytes | None = None) -> None:
        """These documents are one now (see ``Parts.joined``), or will never be joined."""
        self.backlog.removed(pending.documents - 1, pending.parts)
        parts.joined(pending, joined_id)
        self.settled(bucket)

    def settled(self, bucket: Bucket) -> None:
        """Remove a bucket that is one document from the list of buckets in parts."""
        if bucket.parts is not None and bucket.parts.stored <= 1:
            self._parted.pop(bucket_key(bucket.state.bucket_id), None)
            self.resting.note(bucket)

    def begin_join(self, bucket: Bucket) -> None:
        """The bucket is being joined with others, and must not be joined otherwise meanwhile."""
        self.parts_of(bucket).joining = True

    def end_join(self, bucket: Bucket) -> None:
        """It may be joined again."""
        self.parts_of(bucket).joining = False

    @property
    def runs_together(self) -> int:
        """How many runs of about the same size become one."""
        return self._options.runs_together

    @property
    def is_sealed(self) -> bool:
        """Whether parts are closed (``GrowthOptions``)."""
        return self._options.sealed

    # --- the process asks ----------------------------------------------------------------------------------

    def join_seconds(self, buckets: CollectionBuckets) -> float:
        """What the joins of all parts made so far in this collection cost the server, whether due or done."""
        each_seconds = SEALED_JOIN_SECONDS if self._options.sealed else JOIN_SECONDS
        return self._grown.get(buckets, 0) * each_seconds

    def others_found(self, buckets: CollectionBuckets) -> int:
        """How many buckets of other processes were found and go on."""
        return self._lookups.others_found(buckets)

    @property
    def is_in_parts(self) -> bool:
        """Whether buckets grow in parts under load."""
        return not self.obstacles.are_everywhere

    @property
    def may_be_scattered(self) -> bool:
        """Whether ``is_scattered`` can be true for some collection."""
        return self.backlog.is_behind or self._lookups.may_be_slow or self.obstacles.may_be_there
