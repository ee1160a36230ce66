"""One step of joining: the parts of some neighbouring buckets become one document each.

A step is prepared while readers go on, because nobody sees anything of it, and committed when there are none
(``catalog.background.joining``). What fails is tried again later, bucket by bucket if the cause may be one of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catalog.background.compressing import CompressingMetrics
from catalog.background.joining_pace import JoiningOptions
from catalog.background.replacing import Differs, Forms
from catalog.background.step_size import StepSize
from catalog.buckets.open_bucket import Bucket, CollectionBuckets
from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, BackendUnavailable, CommandError
from catalog.parts import Parts, Pending, closed, id_of
from catalog.ports import BucketStore, Clock, Found, PreparedJoin, Span


@dataclass(frozen=True, slots=True)
class Join:
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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step that has to be committed or abandoned."""

    joins: Sequence[Join]
    join: PreparedJoin


class JoiningMetrics:
    """Counters of joins, and the total time of gaps between commits.

    ``compressing``: joined buckets that were full and stayed uncompressed.
    """

    __slots__ = ("compressing", "documents_joined", "failures", "gap_seconds", "joins", "readers_in_the_way")

    def __init__(self) -> None:
        self.compressing = CompressingMetrics()
        self.joins = 0
        self.documents_joined = 0
        self.failures = 0
        self.gap_seconds = 0.0
        self.readers_in_the_way = 0


class JoinSteps:
    """Prepares, commits and abandons steps, and records what becomes of the parts."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        options: JoiningOptions,
        not_allowed: Callable[[CommandError], None],
        forms: Forms,
    ) -> None:
        """``not_allowed`` is called once if the backend refuses joins for lack of privileges."""
        self.metrics = JoiningMetrics()
        self.again: list[Bucket] = []
        """Buckets of failed steps, each of which is to be joined alone."""
        self.answers = True
        """Whether the backend responded to the latest step."""
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._options = options
        self._not_allowed = not_allowed
        self._forms = forms
        self.size = StepSize(options, catalog.growth.backlog)

    async def prepare(self, group: Sequence[Bucket], pending_of: Callable[[Bucket, Parts], Pending]) -> Prepared | None:
        """Prepare the join of a group; ``None`` if there is nothing to join, or if that failed."""
        joins: list[Join] = []
        for bucket in group:
            parts = bucket.parts
            if parts is None or parts.joining or parts.stored == 1:
                self._catalog.growth.settled(bucket)
                continue
            pending = pending_of(bucket, parts)
            if pending.documents > 1:
                joins.append(self._new_join(bucket, parts, pending))
                parts.joining = True
            elif pending.documents:
                # A single part is a run.
                self._catalog.growth.joined(bucket, parts, pending)
        if not joins:
            return None
        deadline_seconds = self._clock.monotonic_seconds() + self._options.patience_seconds
        collection = joins[0].bucket.series.collection.collection
        try:
            prepared = await self._store.prepare_join(collection, [each.span for each in joins], deadline_seconds)
        except Exception as error:  # noqa: BLE001 - it concerns these buckets only, so joining goes on
            self._failed(joins, error)
            return None
        except BaseException:
            _end(joins)
            raise
        return Prepared(joins, prepared)

    async def commit(self, step: Prepared) -> None:
        """Commit a step."""
        since_seconds = self._clock.monotonic_seconds()
        try:
            await step.join.commit()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(step.joins, error)
            return
        finally:
            _end(step.joins)
        self.answers = True
        if documents := sum(found.documents for found in step.join.found if found):
            seconds = self._clock.monotonic_seconds() - since_seconds
            self.size.committed(documents, seconds if step.join.is_carried_out_by_commit else 0.0)
        for each, found in zip(step.joins, step.join.found, strict=True):
            if found is None:
                self._leave(each)
            else:
                self._succeeded(each, found)

    async def abandon(self, steps: Sequence[Prepared]) -> None:
        """Give these steps up; their buckets stay due."""
        for step in steps:
            _end(step.joins)
        for step in steps:
            await step.join.abandon()

    def _succeeded(self, join: Join, found: Found) -> None:
        self.metrics.joins += 1
        self.metrics.documents_joined += found.documents
        for before, after in join.sizes:
            for counters in (join.bucket.series.collection.counters, self._catalog.totals):
                counters.compressed(before, after)
        for fault in join.faults:
            self._forms.noticed(fault)
        if join.compresses and not join.sizes:
            self.metrics.compressing.leave("wrong" if join.faults else "not_smaller")
        self._catalog.growth.joined(join.bucket, join.parts, join.pending, found.last_id)

    def _failed(self, joins: Sequence[Join], error: Exception) -> None:
        _end(joins)
        if isinstance(error, BackendUnavailable):
            self.answers = False
            for each in joins:
                self._put_off(each)
            return
        if isinstance(error, CommandError) and error.code == UNAUTHORIZED:
            self.lack_of_rights(error)
        elif len(joins) > 1:
            # One of them may be the cause, so each is tried alone.
            self.again += [each.bucket for each in joins]
            return
        elif isinstance(error, CommandError | ValueError):
            # Another writer may change them just now, one document after the other.
            self._put_off(joins[0])
            return
        else:
            self._forms.noticed(error)
        # The parts stay as they are, which every reader can read.
        for each in joins:
            self._leave(each)

    def _new_join(self, bucket: Bucket, parts: Parts, pending: Pending) -> Join:
        buckets = bucket.series.collection
        sizes: list[tuple[int, int]] = []
        faults: list[Differs] = []
        merge = self.merge(buckets)
        if self._catalog.growth.is_sealed and not pending.is_last:
            merge = _closed(merge)
        compresses = parts.full and self._options.compress
        if compresses:
            merge = _smaller(self._forms, merge, buckets.time_field, sizes, faults)
        span = Span(pending.ranges, merge, pending.unsealed)
        return Join(bucket, parts, pending, span, sizes, faults, compresses)

    def merge(self, buckets: CollectionBuckets) -> Callable[[Sequence[bytes]], bytes]:
        """The function that makes one document of parts of a collection (``catalog.ports.Span``)."""
        max_rows = self._catalog.options.limits.max_count
        time_field, meta_field = buckets.time_field, buckets.meta_field
        return lambda documents: self._forms.merged(documents, id_of(documents[-1]), time_field, meta_field, max_rows)

    def _put_off(self, join: Join) -> None:
        """Try again later, after a conflict with another writer, a step-down or a lost connection."""
        parts = join.parts
        parts.attempts += 1
        if parts.attempts > self._options.attempts:
            self._leave(join)
            return
        self.metrics.failures += 1
        pause_seconds = self._options.pause_seconds * 2 ** (parts.attempts - 1)
        parts.not_before_seconds = self._clock.monotonic_seconds() + pause_seconds

    def _leave(self, join: Join) -> None:
        """Leave these parts unjoined for good; later parts of the bucket may still be joined."""
        self.metrics.failures += 1
        self._catalog.growth.joined(join.bucket, join.parts, join.pending)

    def lack_of_rights(self, error: CommandError) -> None:
        """Make no further parts, because the account may not join them."""
        if self._catalog.growth.obstacles.refused():
            self._not_allowed(error)


def _end(joins: Sequence[Join]) -> None:
    for each in joins:
        each.parts.joining = False


def _closed(merge: Callable[[Sequence[bytes]], bytes]) -> Callable[[Sequence[bytes]], bytes]:
    """As ``merge``, but closed as parts are, because the result will be joined again."""
    return lambda documents: closed(merge(documents))


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
