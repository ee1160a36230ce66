"""Joins the parts of buckets into one document each, in the background (``catalog.parts``).

A bucket's parts are joined when there are many, when the bucket takes no more, and whenever there is nothing
better to do. Each join is one atomic step of the backend, but a reader whose cursor stands between two parts would
find the rest of them gone, or see the rows again: so a join needs a moment in which no reader of the collection is
under way (the port ``Readers``), and waits for one. While there is none for long, buckets grow in place again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catalog.catalog import BucketCatalog, Growth
from catalog.errors import UNAUTHORIZED, BackendUnavailable, CommandError
from catalog.kernel import compressed
from catalog.namespaces import Namespace
from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.parts import join
from catalog.ports import BucketStore, Clock
from catalog.sweeping import Readers, Sweeping


@dataclass(frozen=True, slots=True)
class JoiningOptions:
    """When parts are joined, and how.

    ``many``: so many parts are joined at once, or half a bucket's rows when that is more; ``idle_seconds``: after so
    long without commits all are; after ``aged_seconds`` they are whatever else is written, for reads of many small
    buckets are slow. ``window_seconds``: after so long readers that wait for a join are let in; ``workers``: buckets
    joined side by side.
    ``share``: of its time that a pass may take while measurements are committed, for joins and commits use the same
    backend; ``slice_seconds``: after so long a pass ends. With ``hurry_at`` unjoined parts or more joins do not wait.
    What fails is tried ``attempts`` times more, after ``pause_seconds`` and twice as much each time. ``compress``: the
    last join of a bucket that takes no more rows writes its compressed form (W6).
    """

    many: int = 64
    idle_seconds: float = 2.0
    aged_seconds: float = 10.0
    interval_seconds: float = 0.1
    window_seconds: float = 0.02
    workers: int = 2
    share: float = 0.1
    slice_seconds: float = 0.1
    hurry_at: int = 250_000
    patience_seconds: float = 10.0
    attempts: int = 6
    pause_seconds: float = 0.25
    compress: bool = False


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
        not_allowed: Callable[[CommandError], None],
    ) -> None:
        """``not_allowed`` is told once that the backend does not let parts be joined."""
        self.metrics = JoiningMetrics()
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._options = options
        self._not_allowed = not_allowed
        self._sweeping = Sweeping(catalog, store, clock, readers, self._merge, self._lack_of_rights)

    async def run(self) -> None:
        """For ever: join what is due."""
        pause_seconds = self._options.interval_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            since_seconds = self._clock.monotonic_seconds()
            self.metrics.documents_joined += await self._sweeping.sweep()
            await self.join_due()
            pause_seconds = self._pause_after(self._clock.monotonic_seconds() - since_seconds)

    def _pause_after(self, busy_seconds: float) -> float:
        options = self._options
        idle_seconds = self._clock.monotonic_seconds() - self._catalog.committed_at_seconds
        if self._catalog.unjoined >= options.hurry_at or idle_seconds > options.idle_seconds:
            return options.interval_seconds
        return max(options.interval_seconds, busy_seconds * (1 / options.share - 1))

    async def join_due(self) -> None:
        """One pass: join what is due now, those in most parts first."""
        now_seconds = self._clock.monotonic_seconds()
        due = [bucket for bucket in self._catalog.parted.values() if self._is_due(bucket, now_seconds)]
        due.sort(key=_count_of_parts, reverse=True)
        await self._pass(due, now_seconds + self._options.slice_seconds)

    async def join_all(self) -> None:
        """Join whatever can be joined, because nothing more comes."""
        now_seconds = self._clock.monotonic_seconds()
        await self._pass([bucket for bucket in self._catalog.parted.values() if self._may_join(bucket, now_seconds)])

    async def _pass(self, wanted: Sequence[Bucket], until_seconds: float = math.inf) -> None:
        due: dict[Namespace, list[Bucket]] = {}
        for bucket in wanted:
            due.setdefault(bucket.series.collection.collection.namespace, []).append(bucket)
        for namespace, buckets in due.items():
            queue = deque(buckets)
            while queue:
                async with self._readers.kept_out(namespace) as alone:
                    self._note(buckets, alone=alone)
                    if not alone:
                        break
                    if not await self._join_side_by_side(queue):
                        return
                if self._clock.monotonic_seconds() >= until_seconds:
                    return

    def _note(self, buckets: Sequence[Bucket], *, alone: bool) -> None:
        now_seconds = self._clock.monotonic_seconds()
        for collection in {bucket.series.collection for bucket in buckets}:
            self._catalog.hindrances.tried(collection, now_seconds, alone=alone)
        self.metrics.readers_in_the_way += not alone

    def _may_join(self, bucket: Bucket, now_seconds: float) -> bool:
        parts = bucket.parts
        if parts is None or parts.joining or now_seconds < parts.not_before_seconds:
            return False
        return now_seconds >= bucket.copies_until_seconds

    def _is_due(self, bucket: Bucket, now_seconds: float) -> bool:
        parts = bucket.parts
        if parts is None or not self._may_join(bucket, now_seconds):
            return False
        # As many again as are joined: so a row is written anew a few times and not with every join of its bucket.
        many = max(self._options.many, bucket.state.committed_rows // 2)
        if parts.stored >= many or _takes_no_more(bucket):
            return True
        if parts.stored == 1:
            return False
        idle_seconds = now_seconds - max(parts.touched_seconds, self._catalog.committed_at_seconds)
        aged_seconds = now_seconds - parts.since_seconds
        return idle_seconds > self._options.idle_seconds or aged_seconds >= self._options.aged_seconds

    async def _join_side_by_side(self, queue: deque[Bucket]) -> bool:
        """As many as there is time for; false when the backend did not answer, so that readers need not wait."""
        answers = True
        until_seconds = self._clock.monotonic_seconds() + self._options.window_seconds

        async def work() -> None:
            nonlocal answers
            while queue and answers:
                answers = await self._join(queue.popleft()) and answers
                if self._clock.monotonic_seconds() >= until_seconds:
                    return

        await asyncio.gather(*(work() for _ in range(self._options.workers)))
        return answers

    async def _join(self, bucket: Bucket) -> bool:
        """False when the backend did not answer."""
        parts = bucket.parts
        if parts is None or parts.joining or parts.stored == 1:
            self._done(bucket)
            return True
        buckets = bucket.series.collection
        first_id, last_id, count = parts.first_id, parts.last_id, parts.stored
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
        merge = self._merge(buckets, last_id)
        if parts.full and self._options.compress:
            merge = _smaller(merge, buckets)
        parts.joining = True
        try:
            joined = await self._store.join(buckets.collection, first_id, last_id, merge, deadline_seconds)
        except BackendUnavailable:
            self._put_off(bucket, count, last_id)
            return False
        except CommandError as error:
            if error.code == UNAUTHORIZED:
                self._lack_of_rights(error)
                self._leave(bucket, count, last_id)
            else:
                self._put_off(bucket, count, last_id)
            return True
        except ValueError:
            # Others changed them. The rows stay where they are, which is as good for every reader.
            self._leave(bucket, count, last_id)
            return True
        finally:
            parts.joining = False
        if joined is None:
            self._leave(bucket, count, last_id)
            return True
        self.metrics.joins += 1
        self.metrics.documents_joined += joined
        self._settled(bucket, count, last_id)
        return True

    def _merge(self, buckets: CollectionBuckets, joined_id: bytes) -> Callable[[Sequence[bytes]], bytes]:
        max_rows = self._catalog.options.limits.max_count

        def merge(documents: Sequence[bytes]) -> bytes:
            return join(documents, joined_id, buckets.time_field, buckets.meta_field, max_rows)

        return merge

    def _put_off(self, bucket: Bucket, count: int, last_id: bytes) -> None:
        """Try again later: a conflict with another writer, a primary that steps down, a lost connection."""
        parts = bucket.parts
        assert parts is not None
        parts.attempts += 1
        if parts.attempts > self._options.attempts:
            self._leave(bucket, count, last_id)
            return
        self.metrics.failures += 1
        pause_seconds = self._options.pause_seconds * 2 ** (parts.attempts - 1)
        parts.not_before_seconds = self._clock.monotonic_seconds() + pause_seconds

    def _leave(self, bucket: Bucket, count: int, last_id: bytes) -> None:
        """These stay as they are; what comes after them may still be joined."""
        self.metrics.failures += 1
        self._settled(bucket, count, last_id)

    def _settled(self, bucket: Bucket, count: int, last_id: bytes) -> None:
        assert bucket.parts is not None
        self._catalog.unjoined -= count - 1
        bucket.parts.joined(last_id, count)
        self._done(bucket)

    def _lack_of_rights(self, error: CommandError) -> None:
        """Without the right to join no further parts are made."""
        if self._catalog.growth.in_parts:
            self._catalog.growth = Growth()
            self._not_allowed(error)

    def _done(self, bucket: Bucket) -> None:
        """A bucket that is one document leaves the list until it is in parts again."""
        if bucket.parts is not None and bucket.parts.stored <= 1:
            self._catalog.parted.pop(bucket.state.bucket_id, None)


def _smaller(
    merge: Callable[[Sequence[bytes]], bytes], buckets: CollectionBuckets
) -> Callable[[Sequence[bytes]], bytes]:
    """As ``merge``, but compressed where that is possible."""

    def merge_and_compress(documents: Sequence[bytes]) -> bytes:
        joined = merge(documents)
        smaller = compressed(joined, buckets.time_field)
        if smaller is None:
            return joined
        buckets.counters.compressed(len(joined), len(smaller))
        return smaller

    return merge_and_compress


def _count_of_parts(bucket: Bucket) -> int:
    return 0 if bucket.parts is None else bucket.parts.stored


def _takes_no_more(bucket: Bucket) -> bool:
    return bucket.is_idle and bucket.series.current is not bucket
