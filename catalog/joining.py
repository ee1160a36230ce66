"""Joins the parts of buckets into one document each, in the background (``catalog.parts``).

A bucket's parts are joined when there are many, when the bucket takes no more, and whenever there is nothing
better to do. Each join is one atomic step of the backend, but a reader whose cursor stands between two parts would
find the rest of them gone, or see the rows again: so a join needs a moment in which no reader of the collection is
under way (the port ``ReaderBarrier``), and waits for one. While there is none for long, buckets grow in place again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.orphan_parts import OrphanParts, ReaderBarrier
from catalog.parts import Parts
from catalog.ports import BucketStore, Clock, Span
from catalog.replacing import Differs, Forms

LOOKED_AT_ONCE = 1_000
MOST_DUE = 2_000
"""More than a pass has time for; forming groups of so many takes a few milliseconds."""


@dataclass(frozen=True, slots=True)
class JoiningOptions:
    """When parts are joined, and how.

    ``many``: so many parts are joined at once, or half a bucket's rows when that is more; ``idle_seconds``: after so
    long without commits all are; after ``aged_seconds`` they are whatever else is written, for reads of many small
    buckets are slow. ``window_seconds``: after so long readers that wait for a join are let in; ``workers``: buckets
    joined side by side; ``group_parts``, ``group_rows``: as many at most in one step.
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
    group_parts: int = 128
    group_rows: int = 2_000
    workers: int = 2
    share: float = 0.1
    slice_seconds: float = 0.05
    hurry_at: int = 250_000
    patience_seconds: float = 10.0
    attempts: int = 6
    pause_seconds: float = 0.25
    compress: bool = False


