"""The catalog's state: buckets, their series, and the collections of these.

A *series* is one bucket key (W30): a collection and a normalised meta value. A server keeps one open bucket for each
series. Here, buckets that a series has left because of time order stay in memory as *archived* ones until the memory
is needed, so that late measurements still go to their bucket (W50).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from catalog.buckets.stats import Counters
from catalog.buckets.write_batch import CombineKey, WriteBatch, Writer
from catalog.kernel import BucketState, Measurement
from catalog.namespaces import VirtualCollection
from catalog.parts import Parts

MOST_LOOKS = 64
"""Number of look-ups of one series in a row; further measurements that wait begin new buckets, as natively."""


class Parked:
    """A measurement that waits for a look-up, or has to be placed again."""

    __slots__ = ("index", "key", "looked", "measurement", "moves", "staged_at_seconds", "writer")

    def __init__(
        self,
        measurement: Measurement,
        writer: Writer,
        index: int,
        key: CombineKey,
        staged_at_seconds: float,
        moves: int = 0,
    ) -> None:
        self.measurement = measurement
        self.writer = writer
        self.index = index
        self.key = key
        self.staged_at_seconds = staged_at_seconds
        self.moves = moves
        """How often it was moved because its bucket has changed."""
        self.looked = False
        """Whether its look-up has ended, so that there is no other."""


class Series:
    """One bucket key."""

    __slots__ = ("archived", "collection", "current", "looks", "meta", "parked")

    def __init__(self, collection: CollectionBuckets, meta: bytes) -> None:
        self.collection = collection
        self.meta = meta
        self.current: Bucket | None = None
        self.archived: list[Bucket] = []
        """In the order of their starts."""
        self.parked: deque[Parked] | None = None
        """The measurements that wait for the look-up of this series; ``None`` if there is none in progress."""
        self.looks = 0
        """How many look-ups have ended since no measurement waited."""

    def look_ended(self, count: int) -> None:
        """The look-up of the first ``count`` measurements that wait has ended: for these, there is no other."""
        self.looks += 1
        parked = self.parked or ()
        for item in islice(parked, len(parked) if self.looks >= MOST_LOOKS else count):
            item.looked = True

    @property
    def waits(self) -> bool:
        """Whether a look-up is in progress."""
        # A property, because the compiler narrows the type of ``parked`` to that of the last assignment.
        return self.parked is not None

    @property
    def is_empty(self) -> bool:
        """Whether the series has no bucket and no parked measurement."""
        return self.current is None and not self.archived and self.parked is None

    def archive(self, bucket: Bucket) -> None:
        """Keep a bucket for late measurements."""
        self.archived.insert(self._starting_until(bucket.state.start_ms), bucket)

    def take_archived(self, time_ms: int) -> Bucket | None:
        """Remove and return the archived bucket with the latest start that covers ``time_ms`` (W50)."""
        position = self._starting_until(time_ms) - 1
        # All have the same span, so if this one has ended by then, those before it have, too.
        if position < 0 or time_ms >= self.archived[position].state.start_ms + self.collection.span_ms:
            return None
        return self.archived.pop(position)

    def _starting_until(self, time_ms: int) -> int:
        """The number of archived buckets that start at ``time_ms`` or earlier."""
        first, last = 0, len(self.archived)
        while first < last:
            middle = (first + last) // 2
            if self.archived[middle].state.start_ms <= time_ms:
                first = middle + 1
            else:
                last = middle
        return first


class CollectionBuckets:
    """The buckets of one incarnation of a time-series collection.

    ``stored_until_ms``: stored buckets that are not in memory start at this time or earlier; ``None`` while that is
    unknown. Measurements that such a bucket cannot cover need no look-up.
    """

    __slots__ = (
        "collection",
        "counters",
        "generation",
        "holds_extended_range",
        "lanes",
        "meta_field",
        "replaced",
        "series",
        "span_ms",
        "stored_until_ms",
        "time_field",
        "waiting",
    )

    def __init__(self, collection: VirtualCollection, counters: Counters) -> None:
        options = collection.options
        self.collection = collection
        self.counters = counters
        self.time_field = options.time_field.encode()
        self.meta_field = None if options.meta_field is None else options.meta_field.encode()
        self.span_ms = options.max_span_seconds * 1000
        self.series: dict[bytes, Series] = {}
        self.stored_until_ms: int | None = None
        self.waiting: deque[Series] = deque()
        """Series whose measurements wait until ``stored_until_ms`` is known."""
        self.generation = 0
        """Increases with every direct write, so that results of earlier look-ups are discarded."""
        self.replaced = False
        """Whether the collection was dropped or replaced by another incarnation."""
        self.holds_extended_range = collection.extended_range
        """Whether times may be stored for which bucket ids are not in the order of time (Q12)."""
        self.lanes: tuple[dict[bytes, Any], dict[bytes, Any]] = ({}, {})
        """The committer's lanes for this collection, by write concern; the second ones are for large inserts."""

    def may_be_stored(self, time_ms: int) -> bool:
        """Whether the backend may have a bucket that covers this time and is not in memory."""
        until_ms = self.stored_until_ms
        return not self.replaced and (until_ms is None or time_ms < until_ms + self.span_ms)

    def has_fields_of(self, virtual: VirtualCollection) -> bool:
        """Whether the time and meta fields are those of this collection."""
        mine, theirs = self.collection.options, virtual.options
        return mine.time_field == theirs.time_field and mine.meta_field == theirs.meta_field

    def apply_options(self, virtual: VirtualCollection) -> None:
        """Apply a coarser granularity to open buckets at once (W49)."""
        self.collection = virtual
        span_ms = virtual.options.max_span_seconds * 1000
        if span_ms == self.span_ms:
            return
        self.span_ms = span_ms
        for series in self.series.values():
            for bucket in (series.current, *series.archived):
                if bucket is not None:
                    bucket.state.span_ms = span_ms

    @property
    def rounding_seconds(self) -> int:
        """How far the start of a bucket is rounded down (W31)."""
        return self.collection.options.rounding_seconds


