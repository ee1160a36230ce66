"""Looks up stored buckets that late measurements can be added to (W50).

The backend is asked only if a measurement is so old that a stored bucket may cover it
(``CollectionBuckets.stored_until_ms``). If a look-up fails, the measurement goes to a new bucket.

Without an index on the meta field, a query reads all recent buckets, whether it is about one series or a thousand. So
few queries run at a time, and look-ups that are requested meanwhile share the next one. Each of them gets an equal
share of it, so that those of small inserts do not wait for all those of a large one.
"""

from __future__ import annotations

import asyncio
from collections import deque

from catalog.bson import raw
from catalog.buckets.open_bucket import CollectionBuckets, Series
from catalog.catalog import BucketCatalog, BucketSearch
from catalog.errors import CommandError
from catalog.kernel import BucketState
from catalog.ports import BucketStore, Clock

WANTED_AT_ONCE = 1_000
"""Maximum number of series in one query."""

QUERIES_AT_ONCE = 2
"""Maximum number of concurrent queries of one collection."""

RESULTS_AT_ONCE = 100
"""Maximum number of series whose result is passed to the catalog in one turn of the event loop."""

BYTES_AT_ONCE = 512 * 1024
DOCUMENT_BYTES = 8 * 1024
"""Maximum size of the buckets parsed in one turn; each counts ``DOCUMENT_BYTES`` more than its size."""


class _Waiting:
    """The look-ups of one collection that no query has been sent for, and the number of queries in progress."""

    __slots__ = ("queries", "searches")

    def __init__(self) -> None:
        self.queries = 0
        self.searches: deque[BucketSearch] = deque()

    def next(self, buckets: CollectionBuckets) -> BucketSearch:
        """Remove the series of the next query: an equal share of every look-up, and at least one of the first."""
        searches = self.searches
        wanted: list[tuple[Series, int]] = []
        for left in range(min(len(searches), WANTED_AT_ONCE), 0, -1):
            share = max(1, (WANTED_AT_ONCE - len(wanted)) // left)
            first = searches.popleft()
            wanted += first.wanted[:share]
            if len(first.wanted) > share:
                searches.append(BucketSearch(buckets, first.wanted[share:], first.generation))
        # The query sees what has been stored until now.
        return BucketSearch(buckets, tuple(wanted), buckets.generation)


class Reopening:
    """Carries out the look-ups that the catalog requests."""

    def __init__(self, catalog: BucketCatalog, store: BucketStore, clock: Clock, patience_seconds: float) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._waiting: dict[CollectionBuckets, _Waiting] = {}

    async def open(self, buckets: CollectionBuckets) -> None:
        """Ask the backend for the latest start of any bucket of this collection."""
        stored_until_ms: int | None = None
        try:
            stored_until_ms = await self._store.stored_until_ms(buckets.collection, self._deadline_seconds())
        except CommandError:
            self._failed(buckets)
        finally:
            self._catalog.opened(buckets, stored_until_ms)

    async def look_up(self, lookup: BucketSearch) -> None:
        """Find buckets for the series of ``lookup``, or leave that to the queries that are running."""
        waiting = self._waiting.setdefault(lookup.buckets, _Waiting())
        waiting.searches.append(lookup)
        if waiting.queries == QUERIES_AT_ONCE:
            return
        waiting.queries += 1
        try:
            while waiting.searches:
                await self._look_up(waiting.next(lookup.buckets))
        finally:
            waiting.queries -= 1
            if not waiting.queries:
                del self._waiting[lookup.buckets]
                # None is left, unless this task was cancelled.
                for left in waiting.searches:
                    self._catalog.looked_up(left, None)

    @staticmethod
    def _part(lookup: BucketSearch, start: int, end: int | None = None) -> BucketSearch:
        return BucketSearch(lookup.buckets, lookup.wanted[start:end], lookup.generation)

    async def _look_up(self, lookup: BucketSearch) -> None:
        passed = 0
        try:
            found = await self._found(lookup) if self._is_worth_it(lookup) else None
            while passed < len(lookup.wanted):
                part = self._part(lookup, passed, passed + RESULTS_AT_ONCE)
                passed += RESULTS_AT_ONCE
                self._catalog.looked_up(part, found)
                await asyncio.sleep(0)
        except CommandError:
            self._failed(lookup.buckets)
        finally:
            if passed < len(lookup.wanted):
                self._catalog.looked_up(self._part(lookup, passed), None)

    def _is_worth_it(self, lookup: BucketSearch) -> bool:
        """Whether a series still has to be looked up: queries before this one may have been slow."""
        growth = self._catalog.growth
        return any(growth.has_to_look(lookup.buckets, time_ms) for _, time_ms in lookup.wanted)

    async def _found(self, lookup: BucketSearch) -> dict[bytes, BucketState]:
        buckets = lookup.buckets
        for counters in (buckets.counters, self._catalog.totals):
            counters.numBucketsQueried += len(lookup.wanted)
        times = {series.meta: time_ms for series, time_ms in lookup.wanted}
        since_seconds = self._clock.monotonic_seconds()
        try:
            documents = await self._store.find_reopenable(
                buckets.collection, tuple(times.items()), self._deadline_seconds()
            )
        finally:
            self._catalog.growth.looked_up(buckets, len(lookup.wanted), since_seconds)
        found: dict[bytes, BucketState] = {}
        size_bytes = 0
        for document in documents:
            size_bytes += len(document) + DOCUMENT_BYTES
            if size_bytes > BYTES_AT_ONCE:
                size_bytes = 0
                await asyncio.sleep(0)
            try:
                if _names_repeat_in_summaries(document):
                    continue
                state = BucketState.from_document(
                    document,
                    buckets.time_field,
                    buckets.meta_field,
                    buckets.span_ms,
                    self._catalog.options.limits,
                )
            except ValueError:
                continue
            time_ms = times.get(state.meta)
            if time_ms is None or not state.start_ms <= time_ms < state.start_ms + buckets.span_ms:
                continue
            best = found.get(state.meta)
            if best is None or state.start_ms > best.start_ms:
                found[state.meta] = state
        return found

    def _failed(self, buckets: CollectionBuckets) -> None:
        for counters in (buckets.counters, self._catalog.totals):
            counters.numBucketQueriesFailed += 1

    def _deadline_seconds(self) -> float:
        return self._clock.monotonic_seconds() + self._patience_seconds


def _names_repeat_in_summaries(document: bytes) -> bool:
    """Whether a bucket of a server has objects in its summaries in which a name occurs twice (H10).

    A server that compares such an object with one that replaces it ends its process.
    """
    for _, name, start, end in raw.iter_positions(document):
        if name == b"control":
            return raw.names_repeat(document, start, end)
    return False
