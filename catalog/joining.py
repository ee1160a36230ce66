"""Joins the parts of buckets into one document each, in the background (``catalog.parts``).

A bucket's parts are joined when there are many, when the bucket takes no more, and whenever there is nothing
better to do. Each join is one atomic step of the backend, but a reader whose cursor stands between two parts would
find the rest of them gone, or see the rows again: so a join needs a moment in which no reader of the collection is
under way (the port ``Readers``), and waits for one. While there is none for long, buckets grow in place again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from catalog.catalog import BucketCatalog, Growth
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.parts import join
from catalog.ports import BucketStore, Clock

UNAUTHORIZED = 13
SWEPT_SPANS = 2
"""How far back, in bucket spans, parts that a killed process left are looked for."""


class Readers(Protocol):
    """Who reads buckets at the moment."""

    def kept_out(self, namespace: Namespace) -> AbstractAsyncContextManager[bool]:
        """Keep new readers of the collection waiting; true when none is under way. Short, bounded in time."""
        ...


@dataclass(frozen=True, slots=True)
class JoiningOptions:
    """``many``: so many parts are joined at once; ``idle_seconds``: after so long without commits all are.

    ``at_once``: buckets joined while readers wait; ``workers``: of them side by side.
    """

    many: int = 64
    idle_seconds: float = 2.0
    interval_seconds: float = 0.1
    at_once: int = 32
    workers: int = 2
    patience_seconds: float = 10.0


class JoiningMetrics:
    """Plain numbers."""

    __slots__ = ("documents_joined", "failures", "joins", "readers_in_the_way")

    def __init__(self) -> None:
        self.joins = 0
        self.documents_joined = 0
        self.failures = 0
        self.readers_in_the_way = 0


class Joining:
    """The background work."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        readers: Readers,
        options: JoiningOptions,
        report: Callable[[BaseException], None],
    ) -> None:
        """``report`` is told of errors that nobody else can be told of."""
        self.metrics = JoiningMetrics()
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._options = options
        self._report = report
        self._swept: WeakSet[CollectionBuckets] = WeakSet()

    async def run(self) -> None:
        """For ever: join what is due."""
        while True:
            await asyncio.sleep(self._options.interval_seconds)
            for buckets in self._catalog.collections():
                if buckets.stored_until_ms is not None and buckets not in self._swept:
                    self._swept.add(buckets)
                    await self._sweep(buckets)
            await self.join_due()

    async def join_due(self, *, everything: bool = False) -> None:
        """One pass: join what is due now, or all that is in parts."""
        due: dict[Namespace, list[Bucket]] = {}
        now_seconds = self._clock.monotonic_seconds()
        for bucket in list(self._catalog.parted):
            if self._is_due(bucket, now_seconds) or everything:
                due.setdefault(bucket.series.collection.collection.namespace, []).append(bucket)
        for namespace, buckets in due.items():
            for start in range(0, len(buckets), self._options.at_once):
                async with self._readers.kept_out(namespace) as alone:
                    if not alone:
                        self.metrics.readers_in_the_way += 1
                        break
                    await self._join_all(buckets[start : start + self._options.at_once])

    def _is_due(self, bucket: Bucket, now_seconds: float) -> bool:
        parts = bucket.parts
        if parts is None or parts.joining:
            return False
        if parts.stored >= self._options.many or _takes_no_more(bucket):
            return True
        idle_seconds = now_seconds - max(parts.touched_seconds, self._catalog.committed_at_seconds)
        return parts.stored > 1 and idle_seconds > self._options.idle_seconds

    async def _join_all(self, buckets: Sequence[Bucket]) -> None:
        queue = iter(buckets)

        async def work() -> None:
            for bucket in queue:
                await self._join(bucket)

        await asyncio.gather(*(work() for _ in range(self._options.workers)))

    async def _join(self, bucket: Bucket) -> None:
        parts = bucket.parts
        if parts is None:
            return
        if parts.stored == 1:
            self._done(bucket)
            return
        buckets = bucket.series.collection
        first_id, last_id = parts.first_id, parts.last_id
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds

        def merge(documents: Sequence[bytes]) -> bytes:
            return join(documents, last_id, buckets.time_field, buckets.meta_field)

        parts.joining = True
        joined: int | None = None
        try:
            joined = await self._store.join(buckets.collection, first_id, last_id, merge, deadline_seconds)
        except (CommandError, ValueError) as error:
            self._failed(error)
        finally:
            parts.joining = False
        if joined is None:
            self.metrics.failures += 1
            self._catalog.unjoined -= parts.stored - 1
            # Not as it should be: its rows stay where they are, which is as good for every reader.
            self._catalog.parted.pop(bucket, None)
            return
        self.metrics.joins += 1
        self.metrics.documents_joined += joined
        self._catalog.unjoined -= joined - 1
        parts.joined(last_id, joined)
        self._done(bucket)

    async def _sweep(self, buckets: CollectionBuckets) -> None:
        """Join what a process that was killed left in parts; only lately started buckets can be."""
        if buckets.stored_until_ms is None or buckets.stored_until_ms < 0:
            return
        since_ms = buckets.stored_until_ms - SWEPT_SPANS * buckets.span_ms
        collection = buckets.collection
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
        try:
            left = await self._store.find_parts(collection, since_ms, deadline_seconds)
            for first_id, last_id in left:
                deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
                async with self._readers.kept_out(collection.namespace) as alone:
                    if alone:
                        await self._join_left(buckets, first_id, last_id, deadline_seconds)
        except CommandError as error:
            self._failed(error)

    async def _join_left(
        self, buckets: CollectionBuckets, first_id: bytes, last_id: bytes, deadline_seconds: float
    ) -> None:
        def merge(documents: Sequence[bytes]) -> bytes:
            return join(documents, last_id, buckets.time_field, buckets.meta_field)

        with suppress(ValueError):
            # Other processes' buckets may have ids that look like parts; they are left alone.
            joined = await self._store.join(buckets.collection, first_id, last_id, merge, deadline_seconds)
            self.metrics.documents_joined += joined or 0

    def _failed(self, error: Exception) -> None:
        """Without the right to join no further parts are made."""
        self._report(error)
        if isinstance(error, CommandError) and error.code == UNAUTHORIZED:
            self._catalog.growth = Growth()

    def _done(self, bucket: Bucket) -> None:
        """A bucket that is one document leaves the list until it is in parts again."""
        if bucket.parts is not None and bucket.parts.stored <= 1:
            self._catalog.parted.pop(bucket, None)


def _takes_no_more(bucket: Bucket) -> bool:
    return bucket.is_idle and bucket.series.current is not bucket
