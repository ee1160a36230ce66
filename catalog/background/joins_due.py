"""Which buckets are to be joined now, in the order of their ids, so that neighbours are joined together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from catalog.buckets.open_bucket import Bucket
from catalog.growth.growth import BucketGrowth
from catalog.parts import SEGMENT_AT, bucket_key
from catalog.ports import Clock

PAUSE: Final = 10
"""The pause after a check of all buckets in parts is this many times as long as the check."""
LOOKED_AT_ONCE: Final = 200


def place_of(bucket: Bucket) -> bytes:
    """Where a bucket lies among the others of its process, in each segment."""
    return bucket_key(bucket.state.bucket_id)


def neighbours(one: Bucket, other: Bucket) -> bool:
    """Whether two buckets have the same start, so that their ids are close to each other."""
    same_collection = one.series.collection is other.series.collection
    return same_collection and one.state.bucket_id[:SEGMENT_AT] == other.state.bucket_id[:SEGMENT_AT]


class JoinsDue:
    """An iterator over the buckets that are due. It is filled by ``look``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: deque[Bucket] = deque()
        self._sorted: Iterator[Bucket] = iter(())
        self._ended = 0
        """The number of segments that had ended."""
        self._not_before_seconds = 0.0

    def __iter__(self) -> Iterator[Bucket]:
        return self

    def __next__(self) -> Bucket:
        return self._left.popleft() if self._left else next(self._sorted)

    def put_back(self, buckets: Sequence[Bucket]) -> None:
        """There was no time for these."""
        self._left.extendleft(reversed(buckets))

    async def look(self, growth: BucketGrowth, is_due: Callable[[Bucket], bool]) -> None:
        """Check all buckets, unless some are left or that was done just now; yields to the event loop meanwhile."""
        now_seconds = self._clock.monotonic_seconds()
        is_new = growth.segments.ended != self._ended
        if self._has_some() or not (is_new or now_seconds >= self._not_before_seconds):
            return
        self._ended = growth.segments.ended
        parted = list(growth.parted)
        pieces: list[list[Bucket]] = []
        for start in range(0, len(parted), LOOKED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            piece = [bucket for bucket in parted[start : start + LOOKED_AT_ONCE] if is_due(bucket)]
            pieces.append(sorted(piece, key=place_of))
        self._sorted = merge(*pieces, key=place_of)
        done_seconds = self._clock.monotonic_seconds()
        self._not_before_seconds = done_seconds + PAUSE * (done_seconds - now_seconds)

    def _has_some(self) -> bool:
        if not self._left:
            self._left.extend(islice(self._sorted, 1))
        return bool(self._left)
