"""Measures what look-ups of stored buckets cost.

Without an index on the meta field, each query reads all recent buckets of the collection. With thousands of series,
their first rows after a start wait for a long time. Native inserts need no look-up (``proxy.inserts.small_inserts``).
"""

from __future__ import annotations

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.growth.back_off import BackOff

WINDOW_SECONDS = 2.0
"""The time that is measured before a decision."""
BUSY = 0.5
"""Look-ups are slow if queries were in progress for this share of it,"""
QUERY_SECONDS = 0.01
"""and each took longer."""
FIRST_HOLD_SECONDS = 20.0
LONGEST_HOLD_SECONDS = 320.0


class LookupCost:
    """The look-ups of one collection."""

    __slots__ = ("_busy_seconds", "_hold", "_queries", "_since_seconds")

    def __init__(self) -> None:
        self._since_seconds = 0.0
        self._queries = 0
        self._busy_seconds = 0.0
        self._hold = BackOff(FIRST_HOLD_SECONDS, LONGEST_HOLD_SECONDS)

    def is_high(self, now_seconds: float) -> bool:
        """Whether look-ups were slow not long ago."""
        return self._hold.is_on(now_seconds)

    def queried(self, since_seconds: float, now_seconds: float) -> None:
        """Count a query that has been in progress since then."""
        if since_seconds > self._since_seconds + 2 * WINDOW_SECONDS:
            self._since_seconds = since_seconds
            self._queries, self._busy_seconds = 0, 0.0
        self._queries += 1
        self._busy_seconds += now_seconds - since_seconds
        elapsed_seconds = now_seconds - self._since_seconds
        if elapsed_seconds < WINDOW_SECONDS:
            return
        if self._busy_seconds >= max(BUSY * elapsed_seconds, QUERY_SECONDS * self._queries):
            self._hold.begin(now_seconds)
        self._since_seconds = now_seconds
        self._queries, self._busy_seconds = 0, 0.0


class LookupCosts:
    """The look-ups of all collections."""

    __slots__ = ("_costs", "_let_go", "_slow")

    def __init__(self) -> None:
        self._let_go: dict[CollectionBuckets, int] = {}
        """By collection: stored buckets that were in memory, and are no longer, start at this time or earlier."""
        self._costs: dict[CollectionBuckets, LookupCost] = {}
        self._slow: set[CollectionBuckets] = set()
        """Collections whose look-ups were slow when they were last measured; ``are_slow`` removes them."""

    def queried(self, buckets: CollectionBuckets, since_seconds: float, now_seconds: float) -> None:
        """Count a query for buckets of this collection."""
        cost = self._costs.setdefault(buckets, LookupCost())
        cost.queried(since_seconds, now_seconds)
        if cost.is_high(now_seconds):
            self._slow.add(buckets)

    @property
    def may_be_slow(self) -> bool:
        """Whether they can be slow for some collection."""
        return bool(self._slow)

    def are_slow(self, buckets: CollectionBuckets, now_seconds: float) -> bool:
        """Whether look-ups of this collection were slow not long ago."""
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

    def forget(self, buckets: CollectionBuckets) -> None:
        """The collection was dropped or replaced."""
        self._let_go.pop(buckets, None)
        self._costs.pop(buckets, None)
        self._slow.discard(buckets)
