"""How buckets grow: by updates in place, or in parts that are joined later (``catalog.parts``).

The catalog asks here how a batch leaves, and tells what became of it; joins tell what they met. Parts pay under load
only, and joins need moments without readers: while there are none, parts would become more and more, and reads of many
small buckets are slow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.parts import Parts, bucket_of_part, part_document
from catalog.ports import Clock
from catalog.write_batch import WriteBatch

LATELY_SECONDS = 15.0
"""Joins that readers do not let in are tried again more often than this."""
LOAD_SECONDS = 2.0
"""What was committed so long ago is nearly forgotten."""
BATCHES_OF_A_ROUND = 32
"""So many batches in a round weigh as much as another round."""


class Load:
    """How much was committed lately: rounds, and batches in them, each weighing less the longer ago it was."""

    __slots__ = ("_at_seconds", "level")

    def __init__(self) -> None:
        self.level = 0.0
        self._at_seconds = 0.0

    def committed(self, batches: int, now_seconds: float) -> None:
        """A round with so many batches."""
        left = max(0.0, 1.0 - (now_seconds - self._at_seconds) / LOAD_SECONDS)
        self.level = self.level * left + 1.0 + batches / BATCHES_OF_A_ROUND
        self._at_seconds = now_seconds


@dataclass(frozen=True, slots=True)
class GrowthOptions:
    """How buckets grow: by updates in place, or in parts that are joined later (``catalog.parts``).

    ``in_parts``: whether the backend can join parts in one atomic step; without it all growth is in place.
    ``sealed``: parts are closed for everybody, because that step does not notice who else writes to them.
    Rows leave as a part when ``batches_in_round`` buckets or more grow in the same round, or when the bucket has
    ``rows_in_place`` rows with them. With more than ``unjoined_limit`` parts that could not be joined, no new ones
    are made; with more than ``ended_limit`` buckets that take no more rows and wait for their join, which cost some
    kilobytes each, no further bucket begins to grow in parts; and none of a collection whose readers have not let
    parts be joined for ``apart_seconds``. ``busy``: how much must have been committed lately (``Load``) before any are
    made; what few write is stored as a server would store it.
    """

    in_parts: bool = False
    sealed: bool = False
    batches_in_round: int = 8
    rows_in_place: int = 64
    unjoined_limit: int = 1_000_000
    ended_limit: int = 20_000
    apart_seconds: float = 30.0
    busy: float = 0.0


class BucketGrowth:
    """Decides for each batch, and knows which buckets are stored in parts."""

    __slots__ = (
        "_apart",
        "_beside_other_proxies",
        "_clock",
        "_grown",
        "_leaving",
        "_load",
        "_may_join",
        "_options",
        "_parted",
        "committed_at_seconds",
        "unjoined",
    )

    def __init__(self, options: GrowthOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._may_join = options.in_parts
        self._load = Load()
        self._beside_other_proxies = False
        self._apart: dict[CollectionBuckets, tuple[float, float]] = {}
        """Since when, and when last, readers did not let the parts of a collection be joined."""
        self._parted: dict[bytes, Bucket] = {}
        self._grown: set[CollectionBuckets] = set()
        """Collections that ever grew in parts, until they are gone."""
        self._leaving: list[bytes] = []
        """Some of these may be of a collection that is gone."""
        self.committed_at_seconds = 0.0
        """When the latest batch was acknowledged."""
        self.unjoined = 0
        """Parts that are stored and not joined yet."""

    # --- the catalog asks ----------------------------------------------------------------------------------

    def leaves_as_part(self, bucket: Bucket, batches_in_round: int, buckets_in_memory: int) -> bool:
        """Whether the next batch of a stored bucket leaves as a part; ``batches_in_round`` leave together."""
        options = self._options
        if not self._may_join or not bucket.own or self.unjoined > options.unjoined_limit:
            return False
        if self._load.level < options.busy:
            return False
        if (self._beside_other_proxies or self._apart) and self._is_hindered(bucket.series.collection):
            return False
        if bucket.parts is not None:
            return True
        if len(self._parted) > buckets_in_memory + options.ended_limit:
            return False
        return batches_in_round >= options.batches_in_round or bucket.state.rows >= options.rows_in_place

    def part(self, bucket: Bucket, batch: WriteBatch) -> bytes:
        """The rows of a batch as a document of their own; the batch is told the id."""
        state, parts = bucket.state, bucket.parts
        if parts is None:
            parts = bucket.parts = Parts(state.bucket_id, self._clock.monotonic_seconds())
        measurements = batch.measurements
        state.fold(measurements)
        batch.base = 0
        batch.stored_id = part_id = parts.next_id()
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

    def holds(self, stored_id: bytes) -> bool:
        """Whether this document belongs to a bucket that is stored in parts."""
        return bucket_of_part(stored_id) in self._parted

    # --- the catalog tells ---------------------------------------------------------------------------------

    def committed(self, batches: int, now_seconds: float) -> None:
        """A round with so many batches was acknowledged."""
        self._load.committed(batches, now_seconds)

    def stored(self, bucket: Bucket, part_id: bytes, now_seconds: float) -> None:
        """A batch of this bucket was acknowledged as the document ``part_id``."""
        parts = bucket.parts
        if parts is None or part_id == bucket.state.bucket_id:
            return
        self.committed_at_seconds = now_seconds
        parts.committed(part_id, now_seconds)
        self.unjoined += 1
        self._parted[bucket.state.bucket_id] = bucket
        self._grown.add(bucket.series.collection)

    def gone(self, buckets: CollectionBuckets) -> None:
        """Of a collection that is gone nothing is left to join, which ``let_go`` sees to."""
        if buckets in self._grown:
            self._grown.discard(buckets)
            self._leaving = list(self._parted)

    @property
    def lets_go(self) -> bool:
        """Whether ``let_go`` has to be called."""
        return bool(self._leaving)

    def let_go(self, limit: int) -> bool:
        """Look at so many buckets whether their collection is gone; whether there are more to look at.

        Joins under way find out themselves.
        """
        leaving = self._leaving
        while leaving and limit > 0:
            limit -= 1
            bucket_id = leaving.pop()
            bucket = self._parted.get(bucket_id)
            parts = None if bucket is None or not bucket.series.collection.replaced else bucket.parts
            if parts is not None and not parts.joining:
                del self._parted[bucket_id]
                self.unjoined -= parts.stored - 1
                # A batch under way may still add to them.
                parts.joined(parts.last_id, parts.stored)
        return bool(leaving)

    # --- joins tell ----------------------------------------------------------------------------------------

    @property
    def parted(self) -> Collection[Bucket]:
        """Buckets that are stored in parts, in the order in which they came to be."""
        return self._parted.values()

    def joined(self, bucket: Bucket, parts: Parts, last_id: bytes, count: int) -> None:
        """The ``count`` parts up to ``last_id`` are one document now, or are left as they are for good."""
        self.unjoined -= count - 1
        parts.joined(last_id, count)
        self.settled(bucket)

    def settled(self, bucket: Bucket) -> None:
        """A bucket that is one document leaves the list until it is in parts again."""
        if bucket.parts is not None and bucket.parts.stored <= 1:
            self._parted.pop(bucket.state.bucket_id, None)

    def tried(self, buckets: CollectionBuckets, *, alone: bool) -> None:
        """Parts of this collection were to be joined: whether there was a moment without readers."""
        if alone:
            self._apart.pop(buckets, None)
            return
        now_seconds = self._clock.monotonic_seconds()
        for each in [each for each in self._apart if self._is_over(each, now_seconds)]:
            del self._apart[each]
        first_seconds, _ = self._apart.get(buckets, (now_seconds, now_seconds))
        self._apart[buckets] = first_seconds, now_seconds

    def refused(self) -> bool:
        """The backend does not let parts be joined: no further ones are made. Whether that is news."""
        was, self._may_join = self._may_join, False
        return was

    # --- the process tells ---------------------------------------------------------------------------------

    @property
    def is_beside_other_proxies(self) -> bool:
        """Whether other proxies use the backend. They would meet joins: each knows its own readers only."""
        return self._beside_other_proxies

    def beside_other_proxies(self, *, are_there: bool) -> bool:
        """Other proxies use the backend, or none. Whether that is news."""
        was, self._beside_other_proxies = self._beside_other_proxies, are_there
        return was is not are_there

    @property
    def is_in_parts(self) -> bool:
        """Whether buckets grow in parts under load."""
        return self._may_join and not self._beside_other_proxies

    def _is_hindered(self, buckets: CollectionBuckets) -> bool:
        """Whether joins of this collection would be met by others, or have not been possible for long."""
        if self._beside_other_proxies:
            return True
        if buckets not in self._apart:
            return False
        if self._is_over(buckets, self._clock.monotonic_seconds()):
            del self._apart[buckets]
            return False
        first_seconds, last_seconds = self._apart[buckets]
        return last_seconds - first_seconds >= self._options.apart_seconds

    def _is_over(self, buckets: CollectionBuckets, now_seconds: float) -> bool:
        """Whether joins of this collection have not been tried for long."""
        return self._apart[buckets][1] < now_seconds - LATELY_SECONDS