class Bucket:
    """One bucket in memory, with its batches."""

    __slots__ = (
        "all_series",
        "batches",
        "copies_until_seconds",
        "counted_large",
        "is_given_up",
        "memory_bytes",
        "own",
        "parts",
        "prepared",
        "series",
        "state",
        "waiting",
    )

    def __init__(self, series: Series, state: BucketState, *, own: bool) -> None:
        self.series = series
        self.all_series = series.collection.series
        """The series of its collection when the bucket was made; clearing the collection replaces them."""
        self.state = state
        self.batches: dict[CombineKey, WriteBatch] = {}
        """Batches that accept measurements."""
        self.prepared: WriteBatch | None = None
        """The batch that is being committed, of which there is at most one (W64)."""
        self.waiting: list[WriteBatch] = []
        """Claimed batches that are prepared when ``prepared`` has ended."""
        self.memory_bytes = 0
        self.counted_large = False
        self.own = own
        """Whether this process made it, so that the ids next to its own are free for parts."""
        self.is_given_up = False
        """Whether it is another process's from now on (``catalog.background.gathering``)."""
        self.parts: Parts | None = None
        """Its stored documents, if it has ever been stored in parts (``catalog.parts``)."""
        self.copies_until_seconds = 0.0
        """Until then, the server may execute a copy of a write that was sent twice; no join is made before."""

    @property
    def is_cleared(self) -> bool:
        """Whether the whole collection has been cleared since the bucket was made."""
        return self.all_series is not self.series.collection.series

    @property
    def is_known(self) -> bool:
        """Whether measurements may be staged into it."""
        return self.memory_bytes > 0

    @property
    def is_idle(self) -> bool:
        """Whether all of its measurements are committed."""
        return self.prepared is None and not self.batches
