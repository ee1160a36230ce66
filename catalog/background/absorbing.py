"""Adds the rows of buckets that others have given up (``catalog.background.gathering``) to buckets of this process.

Each step is a transaction, and is committed in a moment without readers, as joins of parts are
(``catalog.background.joining``). The bucket stays in memory, and grows on with all rows. A document with other rows
than its owner knows of is left as it is: another process has appended to it, and may not know yet whether it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from catalog.background.aligning import aligned, rows_of
from catalog.background.reader_barrier import ReaderBarrier, committed_alone
from catalog.background.reader_pauses import ReaderPauses
from catalog.background.replacing import Forms
from catalog.buckets.open_bucket import Bucket
from catalog.buckets.resting import Given
from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from catalog.parts import IdRange
from catalog.ports import BucketStore, Clock, PreparedJoin, Span

STEP_DOCUMENTS: Final = 256
"""Maximum number of documents in one step, unless one bucket has more."""
STEP_ROWS: Final = 8_000
"""Maximum number of rows that one step adds to buckets, unless one bucket has more."""
MOST_DOCUMENTS: Final = 40_000
"""Maximum number of documents in waiting orders."""
PASS_SECONDS: Final = 0.05
"""Duration of one pass; the step in progress is completed."""
PAUSE_SECONDS: Final = 0.5
"""Pause after a step that readers or other writers prevented, or that the backend could not carry out."""
ATTEMPTS: Final = 20
"""Maximum number of failed attempts at a step; pauses because of readers do not count."""
PATIENCE_SECONDS: Final = 10.0
"""Time limit of one step at the backend."""


class Order(NamedTuple):
    """Absorb these documents into the bucket that is the document ``stored_id``."""

    stored_id: bytes
    others: Sequence[Given]


@dataclass(frozen=True, slots=True)
class _Step:
    """Orders that are carried out together."""

    orders: Sequence[Order]
    attempts: int = 0

    @property
    def documents(self) -> int:
        return sum(len(order.others) for order in self.orders)

    def halves(self) -> list[_Step]:
        middle = len(self.orders) // 2
        return [replace(self, orders=self.orders[:middle]), replace(self, orders=self.orders[middle:])]


@dataclass(slots=True)
class _Absorption:
    """A bucket that absorbs others. ``joined``: its new document, set when the merge has run, possibly in a thread."""

    bucket: Bucket
    order: Order
    rows: int
    """Number of rows of the bucket before it absorbs others."""
    joined: list[bytes] = field(default_factory=list)


class Absorbing:
    """Carries out orders one after the other."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        readers: ReaderBarrier,
        forms: Forms,
        refused: Callable[[CommandError], None],
    ) -> None:
        """``refused`` is called if the account may not join."""
        self.absorbed = 0
        """The number of documents whose rows were added to others."""
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._forms = forms
        self._refused = refused
        self._steps: deque[_Step] = deque()
        self._later: deque[tuple[float, _Step]] = deque()
        """Steps that are tried again at these times, the earliest first."""
        self._pauses = ReaderPauses(clock, PAUSE_SECONDS)
        self.waiting = 0
        """The number of documents that wait to be absorbed."""
        self._not_before_seconds = 0.0

    def ordered(self, orders: Sequence[Order]) -> None:
        """Carry these out as soon as possible."""
        for step in _steps(orders):
            if self.waiting + step.documents <= MOST_DOCUMENTS:
                self._put(step)

    async def work(self) -> None:
        """Carry out orders for a short time."""
        now_seconds = self._clock.monotonic_seconds()
        while self._later and now_seconds >= self._later[0][0]:
            self._steps.append(self._later.popleft()[1])
        until_seconds = now_seconds + PASS_SECONDS
        while self._steps and self._not_before_seconds <= self._clock.monotonic_seconds() < until_seconds:
            step = self._steps.popleft()
            self.waiting -= step.documents
            await self._absorb(step)

    def _put(self, *steps: _Step) -> None:
        self._steps.extend(steps)
        self.waiting += sum(step.documents for step in steps)

    async def _absorb(self, step: _Step) -> None:
        """Carry out the orders of a step, or put it back."""
        try:
            is_done = await self._try(step)
        except CommandError as error:
            if error.code == UNAUTHORIZED:
                self._refused(error)
                return
            if error.code != WRITE_CONFLICT:
                # The others would fail, too.
                self._not_before_seconds = self._clock.monotonic_seconds() + PAUSE_SECONDS
            self._put_back(step, attempts=1)
        except Exception as error:  # noqa: BLE001 - it concerns these buckets only, so the others go on
            # One of several does not fit, so each is tried alone.
            if len(step.orders) > 1:
                self._put(*step.halves())
            elif not isinstance(error, ValueError):
                self._forms.noticed(error)
            # Else other writers have changed them.
        else:
            if not is_done:
                self._put_back(step, attempts=0)

    def _put_back(self, step: _Step, *, attempts: int) -> None:
        if step.attempts + attempts < ATTEMPTS:
            again = replace(step, attempts=step.attempts + attempts)
            self._later.append((self._clock.monotonic_seconds() + PAUSE_SECONDS, again))
            self.waiting += again.documents

    async def _try(self, step: _Step) -> bool:
        """Carry out a step; false if it must be retried."""
        absorptions = self._begun(step)
        if not absorptions:
            return True
        try:
            collection = absorptions[0].bucket.series.collection.collection
            database = collection.namespace.database
            if self._pauses.are_on(database):
                return False
            deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
            async with self._readers.kept_out(collection.namespace) as alone:
                # Otherwise, what is prepared now would perhaps have to be abandoned.
                self._catalog.growth.obstacles.tried(absorptions[0].bucket.series.collection, alone=alone)
            if alone:
                spans = [self._span(each) for each in absorptions]
                prepared = await self._store.prepare_join(collection, spans, deadline_seconds)
                alone = await self._committed(prepared, absorptions)
            if not alone:
                self._pauses.begin(database)
            return alone
        finally:
            for each in absorptions:
                self._catalog.growth.end_join(each.bucket)

    def _begun(self, step: _Step) -> list[_Absorption]:
        """The buckets that still rest, and are not joined otherwise meanwhile; of one collection."""
        catalog, now_seconds = self._catalog, self._clock.monotonic_seconds()
        begun: list[_Absorption] = []
        left: list[Order] = []
        for order in step.orders:
            bucket = catalog.growth.resting.bucket(order.stored_id, now_seconds)
            if bucket is None or any(catalog.is_under_way(each.stored_id) for each in order.others):
                continue
            buckets = bucket.series.collection
            if begun and buckets is not begun[0].bucket.series.collection:
                left.append(order)
            elif not catalog.growth.obstacles.are_there(buckets):
                catalog.growth.begin_join(bucket)
                begun.append(_Absorption(bucket, order, bucket.state.rows))
        if left:
            self._put(replace(step, orders=left))
        return begun

    def _span(self, absorption: _Absorption) -> Span:
        others, stored_id = absorption.order.others, absorption.order.stored_id
        buckets, limits = absorption.bucket.series.collection, self._catalog.options.limits
        expected = [*(each.rows for each in others), absorption.rows]
        forms, time_field, meta_field, span_ms = self._forms, buckets.time_field, buckets.meta_field, buckets.span_ms

        def merge(documents: Sequence[bytes]) -> bytes:
            if [rows_of(each, time_field) for each in documents] != expected:
                raise ValueError("the number of rows differs from what the owner knows")
            ready = aligned(documents, time_field, span_ms)
            joined = forms.merged(ready, stored_id, time_field, meta_field, limits.max_count)
            if len(joined) > limits.max_size_bytes:
                raise ValueError("buckets that are too large for one")
            absorption.joined.append(joined)
            return joined

        ids = [*(each.stored_id for each in others), stored_id]
        return Span([IdRange(each, each, 1) for each in ids], merge, ids)

    async def _committed(self, prepared: PreparedJoin, absorptions: Sequence[_Absorption]) -> bool:
        """Commit the step; false if it must be retried, because readers were active."""
        if not any(found and found.are_several for found in prepared.found):
            await prepared.abandon()
            return True
        namespace = absorptions[0].bucket.series.collection.collection.namespace
        return await committed_alone(prepared, self._readers, namespace, lambda: self._commit(prepared, absorptions))

    async def _commit(self, prepared: PreparedJoin, absorptions: Sequence[_Absorption]) -> None:
        is_known, is_changed = False, True
        try:
            await prepared.commit()
            is_known = True
        except BackendUnavailable:
            raise
        except CommandError:
            is_changed = False
            raise
        finally:
            for each, found in zip(absorptions, prepared.found, strict=True):
                if is_changed and found and found.are_several:
                    self._catalog.absorbed(each.bucket, each.joined[-1] if is_known else None)
                    self.absorbed += found.documents - 1 if is_known else 0


def _steps(orders: Sequence[Order]) -> list[_Step]:
    """Group neighbouring orders into steps."""
    steps: list[list[Order]] = []
    documents = rows = 0
    for order in sorted(orders):
        documents += 1 + len(order.others)
        rows += sum(each.rows for each in order.others)
        if steps and documents <= STEP_DOCUMENTS and rows <= STEP_ROWS:
            steps[-1].append(order)
        else:
            steps.append([order])
            documents, rows = 1 + len(order.others), sum(each.rows for each in order.others)
    return [_Step(orders) for orders in steps]
