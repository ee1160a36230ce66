"""Joins the parts of each bucket into one document, in the background (``catalog.parts``).

A bucket's parts are joined when their segment has ended, when there are many, when the bucket accepts no more rows, or
when no commits are made. Each join is one atomic step of the backend, but a cursor that is between two parts would miss
rows or return them twice. So steps are prepared, and then committed in a moment without readers of the collection
(``ReaderBarrier``), who wait for a few commits only. If there is no such moment for some time, buckets grow in place
again.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from catalog.background.absorbing import Absorbing
from catalog.background.gathering import Gathering, GatheringPeers
from catalog.background.join_step import JoiningMetrics, JoinSteps, Prepared
from catalog.background.joining_pace import JoiningOptions, pace_of
from catalog.background.joins_due import LOOKED_AT_ONCE, JoinsDue, neighbours, place_of
from catalog.background.orphan_parts import DepartedProcesses, OrphanParts
from catalog.background.reader_barrier import ReaderBarrier
from catalog.background.replacing import Forms
from catalog.buckets.open_bucket import Bucket, CollectionBuckets
from catalog.catalog import BucketCatalog
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from catalog.parts import LAST_PART, Parts, Pending
from catalog.ports import BucketStore, Clock

MOST_DUE = 500
"""Maximum number of buckets of one pass, which is more than it has time for."""
AFTER_ERROR_SECONDS = 5.0
"""Pause after an error of our own."""

T = TypeVar("T")


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
        """``not_allowed``: see ``JoinSteps``."""
        self._catalog = catalog
        self._clock = clock
        self._readers = readers
        self._options = options
        self._pace = pace_of(options, catalog.growth, clock)
        self._due = JoinsDue(clock)
        self._steps = JoinSteps(catalog, store, clock, options, not_allowed, forms)
        self._alone = True
        """Whether the latest moment for commits was without readers."""
        self._noticed = forms.noticed
        self._ends = False
        """Whether the process ends, so that nothing more will be joined later."""
        absorbing = Absorbing(catalog, store, clock, readers, forms, self._steps.lack_of_rights)
        self.gathering = Gathering(catalog, clock, absorbing)
        self.orphans = OrphanParts(
            catalog, store, clock, readers, self._steps.merge, self._steps.lack_of_rights, forms.noticed
        )

    @property
    def metrics(self) -> JoiningMetrics:
        """Counters of joins."""
        return self._steps.metrics

    def link(self, others: DepartedProcesses, company: GatheringPeers) -> None:
        """Other processes are known from now on."""
        self.orphans.link(others)
        self.gathering.link(company)

    async def run(self) -> None:
        """Join due parts until the task is cancelled."""
        pause_seconds = self._options.interval_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            pause_seconds = await self._all_passes()

    async def _all_passes(self) -> float:
        """One pass of each kind; returns how long to pause."""
        errors: list[Exception] = []
        self.metrics.documents_joined += await _caught(self.orphans.sweep(), 0, errors)
        await _caught(self.gathering.look(), None, errors)
        since_seconds = self._clock.monotonic_seconds()
        has_more = await _caught(self.join_due(), False, errors)
        for error in errors:
            self._noticed(error)
        if errors:
            return AFTER_ERROR_SECONDS
        return self._pace.pause_after(self._clock.monotonic_seconds() - since_seconds, has_more=has_more)

    async def join_due(self) -> bool:
        """One pass: join at most ``MOST_DUE`` due buckets, neighbours together; whether some are left."""
        now_seconds = self._clock.monotonic_seconds()
        growth = self._catalog.growth
        growth.segments.end_old(now_seconds)
        await self._due.look(growth, lambda bucket: self._is_due(bucket, now_seconds))
        due = list(islice(self._due, MOST_DUE))
        since_seconds = self._clock.monotonic_seconds()
        documents, gap_seconds = self.metrics.documents_joined, self.metrics.gap_seconds
        left = await self._pass(due, since_seconds + self._pace.pass_seconds())
        self._due.put_back(left)
        now_seconds = self._clock.monotonic_seconds()
        joined, had_all_time = self.metrics.documents_joined - documents, self.metrics.gap_seconds == gap_seconds
        growth.backlog.measure(joined, now_seconds - since_seconds, now_seconds, had_all_time=had_all_time)
        return bool(left) or len(due) >= MOST_DUE

    async def join_all(self) -> None:
        """Join all parts that can be joined, and all runs, at the end of the process."""
        self._ends = True
        now_seconds = self._clock.monotonic_seconds()
        parted = [bucket for bucket in self._catalog.growth.parted if self._may_join(bucket, now_seconds)]
        await self._pass(sorted(parted, key=place_of))

    async def _pass(self, wanted: Sequence[Bucket], until_seconds: float = math.inf) -> list[Bucket]:
        """Join these buckets; returns those that had to be left because the time was up."""
        due: dict[Namespace, list[Bucket]] = {}
        for bucket in wanted:
            due.setdefault(bucket.series.collection.collection.namespace, []).append(bucket)
        left: list[Bucket] = []
        for namespace, buckets in due.items():
            queue = deque(await self._groups(buckets))
            collections = {bucket.series.collection for bucket in buckets}
            while queue:
                if not await self._join_some(queue, namespace, collections, until_seconds):
                    break
                if self._clock.monotonic_seconds() >= until_seconds:
                    left += [bucket for group in queue for bucket in group]
                    break
            if not self._steps.answers:
                break
        return left

    async def _join_some(
        self,
        queue: deque[list[Bucket]],
        namespace: Namespace,
        collections: Collection[CollectionBuckets],
        until_seconds: float,
    ) -> bool:
        """Prepare and commit some groups of the queue; false if it cannot go on now."""
        if not self._alone:
            # What is prepared now would perhaps have to be abandoned.
            async with self._readers.kept_out(namespace) as alone:
                self._note(collections, alone=alone)
            if not alone:
                return False
        ready: deque[Prepared] = deque()
        following: deque[Prepared] = deque()
        try:
            await self._prepare(queue, ready)
            while ready and self._steps.answers:
                committing = self._commit_all(ready, namespace, collections)
                if self._pace.prepares_ahead and self._clock.monotonic_seconds() < until_seconds:
                    goes_on = await _beside(committing, self._prepare(queue, following))
                else:
                    goes_on = await committing
                if not goes_on:
                    return False
                ready, following = following, ready
        finally:
            await self._steps.abandon([*ready, *following])
            queue.extendleft([bucket] for bucket in self._steps.again)
            self._steps.again.clear()
        return self._steps.answers

    async def _commit_all(
        self, steps: deque[Prepared], namespace: Namespace, collections: Collection[CollectionBuckets]
    ) -> bool:
        """Commit these steps, some at once, each time without readers; false if it cannot go on now."""
        while steps and self._steps.answers:
            async with self._readers.kept_out(namespace) as alone:
                self._note(collections, alone=alone)
                since_seconds = self._clock.monotonic_seconds()
                if not alone or not await self._commit(steps):
                    return False
            gap_seconds = self._pace.gap_after(self._clock.monotonic_seconds() - since_seconds)
            if gap_seconds and not self._ends:
                self.metrics.gap_seconds += gap_seconds
                await asyncio.sleep(gap_seconds)
        return True

    async def _prepare(self, queue: deque[list[Bucket]], steps: deque[Prepared]) -> None:
        """Take groups from the queue and prepare their joins, side by side, until the time is up."""
        until_seconds = self._clock.monotonic_seconds() + self._pace.preparing_seconds
        self._steps.answers = True

        async def work() -> None:
            while queue and self._steps.answers:
                now_seconds = self._clock.monotonic_seconds()
                group = [bucket for bucket in queue.popleft() if self._may_join(bucket, now_seconds)]
                step = await self._steps.prepare(group, self._pending)
                if step is not None:
                    steps.append(step)
                if self._clock.monotonic_seconds() >= until_seconds:
                    return

        await asyncio.gather(*(work() for _ in range(self._options.workers)))

    async def _commit(self, steps: deque[Prepared]) -> bool:
        """Commit steps until the time is up; false if readers no longer wait."""
        # A server that carries a step out in its commit does nothing else meanwhile, so that two would queue.
        workers = 1 if steps[0].join.is_carried_out_by_commit else self._options.workers
        until_seconds = self._clock.monotonic_seconds() + self._options.window_seconds

        async def work() -> None:
            # This process may have been stopped since readers were told to wait.
            while steps and self._steps.answers and self._readers.still_kept_out:
                await self._steps.commit(steps.popleft())
                if self._clock.monotonic_seconds() >= until_seconds:
                    return

        await asyncio.gather(*(work() for _ in range(workers)))
        return self._readers.still_kept_out

    def _note(self, collections: Iterable[CollectionBuckets], *, alone: bool) -> None:
        self._alone = alone
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
        if parts.fresh >= self._options.many or parts.has_of_other_segments(self._catalog.growth.segments.current):
            return True
        return self._rests(bucket, parts, now_seconds)

    def _rests(self, bucket: Bucket, parts: Parts, now_seconds: float) -> bool:
        """Whether no rows are expected for now, so that all documents of the bucket become one."""
        if self._ends or _takes_no_more(bucket):
            return True
        touched_seconds = max(parts.touched_seconds, self._catalog.growth.committed_at_seconds)
        return parts.stored > 1 and now_seconds - touched_seconds > self._options.idle_seconds

    async def _groups(self, buckets: Iterable[Bucket]) -> list[list[Bucket]]:
        """Groups of neighbouring buckets to be joined in one step, since each step has a cost.

        Yields to the event loop meanwhile.
        """
        most_rows, most_documents = self._steps.size.rows, self._steps.size.documents
        groups: list[list[Bucket]] = []
        rows = documents = 0
        for position, bucket in enumerate(buckets, 1):
            if not position % LOOKED_AT_ONCE:
                await asyncio.sleep(0)
            if bucket.parts is None:
                continue
            pending = self._pending(bucket, bucket.parts)
            rows += pending.rows
            documents += pending.documents
            fits = rows <= most_rows and documents <= most_documents
            if groups and fits and neighbours(groups[-1][-1], bucket):
                groups[-1].append(bucket)
            else:
                groups.append([bucket])
                rows, documents = pending.rows, pending.documents
        return groups

    def _pending(self, bucket: Bucket, parts: Parts) -> Pending:
        growth = self._catalog.growth
        most_parts = self._steps.size.parts_of_a_bucket if growth.is_sealed and not self._ends else LAST_PART
        if parts.full or not parts.fresh or self._rests(bucket, parts, self._clock.monotonic_seconds()):
            return parts.pending(everything=True, most_parts=most_parts)
        # Neighbours have few parts of the current segment, whose ids more of them will lie between.
        current = b"" if parts.fresh >= self._options.many else growth.segments.current
        return parts.pending(everything=False, without=current, together=growth.runs_together, most_parts=most_parts)


async def _beside(work: Awaitable[T], other: Awaitable[None]) -> T:
    """The result of the work, or an error of either, when both have ended."""
    result, nothing = await asyncio.gather(work, other, return_exceptions=True)
    if isinstance(result, BaseException):
        raise result
    if isinstance(nothing, BaseException):
        raise nothing
    return result


async def _caught(work: Awaitable[T], otherwise: T, errors: list[Exception]) -> T:
    """The result of the work; an error would end the background task, and all that it does, for good."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - it is reported by the caller
        errors.append(error)
        return otherwise


def _takes_no_more(bucket: Bucket) -> bool:
    return bucket.is_idle and bucket.series.current is not bucket
