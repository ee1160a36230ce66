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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from catalog.catalog import BucketCatalog, Growth
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import compressed
from catalog.namespaces import Namespace
from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.parts import PREFIX_BYTES, join
from catalog.ports import COPIES_SECONDS, BucketStore, Clock

UNAUTHORIZED = 13
WRITE_CONFLICT = 112
CONFLICT_PAUSE_SECONDS = 1.0
"""Between tries to join what the transaction of a killed process still holds."""
SWEPT_SPANS = 8
"""How far back, in bucket spans, parts that a killed process left are looked for."""

LAST_LIKELY_PART = 1_000_000
"""So many rows may a bucket have at most, and so many parts."""


class Readers(Protocol):
    """Who reads buckets at the moment."""

    def kept_out(self, namespace: Namespace) -> AbstractAsyncContextManager[bool]:
        """Keep new readers of the collection waiting; true when none is under way. Short, bounded in time."""
        ...


@dataclass(frozen=True, slots=True)
class JoiningOptions:
    """When parts are joined, and how.

    ``many``: so many parts are joined at once, or half a bucket's rows when that is more; ``idle_seconds``: after so
    long without commits all are. ``at_once``: buckets joined while readers wait; ``workers``: of them side by side.
    ``share``: of its time that a pass may take while measurements are committed, for joins and commits use the same
    backend; ``slice_seconds``: after so long a pass ends. With ``hurry_at`` unjoined parts or more joins do not wait.
    What fails is tried ``attempts`` times more, after ``pause_seconds`` and twice as much each time. ``compress``: the
    last join of a bucket that takes no more rows writes its compressed form (W6).
    """

    many: int = 64
    idle_seconds: float = 2.0
    interval_seconds: float = 0.1
    at_once: int = 32
    workers: int = 2
    share: float = 0.2
    slice_seconds: float = 0.1
    hurry_at: int = 250_000
    patience_seconds: float = 10.0
    attempts: int = 6
    pause_seconds: float = 0.25
    compress: bool = False


@dataclass(frozen=True, slots=True)
class _Left:
    """Parts that an earlier process left, or another one that lives is about to join.

    They are not joined before copies of their inserts, which that process may have sent twice, have ended: one that
    came later would bring a part back whose rows are elsewhere.
    """

    due_seconds: float
    buckets: CollectionBuckets
    first_id: bytes
    last_id: bytes


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
        self._swept: WeakSet[CollectionBuckets] = WeakSet()
        self._left: deque[_Left] = deque()
        self._left_not_before_seconds = 0.0

    async def run(self) -> None:
        """For ever: join what is due."""
        pause_seconds = self._options.interval_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            since_seconds = self._clock.monotonic_seconds()
            for buckets in self._catalog.collections():
                if buckets.stored_until_ms is not None and buckets not in self._swept:
                    self._swept.add(buckets)
                    await self._look_for_left(buckets)
            await self._join_left()
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
            for start in range(0, len(buckets), self._options.at_once):
                async with self._readers.kept_out(namespace) as alone:
                    if not alone:
                        self.metrics.readers_in_the_way += 1
                        break
                    if not await self._join_side_by_side(buckets[start : start + self._options.at_once]):
                        return
                if self._clock.monotonic_seconds() >= until_seconds:
                    return

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
        idle_seconds = now_seconds - max(parts.touched_seconds, self._catalog.committed_at_seconds)
        return parts.stored > 1 and idle_seconds > self._options.idle_seconds

    async def _join_side_by_side(self, buckets: Sequence[Bucket]) -> bool:
        """False when the backend did not answer, so that readers are not kept waiting for the rest."""
        queue = iter(buckets)
        answers = True

        async def work() -> None:
            nonlocal answers
            for bucket in queue:
                answers = answers and await self._join(bucket)
                if not answers:
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

    async def _look_for_left(self, buckets: CollectionBuckets) -> None:
        """Find what a process that was killed left in parts; only lately started buckets can be."""
        if buckets.stored_until_ms is None or buckets.stored_until_ms < 0:
            return
        since_ms = buckets.stored_until_ms - SWEPT_SPANS * buckets.span_ms
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
        try:
            found = await self._store.find_parts(buckets.collection, since_ms, deadline_seconds)
        except BackendUnavailable:
            self._swept.discard(buckets)
        except CommandError:
            # Without the right to look, or with the collection gone, there is nothing to do.
            return
        else:
            due_seconds = self._clock.monotonic_seconds() + COPIES_SECONDS
            self._left += [
                _Left(due_seconds, buckets, first_id, last_id) for first_id, last_id in found if _may_be_ours(first_id)
            ]

    async def _join_left(self) -> None:
        """As many of those as may be joined while readers wait once."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds < self._left_not_before_seconds or not await self._drop_joined(now_seconds):
            return
        namespace = self._left[0].buckets.collection.namespace
        async with self._readers.kept_out(namespace) as alone:
            for _ in range(self._options.at_once if alone else 0):
                if not self._left or self._left[0].buckets.collection.namespace != namespace:
                    return
                if self._left[0].due_seconds > now_seconds:
                    return
                try:
                    if not await self._join_found(self._left[0]):
                        return
                except CommandError:
                    # The transaction of the process that was killed holds them until the server ends it.
                    self._left.rotate(-1)
                    self._left_not_before_seconds = self._clock.monotonic_seconds() + CONFLICT_PAUSE_SECONDS
                    return
                self._left.popleft()

    async def _drop_joined(self, now_seconds: float) -> bool:
        """Take off what has no first part any more: who wrote them lives. True when something due is left."""
        if not self._left or self._left[0].due_seconds > now_seconds:
            return False
        buckets = self._left[0].buckets
        due = [each for each in self._left if each.buckets is buckets and each.due_seconds <= now_seconds]
        due = due[: self._options.at_once]
        deadline_seconds = now_seconds + self._options.patience_seconds
        stored: Mapping[bytes, bytes] = {}
        try:
            stored = await self._store.fetch(buckets.collection, [each.first_id for each in due], deadline_seconds)
        except BackendUnavailable:
            return False
        except CommandError:
            # Without the right to look there is nothing to do.
            pass
        for each in due:
            if each.first_id not in stored:
                self._left.remove(each)
        return bool(self._left) and self._left[0].due_seconds <= now_seconds

    async def _join_found(self, left: _Left) -> bool:
        """False when the backend did not answer; raises ``CommandError`` 112 when they are held by somebody."""
        buckets, first_id, last_id = left.buckets, left.first_id, left.last_id
        if self._catalog.grows_in_parts(first_id) or buckets.replaced:
            return True
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
        merge = self._merge(buckets, last_id)
        try:
            joined = await self._store.join(buckets.collection, first_id, last_id, merge, deadline_seconds)
        except BackendUnavailable:
            return False
        except ValueError:
            # Other processes' buckets may have ids that look like parts; they are left alone.
            return True
        except CommandError as error:
            if error.code == WRITE_CONFLICT:
                raise
            if error.code == UNAUTHORIZED:
                self._lack_of_rights(error)
            return True
        self.metrics.documents_joined += joined or 0
        return True

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


def _may_be_ours(first_id: bytes) -> bool:
    """Servers count from anywhere in the last three bytes, the parts of a bucket from zero."""
    return int.from_bytes(first_id[PREFIX_BYTES:], "big") <= LAST_LIKELY_PART


def _count_of_parts(bucket: Bucket) -> int:
    return 0 if bucket.parts is None else bucket.parts.stored


def _takes_no_more(bucket: Bucket) -> bool:
    return bucket.is_idle and bucket.series.current is not bucket
