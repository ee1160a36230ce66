"""What the catalog remembers: buckets, the series they belong to, the collections they belong to.

A *series* is one bucket key (W30): a collection and a normalised meta value. Native keeps one open bucket for
each series; here the buckets that a series left behind for time order stay in memory, as *archived* ones, until
memory is needed, so that devices that report late come back to their buckets (W50).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from catalog.kernel import BucketState, Measurement
from catalog.namespaces import VirtualCollection
from catalog.parts import Parts
from catalog.stats import Counters
from catalog.write_batch import CombineKey, WriteBatch, Writer


class Parked:
    """A measurement on its way into a bucket: it waits for a look at the backend, or has to be placed again."""

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
        """How often it had to leave a bucket that changed underneath."""
        self.looked = False
        """Whether no further look is to be taken for it."""


class Series:
    """One bucket key."""

    __slots__ = ("archived", "collection", "current", "meta", "parked")

    def __init__(self, collection: CollectionBuckets, meta: bytes) -> None:
        self.collection = collection
        self.meta = meta
        self.current: Bucket | None = None
        self.archived: list[Bucket] = []
        self.parked: deque[Parked] | None = None
        """Not ``None`` while stored buckets are looked for: everything staged meanwhile waits behind."""

    @property
    def waits(self) -> bool:
        """Whether stored buckets are looked for."""
        # A property, because a type checker, and so the compiler, takes ``parked`` for what was assigned to it last.
        return self.parked is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return self.current is None and not self.archived and self.parked is None

    def take_archived(self, time_ms: int) -> Bucket | None:
        """The archived bucket with the greatest start that covers ``time_ms``, no longer archived (W50)."""
        span_ms = self.collection.span_ms
        best: Bucket | None = None
        for bucket in self.archived:
            start_ms = bucket.state.start_ms
            if start_ms <= time_ms < start_ms + span_ms and (best is None or start_ms > best.state.start_ms):
                best = bucket
        if best is not None:
            self.archived.remove(best)
        return best


class CollectionBuckets:
    """The buckets of one incarnation of a time-series collection.

    ``stored_until_ms``: no bucket that the backend holds and this object does not starts after that time;
    ``None`` while that is unknown. Later measurements need no look at the backend.
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
        """Those whose measurements wait until ``stored_until_ms`` is found out."""
        self.generation = 0
        """Grows with every direct write: what was read from the backend before it is not believed any more."""
        self.replaced = False
        """Whether the collection was dropped or became another one."""
        self.holds_extended_range = collection.extended_range
        """Whether times may be stored for which bucket ids are not in the order of time (Q12)."""
        self.lanes: tuple[dict[bytes, Any], dict[bytes, Any]] = ({}, {})
        """The committer's queues for this collection, by write concern; the second for what large inserts wait for."""

    @property
    def rounding_seconds(self) -> int:
        """How far the start of a bucket is rounded down (W31)."""
        return self.collection.options.rounding_seconds


class Bucket:
    """One bucket in memory, with its batches."""

    __slots__ = (
        "batches",
        "beside",
        "copies_until_seconds",
        "counted_large",
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
        self.beside = series.collection.series
        """The series of its collection when it came to be; others take their place when all are cleared."""
        self.state = state
        self.batches: dict[CombineKey, WriteBatch] = {}
        """Batches that still take measurements, by who may share them."""
        self.prepared: WriteBatch | None = None
        """At most one (W64)."""
        self.waiting: list[WriteBatch] = []
        """Claimed batches whose turn comes when ``prepared`` has ended."""
        self.memory_bytes = 0
        self.counted_large = False
        self.own = own
        """Whether this process made it, so that the ids next to its own are free for parts."""
        self.parts: Parts | None = None
        """Where it is stored, once it is in more than one document (``catalog.parts``)."""
        self.copies_until_seconds = 0.0
        """Until when a copy of a write that was sent twice may lie on the server; a join would bring it to life."""

    @property
    def is_cleared(self) -> bool:
        """Whether all of its collection was cleared since."""
        return self.beside is not self.series.collection.series

    @property
    def is_known(self) -> bool:
        """Whether measurements may be staged into it."""
        return self.memory_bytes > 0

    @property
    def is_idle(self) -> bool:
        """Whether no measurement in it is uncommitted."""
        return self.prepared is None and not self.batches
