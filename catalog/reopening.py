"""Looks up stored buckets that late measurements can be added to (W50).

The backend is asked only if a measurement is so old that a stored bucket may cover it
(``CollectionBuckets.stored_until_ms``). Look-ups that are requested at the same moment share one query. If a look-up
fails, the measurement goes to a new bucket.
"""

from __future__ import annotations

import asyncio

from catalog.catalog import BucketCatalog, BucketSearch
from catalog.errors import CommandError
from catalog.kernel import BucketState
from catalog.open_bucket import CollectionBuckets
from catalog.ports import BucketStore, Clock

WANTED_AT_ONCE = 1_000
"""Maximum number of series in one query."""

RESULTS_AT_ONCE = 100
"""Maximum number of series whose result is passed to the catalog in one turn of the event loop."""

BYTES_AT_ONCE = 512 * 1024
DOCUMENT_BYTES = 8 * 1024
"""Maximum size of the buckets parsed in one turn; each counts ``DOCUMENT_BYTES`` more than its size."""


class Reopening:
    """Carries out the look-ups that the catalog requests."""

    def __init__(self, catalog: BucketCatalog, store: BucketStore, clock: Clock, patience_seconds: float) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._patience_seconds = patience_seconds

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
        """Find buckets for the series of ``lookup``."""
        for start in range(0, len(lookup.wanted), WANTED_AT_ONCE):
            await self._look_up(self._part(lookup, start, start + WANTED_AT_ONCE))

    @staticmethod
    def _part(lookup: BucketSearch, start: int, end: int | None = None) -> BucketSearch:
        return BucketSearch(lookup.buckets, lookup.wanted[start:end], lookup.generation)

    async def _look_up(self, lookup: BucketSearch) -> None:
        passed = 0
        try:
            found = await self._found(lookup)
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

    async def _found(self, lookup: BucketSearch) -> dict[bytes, BucketState]:
        buckets = lookup.buckets
        for counters in (buckets.counters, self._catalog.totals):
            counters.numBucketsQueried += len(lookup.wanted)
        times = {series.meta: time_ms for series, time_ms in lookup.wanted}
        documents = await self._store.find_reopenable(
            buckets.collection, tuple(times.items()), self._deadline_seconds()
        )
        found: dict[bytes, BucketState] = {}
        size_bytes = 0
        for document in documents:
            size_bytes += len(document) + DOCUMENT_BYTES
            if size_bytes > BYTES_AT_ONCE:
                size_bytes = 0
                await asyncio.sleep(0)
            try:
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
