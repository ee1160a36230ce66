"""Joins the parts of each bucket into one document, in the background (``catalog.parts``).

A bucket's parts are joined when there are many, when the bucket accepts no more rows, when they are old, or when no
commits are made. Each join is one atomic step of the backend, but a cursor that is between two parts would miss rows or
return them twice. A join therefore waits for a moment without readers of the collection (``ReaderBarrier``). If there
is none for some time, buckets grow in place again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from catalog.catalog import BucketCatalog
from catalog.compressing import CompressingMetrics
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from catalog.joining_pace import JoiningOptions, JoiningPace
from catalog.namespaces import Namespace
from catalog.open_bucket import Bucket, CollectionBuckets
from catalog.orphan_parts import OrphanParts, ReaderBarrier
from catalog.parts import Parts, Pending
from catalog.ports import BucketStore, Clock, Span
from catalog.replacing import Differs, Forms

FEWEST = 2
"""So many parts of a bucket are joined to learn how fast that is."""
LOOKED_AT_ONCE = 200
MOST_DUE = 2_000
"""Maximum number of buckets of one pass, which is more than it has time for."""


@dataclass(frozen=True, slots=True)
class _Join:
    """A join in progress: a bucket and the parts that it had at the start."""

    bucket: Bucket
    parts: Parts
    pending: Pending
    span: Span
    sizes: list[tuple[int, int]]
    """Sizes of the joined document before and after compression, if it was compressed."""
    faults: list[Differs]
    """Why its compressed form was not used."""
    compresses: bool
    """Whether the joined document is to be compressed."""


class JoiningMetrics:
    """Counters of joins; ``compressing``: joined buckets that were full and stayed uncompressed."""

    __slots__ = ("compressing", "documents_joined", "failures", "joins", "readers_in_the_way")

    def __init__(self) -> None:
        self.compressing = CompressingMetrics()
        self.joins = 0
        self.documents_joined = 0
        self.failures = 0
        self.readers_in_the_way = 0


class Joining:
    """The background task that joins parts."""

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
        """``not_allowed`` is called once if the backend refuses joins for lack of privileges."""
        self.metrics = JoiningMetrics()
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._options = options
        self._pace = JoiningPace(options, catalog.growth, clock)
        self._not_allowed = not_allowed
        self._forms = forms
        self._look_from = 0
        self._ends = False
        """Whether the process ends, so that nothing more will be joined later."""
        self._sweeping = OrphanParts(catalog, store, clock, readers, self._merge, self._lack_of_rights, forms.noticed)

    async def run(self) -> None:
        """Join due parts until the task is cancelled."""
        pause_seconds = self._options.interval_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            self.metrics.documents_joined += await self._sweeping.sweep()
            since_seconds = self._clock.monotonic_seconds()
            has_more = await self.join_due()
            pause_seconds = self._pace.pause_after(self._clock.monotonic_seconds() - since_seconds, has_more=has_more)

    async def join_due(self) -> bool:
        """One pass: join at most ``MOST_DUE`` due buckets, those with the most parts first; whether some are left."""
        now_seconds = self._clock.monotonic_seconds()
        due = await self._find_due(now_seconds)
        since_seconds, before = self._clock.monotonic_seconds(), self.metrics.documents_joined
        in_time = await self._pass(due, since_seconds + self._pace.pass_seconds())
        now_seconds = self._clock.monotonic_seconds()
        self._catalog.growth.backlog.measure(
            self.metrics.documents_joined - before, now_seconds - since_seconds, now_seconds
        )
        return not in_time or len(due) >= MOST_DUE

    async def _find_due(self, now_seconds: float) -> list[Bucket]:
        """Up to ``MOST_DUE`` due buckets, from where the previous pass stopped; yields to the event loop meanwhile."""
        parted = list(self._catalog.growth.parted)
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
        """Join all parts that can be joined, and all runs, at the end of the process."""
        self._ends = True
        now_seconds = self._clock.monotonic_seconds()
        await self._pass([bucket for bucket in self._catalog.growth.parted if self._may_join(bucket, now_seconds)])

    async def _pass(self, wanted: Sequence[Bucket], until_seconds: float = math.inf) -> bool:
        """Join these buckets; whether none of them had to be left because the time was up."""
        due: dict[Namespace, list[Bucket]] = {}
        for bucket in wanted:
            due.setdefault(bucket.series.collection.collection.namespace, []).append(bucket)
        for namespace, buckets in due.items():
            queue = deque(await self._groups(buckets))
            collections = {bucket.series.collection for bucket in buckets}
            while queue:
                async with self._readers.kept_out(namespace) as alone:
                    self._note(collections, alone=alone)
                    if not alone:
                        break
                    if not await self._join_side_by_side(queue):
                        return True
                if self._clock.monotonic_seconds() >= until_seconds:
                    return not queue
        return True

    def _note(self, collections: Iterable[CollectionBuckets], *, alone: bool) -> None:
        for collection in collections:
            self._catalog.growth.obstacles.tried(collection, alone=alone)
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
        many = FEWEST if self._catalog.growth.backlog.has_to_be_measured else self._options.many
        if parts.fresh >= many or self._rests(bucket, parts, now_seconds):
            return True
        return parts.fresh > 0 and now_seconds - parts.since_seconds >= self._options.aged_seconds

    def _rests(self, bucket: Bucket, parts: Parts, now_seconds: float) -> bool:
        """Whether no rows are expected for now, so that all documents of the bucket become one."""
        if self._ends or _takes_no_more(bucket):
            return True
        touched_seconds = max(parts.touched_seconds, self._catalog.growth.committed_at_seconds)
        return parts.stored > 1 and now_seconds - touched_seconds > self._options.idle_seconds

    async def _groups(self, buckets: Sequence[Bucket]) -> list[list[Bucket]]:
        """Groups of neighbouring buckets to be joined in one step, since each step has a cost; most parts first.

        Yields to the event loop meanwhile.
        """
        options = self._options
        groups: list[list[Bucket]] = []
        rows = documents = 0
        now_seconds = self._clock.monotonic_seconds()
        for position, bucket in enumerate(sorted(buckets, key=_identity), 1):
            if not position % LOOKED_AT_ONCE:
                await asyncio.sleep(0)
            if bucket.parts is None:
                continue
            pending = self._pending(bucket, bucket.parts, now_seconds)
            rows += pending.rows
            documents += pending.documents
            fits = rows <= options.group_rows and documents <= options.group_parts
            if groups and fits and _are_neighbours(groups[-1][-1], bucket):
                groups[-1].append(bucket)
            else:
                groups.append([bucket])
                rows, documents = pending.rows, pending.documents
        groups.sort(key=lambda group: sum(map(_count_of_parts, group)), reverse=True)
        return groups

    async def _join_side_by_side(self, queue: deque[list[Bucket]]) -> bool:
        """Join groups until the time is up; false if the backend did not respond, so that readers need not wait."""
        answers = True
        until_seconds = self._clock.monotonic_seconds() + self._options.window_seconds

        async def work() -> None:
            nonlocal answers
            while queue and answers and self._readers.still_kept_out:
                answers = await self._join(queue.popleft()) and answers
                if self._clock.monotonic_seconds() >= until_seconds:
                    return

        await asyncio.gather(*(work() for _ in range(self._options.workers)))
        return answers

    async def _join(self, group: Sequence[Bucket]) -> bool:
        """Join one group; false if the backend did not respond."""
        joins: list[_Join] = []
        for bucket in group:
            parts = bucket.parts
            if parts is None or parts.joining or parts.stored == 1:
                self._catalog.growth.settled(bucket)
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
                for counters in (each.bucket.series.collection.counters, self._catalog.totals):
                    counters.compressed(before, after)
            for fault in each.faults:
                self._forms.noticed(fault)
            if each.compresses and not each.sizes:
                self.metrics.compressing.leave("wrong" if each.faults else "not_smaller")
            self._settled(each)
        return True

    async def _failed(self, joins: Sequence[_Join], error: CommandError | ValueError | Differs) -> bool:
        if isinstance(error, CommandError) and error.code == UNAUTHORIZED:
            self._lack_of_rights(error)
        elif len(joins) > 1:
            # One of them may be the cause, so each is tried alone.
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
        # The parts stay as they are, which every reader can read; another writer may have changed them.
        for each in joins:
            self._leave(each)
        return True

    def _new_join(self, bucket: Bucket, parts: Parts) -> _Join:
        buckets = bucket.series.collection
        sizes: list[tuple[int, int]] = []
        faults: list[Differs] = []
        pending = self._pending(bucket, parts, self._clock.monotonic_seconds())
        merge = self._merge(buckets, pending.last_id)
        compresses = parts.full and self._options.compress
        if compresses:
            merge = _smaller(self._forms, merge, buckets.time_field, sizes, faults)
        span = Span(
            pending.first_id, pending.last_id, pending.documents, merge, pending.unsealed, is_whole=not pending.runs
        )
        return _Join(bucket, parts, pending, span, sizes, faults, compresses)

    def _pending(self, bucket: Bucket, parts: Parts, now_seconds: float) -> Pending:
        everything = parts.full or not parts.fresh or self._rests(bucket, parts, now_seconds)
        return parts.pending(bucket.state.committed_rows, everything=everything)

    def _merge(self, buckets: CollectionBuckets, joined_id: bytes) -> Callable[[Sequence[bytes]], bytes]:
        max_rows = self._catalog.options.limits.max_count

        def merge(documents: Sequence[bytes]) -> bytes:
            if not self._readers.still_kept_out:
                # This process may have been stopped since the parts were read. They are joined later.
                raise CommandError(WRITE_CONFLICT, "readers no longer wait for this join")
            return self._forms.merged(documents, joined_id, buckets.time_field, buckets.meta_field, max_rows)

        return merge

    def _put_off(self, join: _Join) -> None:
        """Try again later, after a conflict with another writer, a step-down or a lost connection."""
        parts = join.parts
        parts.attempts += 1
        if parts.attempts > self._options.attempts:
            self._leave(join)
            return
        self.metrics.failures += 1
        pause_seconds = self._options.pause_seconds * 2 ** (parts.attempts - 1)
        parts.not_before_seconds = self._clock.monotonic_seconds() + pause_seconds

    def _leave(self, join: _Join) -> None:
        """Leave these parts unjoined for good; later parts of the bucket may still be joined."""
        self.metrics.failures += 1
        self._settled(join)

    def _settled(self, join: _Join) -> None:
        self._catalog.growth.joined(join.bucket, join.parts, join.pending)

    def _lack_of_rights(self, error: CommandError) -> None:
        """Make no further parts, because the account may not join them."""
        if self._catalog.growth.obstacles.refused():
            self._not_allowed(error)


def _smaller(
    forms: Forms,
    merge: Callable[[Sequence[bytes]], bytes],
    time_field: bytes,
    sizes: list[tuple[int, int]],
    faults: list[Differs],
) -> Callable[[Sequence[bytes]], bytes]:
    """As ``merge``, but with the compressed form if there is one; ``sizes`` then gets both lengths.

    The result runs in a thread, so it only records a wrong compressed form in ``faults``; the event loop reports it.
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
    """Whether two buckets have the same start, so that their ids are close to each other."""
    same_collection = one.series.collection is other.series.collection
    return same_collection and one.state.bucket_id[:4] == other.state.bucket_id[:4]


def _count_of_parts(bucket: Bucket) -> int:
    return 0 if bucket.parts is None else bucket.parts.stored


def _takes_no_more(bucket: Bucket) -> bool:
    return bucket.is_idle and bucket.series.current is not bucket
