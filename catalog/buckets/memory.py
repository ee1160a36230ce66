"""Memory used by buckets, and which of them may be dropped (W48, W82)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.buckets.open_bucket import Bucket, CollectionBuckets
from catalog.parts import Parts, bucket_key

ENDED_LIMIT = 20_000
"""Maximum number of buckets that wait for compression; above it, the oldest ones stay uncompressed."""


@dataclass(frozen=True, slots=True)
class EndedBucket:
    """A bucket that accepts no more rows and has no batch in progress."""

    buckets: CollectionBuckets
    bucket_id: bytes
    parts: Parts | None


class BucketMemory:
    """All buckets in memory.

    A bucket is *known* while measurements may be staged in it. One that is no longer known stays in memory until its
    last batch has ended. Until then, its stored document must not be reopened, because two batches of this process
    could use the same row numbers.
    """

    __slots__ = ("_by_id", "_full", "_idle", "archived", "count", "ended", "size_bytes")

    def __init__(self) -> None:
        self._by_id: dict[bytes, Bucket] = {}
        """Those of this process by ``bucket_key``, because their parts have other ids; others by their id."""
        self._idle: OrderedDict[Bucket, None] = OrderedDict()
        self._full: set[Bucket] = set()
        """Buckets that accept no more rows, and whose last batch has not ended."""
        self.ended: deque[EndedBucket] = deque(maxlen=ENDED_LIMIT)
        """Full buckets whose last batch has ended."""
        self.count = 0
        """Number of known buckets."""
        self.archived = 0
        """Number of those that their series has left (``Series.archived``)."""
        self.size_bytes = 0
        """Estimated size of the known buckets."""

    def adopt(self, bucket: Bucket) -> None:
        """Record that the bucket is known."""
        self._by_id[_key(bucket)] = bucket
        self.count += 1
        bucket.memory_bytes = bucket.state.memory_bytes()
        self.size_bytes += bucket.memory_bytes

    def release(self, bucket: Bucket, *, full: bool = False) -> None:
        """The bucket is no longer known; its batches continue. ``full``: it accepts no more rows."""
        if full:
            self._full.add(bucket)
        self._idle.pop(bucket, None)
        if bucket.memory_bytes:
            self.count -= 1
            self.size_bytes -= bucket.memory_bytes
            bucket.memory_bytes = 0
        self.forget_ended(bucket)

    def forget_ended(self, bucket: Bucket) -> None:
        """Remove a bucket that is not known and has no batch in progress."""
        if not bucket.is_known and bucket.is_idle and self._by_id.get(_key(bucket)) is bucket:
            del self._by_id[_key(bucket)]
            if bucket in self._full:
                self._full.discard(bucket)
                if bucket.parts is not None:
                    bucket.parts.full = True
                self.ended.append(EndedBucket(bucket.series.collection, bucket.state.bucket_id, bucket.parts))

    def rest(self, bucket: Bucket) -> None:
        """A known bucket has no batches: estimate its size; it may be closed when memory is short."""
        self._idle[bucket] = None
        weight = bucket.state.memory_bytes()
        self.size_bytes += weight - bucket.memory_bytes
        bucket.memory_bytes = weight

    def wake(self, bucket: Bucket) -> None:
        """The bucket has a batch again."""
        self._idle.pop(bucket, None)

    def longest_idle(self) -> Bucket | None:
        """The known bucket that was idle longest."""
        return next(iter(self._idle), None)

    def holds(self, bucket_id: bytes) -> bool:
        """Whether the bucket with this id, or with a part of this id, is in memory."""
        return self.get(bucket_id) is not None

    def get(self, bucket_id: bytes) -> Bucket | None:
        """The bucket in memory with this id, or with a part of this id."""
        bucket = self._by_id.get(bucket_id)
        return self._by_id.get(bucket_key(bucket_id)) if bucket is None else bucket

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._by_id.values())

    def gauges(self) -> dict[str, int]:
        """The gauges ``numBuckets`` … ``memoryUsage`` (W82)."""
        return {
            "numBuckets": self.count,
            "numOpenBuckets": self.count,
            "numIdleBuckets": len(self._idle),
            "memoryUsage": self.size_bytes,
        }


def _key(bucket: Bucket) -> bytes:
    bucket_id = bucket.state.bucket_id
    return bucket_key(bucket_id) if bucket.own else bucket_id
