"""Memory used by buckets, and which of them may be dropped (W48, W82)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.parts import Parts, bucket_of_part

ENDED_LIMIT = 20_000
"""Maximum number of buckets that wait for compression; above it, the oldest ones stay uncompressed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A bucket that accepts no more rows and has no batch in progress."""

    buckets: CollectionBuckets
    bucket_id: bytes
    parts: Parts | None


class BucketMemory:
    """All buckets that something still depends on.

    A bucket is *known* while measurements may be staged into it. One that is not known any more stays *under
    way* until its last batch has ended; until then no stored copy of it may be reopened, or two batches of this
    process could claim the same rows.
    """

    __slots__ = ("_by_id", "_full", "_idle", "count", "ended", "size_bytes")

    def __init__(self) -> None:
        self._by_id: dict[bytes, Bucket] = {}
        self._idle: OrderedDict[Bucket, None] = OrderedDict()
        self._full: set[Bucket] = set()
        """Not known any more because they take no more rows, and still under way."""
        self.ended: deque[Ended] = deque(maxlen=ENDED_LIMIT)
        """Those that were full and have ended."""
        self.count = 0
        """Known buckets."""
        self.size_bytes = 0
        """Estimate for the known buckets."""

    def adopt(self, bucket: Bucket) -> None:
        """Record that the bucket is known."""
        self._by_id[bucket.state.bucket_id] = bucket
        self.count += 1
        bucket.memory_bytes = bucket.state.memory_bytes()
        self.size_bytes += bucket.memory_bytes

    def release(self, bucket: Bucket, *, full: bool = False) -> None:
        """The bucket is known no longer; its batches go on by themselves. ``full``: it never takes more rows."""
        if full:
            self._full.add(bucket)
        self._idle.pop(bucket, None)
        if bucket.memory_bytes:
            self.count -= 1
            self.size_bytes -= bucket.memory_bytes
            bucket.memory_bytes = 0
        self.forget_ended(bucket)

    def forget_ended(self, bucket: Bucket) -> None:
        """Nothing remains of a bucket that is not known and has no batch left."""
        if not bucket.is_known and bucket.is_idle and self._by_id.get(bucket.state.bucket_id) is bucket:
            del self._by_id[bucket.state.bucket_id]
            if bucket in self._full:
                self._full.discard(bucket)
                if bucket.parts is not None:
                    bucket.parts.full = True
                self.ended.append(Ended(bucket.series.collection, bucket.state.bucket_id, bucket.parts))

    def rest(self, bucket: Bucket) -> None:
        """A known bucket without batches is weighed and may be let go when memory is short."""
        self._idle[bucket] = None
        weight = bucket.state.memory_bytes()
        self.size_bytes += weight - bucket.memory_bytes
        bucket.memory_bytes = weight

    def wake(self, bucket: Bucket) -> None:
        """The bucket has a batch again."""
        self._idle.pop(bucket, None)

    def longest_idle(self) -> Bucket | None:
        """The known bucket that was not used for longest."""
        return next(iter(self._idle), None)

    def holds(self, bucket_id: bytes) -> bool:
        """Whether this bucket, or the one that this is a part of, is known or under way."""
        return self.get(bucket_id) is not None

    def get(self, bucket_id: bytes) -> Bucket | None:
        """The bucket, known or under way, of which this is the id or that of a part."""
        bucket = self._by_id.get(bucket_id)
        return self._by_id.get(bucket_of_part(bucket_id)) if bucket is None else bucket

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._by_id.values())

    def gauges(self) -> dict[str, int]:
        """``numBuckets`` … ``memoryUsage`` of W82."""
        return {
            "numBuckets": self.count,
            "numOpenBuckets": self.count,
            "numIdleBuckets": len(self._idle),
            "memoryUsage": self.size_bytes,
        }
