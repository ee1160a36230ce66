"""Limits the time that look-ups of stored buckets take.

A look-up finds the bucket that another process has stored of a series, so that the series goes on there. Without an
index on the meta field, each query reads all recent buckets of the collection: with thousands of series, their first
rows after a start would wait for a long time. A look-up that is not made costs one more bucket, as it does natively,
where no insert looks for stored buckets. So each collection has an allowance of time for them. Queries spend it, unless
they are cheap for the number of their series, and it is refilled slowly.
"""

from __future__ import annotations

from typing import Final

from catalog.buckets.open_bucket import CollectionBuckets

ALLOWANCE_SECONDS: Final = 0.1
"""What queries may spend at once."""
REFILL: Final = 0.02
"""The share of the time in which look-ups may be in progress in the long run."""
QUERY_SECONDS: Final = 0.0005
SERIES_SECONDS: Final = 0.00002
"""A query is free of charge for this time, and for this time for each of its series, as an insert takes no less."""


class LookupCost:
    """The allowance of one collection."""

    __slots__ = ("_at_seconds", "_left_seconds")

    def __init__(self) -> None:
        self._left_seconds = ALLOWANCE_SECONDS
        self._at_seconds = 0.0

    def is_high(self, now_seconds: float) -> bool:
        """Whether nothing is left of the allowance."""
        return self._left(now_seconds) <= 0.0

    def queried(self, series: int, since_seconds: float, now_seconds: float) -> None:
        """A query for buckets of this number of series has been in progress since then."""
        charge = now_seconds - since_seconds - QUERY_SECONDS - SERIES_SECONDS * series
        # A single slow query, perhaps of a busy server, does not prevent others for long.
        self._left_seconds = max(-ALLOWANCE_SECONDS, self._left(now_seconds) - max(0.0, charge))
        self._at_seconds = now_seconds

    def _left(self, now_seconds: float) -> float:
        return min(ALLOWANCE_SECONDS, self._left_seconds + REFILL * (now_seconds - self._at_seconds))


class LookupCosts:
    """The look-ups of all collections."""

    __slots__ = ("_costs", "_let_go", "_others_found", "_slow")

    def __init__(self) -> None:
        self._let_go: dict[CollectionBuckets, int] = {}
        """By collection: stored buckets that were in memory, and are no longer, start at this time or earlier."""
        self._costs: dict[CollectionBuckets, LookupCost] = {}
        self._others_found: dict[CollectionBuckets, int] = {}
        self._slow: set[CollectionBuckets] = set()
        """Collections that had nothing left after their latest query; ``are_slow`` removes them."""

    def queried(self, buckets: CollectionBuckets, series: int, since_seconds: float, now_seconds: float) -> None:
        """Count a query for buckets of this number of series of the collection."""
        cost = self._costs.setdefault(buckets, LookupCost())
        cost.queried(series, since_seconds, now_seconds)
        if cost.is_high(now_seconds):
            self._slow.add(buckets)

    @property
    def may_be_slow(self) -> bool:
        """Whether they can be slow for some collection."""
        return bool(self._slow)

    def are_slow(self, buckets: CollectionBuckets, now_seconds: float) -> bool:
        """Whether the allowance of this collection is used up."""
        if buckets not in self._slow:
            return False
        if self._costs[buckets].is_high(now_seconds):
            return True
        self._slow.discard(buckets)
        return False

    def let_go(self, buckets: CollectionBuckets, start_ms: int) -> None:
        """A bucket of this process with this start is no longer in memory."""
        self._let_go[buckets] = max(start_ms, self._let_go.get(buckets, start_ms))

    def have_let_go(self, buckets: CollectionBuckets) -> bool:
        """Whether there are such buckets of this process."""
        return buckets in self._let_go

    def may_find_own(self, buckets: CollectionBuckets, time_ms: int) -> bool:
        """Whether such a bucket may cover this time."""
        return buckets in self._let_go and time_ms < self._let_go[buckets] + buckets.span_ms

    def found(self, buckets: CollectionBuckets, time_ms: int) -> None:
        """A bucket was found for this time."""
        if not self.may_find_own(buckets, time_ms):
            self._others_found[buckets] = self._others_found.get(buckets, 0) + 1

    def others_found(self, buckets: CollectionBuckets) -> int:
        """How many buckets of other processes were found, so that no series has returned to them."""
        return self._others_found.get(buckets, 0)

    def forget(self, buckets: CollectionBuckets) -> None:
        """The collection was dropped or replaced."""
        self._let_go.pop(buckets, None)
        self._costs.pop(buckets, None)
        self._others_found.pop(buckets, None)
        self._slow.discard(buckets)