@dataclass(frozen=True, slots=True)
class _Join:
    """A bucket whose parts, as many as there were, are being joined."""

    bucket: Bucket
    parts: Parts
    span: Span
    sizes: list[tuple[int, int]]
    """Of the joined document before and after it was compressed, if it was."""
    faults: list[Differs]
    """Why it was not."""


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
        readers: ReaderBarrier,
        options: JoiningOptions,
        not_allowed: Callable[[CommandError], None],
        forms: Forms,
    ) -> None:
        """``not_allowed`` is told once that the backend does not let parts be joined."""
        self.metrics = JoiningMetrics()
        self._catalog = catalog
        self._growth = catalog.growth
        self._store = store
        self._clock = clock
        self._readers = readers
        self._options = options
        self._not_allowed = not_allowed
        self._forms = forms
        self._look_from = 0
        self._sweeping = OrphanParts(catalog, store, clock, readers, self._merge, self._lack_of_rights, forms.noticed)

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
        idle_seconds = self._clock.monotonic_seconds() - self._growth.committed_at_seconds
        if self._growth.unjoined >= options.hurry_at or idle_seconds > options.idle_seconds:
            return options.interval_seconds
        return max(options.interval_seconds, busy_seconds * (1 / options.share - 1))

    async def join_due(self) -> None:
        """One pass: join what is due now, at most ``MOST_DUE``, those in most parts first."""
        now_seconds = self._clock.monotonic_seconds()
        due = await self._find_due(now_seconds)
        await self._pass(due, self._clock.monotonic_seconds() + self._options.slice_seconds)

    async def _find_due(self, now_seconds: float) -> list[Bucket]:
        """No more than one pass can join, from where the pass before stopped looking; others have turns meanwhile."""
        parted = list(self._growth.parted)
        due: list[Bucket] = []
        begin, self._look_from = self._look_from, 0
        for position, bucket in enumerate(chain(islice(parted, begin, None), islice(parted, begin))):
            if not position % LOOKED_AT_ONCE and position:
                await asyncio.sleep(0)
            if self._is_due(bucket, now_seconds):
                due.append(bucket)
                if len(due) >= MOST_DUE:
                    self._look_from = (begin + position + 1) % len(parted)
                    break
        return due

    async def join_all(self) -> None:
        """Join whatever can be joined, because nothing more comes."""
        now_seconds = self._clock.monotonic_seconds()
        await self._pass([bucket for bucket in self._growth.parted if self._may_join(bucket, now_seconds)])

    async def _pass(self, wanted: Sequence[Bucket], until_seconds: float = math.inf) -> None:
        due: dict[Namespace, list[Bucket]] = {}
        for bucket in wanted:
            due.setdefault(bucket.series.collection.collection.namespace, []).append(bucket)
        for namespace, buckets in due.items():
            queue = deque(self._groups(buckets))
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
        for collection in {bucket.series.collection for bucket in buckets}:
            self._growth.tried(collection, alone=alone)
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
        idle_seconds = now_seconds - max(parts.touched_seconds, self._growth.committed_at_seconds)
        aged_seconds = now_seconds - parts.since_seconds
        return idle_seconds > self._options.idle_seconds or aged_seconds >= self._options.aged_seconds

    def _groups(self, buckets: Sequence[Bucket]) -> list[list[Bucket]]:
        """Such that lie side by side and are joined in one step, for each step has its price; most parts first."""
        options = self._options
        groups: list[list[Bucket]] = []
        rows = documents = 0
        for bucket in sorted(buckets, key=_identity):
            rows += bucket.state.committed_rows
            documents += _count_of_parts(bucket)
            fits = rows <= options.group_rows and documents <= options.group_parts
            if groups and fits and _are_neighbours(groups[-1][-1], bucket):
                groups[-1].append(bucket)
            else:
                groups.append([bucket])
                rows, documents = bucket.state.committed_rows, _count_of_parts(bucket)
        groups.sort(key=lambda group: sum(map(_count_of_parts, group)), reverse=True)
        return groups

    async def _join_side_by_side(self, queue: deque[list[Bucket]]) -> bool:
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

    async def _join(self, group: Sequence[Bucket]) -> bool:
        """False when the backend did not answer."""
        joins: list[_Join] = []
        for bucket in group:
            parts = bucket.parts
            if parts is None or parts.joining or parts.stored == 1:
                self._growth.settled(bucket)
            else:
                joins.append(self._new_join(bucket, parts))
                parts.joining = True
        if not joins:
            return True
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
        collection = joins[0].bucket.series.collection.collection
        try:
            counts = await self._store.join(collection, [each.span for each in joins], deadline_seconds)
        except BackendUnavailable:
            for each in joins:
                self._put_off(each)
            return False
        except (CommandError, ValueError, Differs) as error:
            return await self._failed(joins, error)
        finally:
            for each in joins:
                each.parts.joining = False
        for each, joined in zip(joins, counts, strict=True):
            if joined is None:
                self._leave(each)
                continue
            self.metrics.joins += 1
            self.metrics.documents_joined += joined
            for before, after in each.sizes:
                each.bucket.series.collection.counters.compressed(before, after)
            for fault in each.faults:
                self._forms.noticed(fault)
            self._settled(each)
        return True

    async def _failed(self, joins: Sequence[_Join], error: CommandError | ValueError | Differs) -> bool:
        if isinstance(error, CommandError) and error.code == UNAUTHORIZED:
            self._lack_of_rights(error)
        elif len(joins) > 1:
            # It may be the fault of one of them.
            for each in joins:
                each.parts.joining = False
            for each in joins:
                if not await self._join([each.bucket]):
                    return False
            return True
        elif isinstance(error, CommandError):
            self._put_off(joins[0])
            return True
        elif isinstance(error, Differs):
            self._forms.noticed(error)
        # Others changed them. The rows stay where they are, which is as good for every reader.
        for each in joins:
            self._leave(each)
        return True

    def _new_join(self, bucket: Bucket, parts: Parts) -> _Join:
        buckets = bucket.series.collection
        sizes: list[tuple[int, int]] = []
        faults: list[Differs] = []
        merge = self._merge(buckets, parts.last_id)
        if parts.full and self._options.compress:
            merge = _smaller(self._forms, merge, buckets.time_field, sizes, faults)
        span = Span(parts.first_id, parts.last_id, parts.stored, merge)
        return _Join(bucket, parts, span, sizes, faults)

    def _merge(self, buckets: CollectionBuckets, joined_id: bytes) -> Callable[[Sequence[bytes]], bytes]:
        max_rows = self._catalog.options.limits.max_count

        def merge(documents: Sequence[bytes]) -> bytes:
            return self._forms.merged(documents, joined_id, buckets.time_field, buckets.meta_field, max_rows)

        return merge

    def _put_off(self, join: _Join) -> None:
        """Try again later: a conflict with another writer, a primary that steps down, a lost connection."""
        parts = join.parts
        parts.attempts += 1
        if parts.attempts > self._options.attempts:
            self._leave(join)
            return
        self.metrics.failures += 1
        pause_seconds = self._options.pause_seconds * 2 ** (parts.attempts - 1)
        parts.not_before_seconds = self._clock.monotonic_seconds() + pause_seconds

    def _leave(self, join: _Join) -> None:
        """These stay as they are; what comes after them may still be joined."""
        self.metrics.failures += 1
        self._settled(join)

    def _settled(self, join: _Join) -> None:
        self._growth.joined(join.bucket, join.parts, join.span.last_id, join.span.count)

    def _lack_of_rights(self, error: CommandError) -> None:
        """Without the right to join no further parts are made."""
        if self._growth.refused():
            self._not_allowed(error)


def _smaller(
    forms: Forms,
    merge: Callable[[Sequence[bytes]], bytes],
    time_field: bytes,
    sizes: list[tuple[int, int]],
    faults: list[Differs],
) -> Callable[[Sequence[bytes]], bytes]:
    """As ``merge``, but compressed where that is possible; then ``sizes`` gets both lengths.

    It runs in a thread, so ``faults`` gets what is wrong with a compressed form, for the loop to tell.
    """

    def merge_and_compress(documents: Sequence[bytes]) -> bytes:
        sizes.clear()
        faults.clear()
        joined = merge(documents)
        try:
            smaller = forms.compressed(joined, time_field)
        except Differs as error:
            faults.append(error)
            return joined
        if smaller is None:
            return joined
        sizes.append((len(joined), len(smaller)))
        return smaller

    return merge_and_compress


def _identity(bucket: Bucket) -> bytes:
    return bucket.state.bucket_id


def _are_neighbours(one: Bucket, other: Bucket) -> bool:
    """Ids of buckets with the same start differ by what counts their making."""
    same_collection = one.series.collection is other.series.collection
    return same_collection and one.state.bucket_id[:4] == other.state.bucket_id[:4]


def _count_of_parts(bucket: Bucket) -> int:
    return 0 if bucket.parts is None else bucket.parts.stored


def _takes_no_more(bucket: Bucket) -> bool:
    return bucket.is_idle and bucket.series.current is not bucket
