"""Adds the rows of buckets that other processes have given up to buckets of this one (``catalog.gathering``).

Each step is atomic at the backend, and is committed in a moment without readers, as joins of parts are
(``catalog.joining``). The bucket stays in memory, and grows on with all rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from catalog.aligning import aligned
from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, CommandError, InvariantViolated
from catalog.open_bucket import Bucket
from catalog.orphan_parts import ReaderBarrier
from catalog.parts import IdRange
from catalog.ports import BucketStore, Clock, PreparedJoin, Span
from catalog.replacing import Differs, Forms

STEP_DOCUMENTS: Final = 256
"""Of one step."""
MOST_ORDERS: Final = 20_000
PASS_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.5
"""After a step that readers or other writers were in the way of."""
ATTEMPTS: Final = 20
PATIENCE_SECONDS: Final = 10.0


class Order(NamedTuple):
    """Absorb these documents into the bucket that is the document ``stored_id``."""

    stored_id: bytes
    others: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _Step:
    """Orders of one collection that are carried out together."""

    orders: Sequence[Order]
    attempts: int = 0

    def halves(self) -> list[_Step]:
        middle = len(self.orders) // 2
        return [replace(self, orders=self.orders[:middle]), replace(self, orders=self.orders[middle:])]


@dataclass(slots=True)
class _Absorption:
    """A bucket that absorbs others. ``joined`` is its new document once that is made, in a thread perhaps."""

    bucket: Bucket
    order: Order
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
        self._not_before_seconds = 0.0

    @property
    def waiting(self) -> int:
        """The number of orders that are not carried out yet."""
        return sum(len(step.orders) for step in self._steps)

    def ordered(self, orders: Sequence[Order]) -> None:
        """Carry these out as soon as possible."""
        self._steps.extend(_steps(orders[: max(0, MOST_ORDERS - self.waiting)]))

    async def work(self) -> None:
        """Carry out orders for a short time."""
        until_seconds = self._clock.monotonic_seconds() + PASS_SECONDS
        while self._steps and self._not_before_seconds <= self._clock.monotonic_seconds() < until_seconds:
            await self._absorb(self._steps.popleft())

    async def _absorb(self, step: _Step) -> None:
        """Carry out the orders of a step, or put it back."""
        try:
            is_done = await self._try(step)
        except CommandError as error:
            if error.code == UNAUTHORIZED:
                self._refused(error)
                return
            is_done = False
            if error.code != WRITE_CONFLICT and len(step.orders) > 1:
                self._put_back(*step.halves())
                return
        except (ValueError, InvariantViolated) as error:
            # Of another writer, or not of one shape, or it does not fit: one of several, so each is tried alone.
            if len(step.orders) > 1:
                self._steps.extendleft(step.halves())
            elif isinstance(error, Differs):
                self._forms.noticed(error)
            return
        if not is_done:
            self._put_back(step)

    def _put_back(self, *steps: _Step) -> None:
        self._not_before_seconds = self._clock.monotonic_seconds() + PAUSE_SECONDS
        self._steps.extend(replace(step, attempts=step.attempts + 1) for step in steps if step.attempts < ATTEMPTS)

    async def _try(self, step: _Step) -> bool:
        """Whether it need not be tried again."""
        absorptions = self._begun(step)
        if not absorptions:
            return True
        try:
            collection = absorptions[0].bucket.series.collection.collection
            deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
            spans = [self._span(each) for each in absorptions]
            prepared = await self._store.prepare_join(collection, spans, deadline_seconds)
            is_done = await self._committed(prepared, absorptions)
        finally:
            for each in absorptions:
                if each.bucket.parts is not None:
                    each.bucket.parts.joining = False
        return is_done

    def _begun(self, step: _Step) -> list[_Absorption]:
        """The buckets that still rest, and are not joined otherwise meanwhile; of one collection."""
        resting, now_seconds = self._catalog.growth.resting, self._clock.monotonic_seconds()
        begun: list[_Absorption] = []
        for order in step.orders:
            bucket = resting.bucket(order.stored_id, now_seconds)
            if bucket is None:
                continue
            if begun and bucket.series.collection is not begun[0].bucket.series.collection:
                self.ordered([order])
                continue
            self._catalog.growth.parts_of(bucket).joining = True
            begun.append(_Absorption(bucket, order))
        return begun

    def _span(self, absorption: _Absorption) -> Span:
        ids = [*absorption.order.others, absorption.order.stored_id]
        buckets = absorption.bucket.series.collection
        forms, max_rows = self._forms, self._catalog.options.limits.max_count
        time_field, meta_field, span_ms = buckets.time_field, buckets.meta_field, buckets.span_ms

        def merge(documents: Sequence[bytes]) -> bytes:
            ready = aligned(documents, time_field, span_ms)
            joined = forms.merged(ready, absorption.order.stored_id, time_field, meta_field, max_rows)
            absorption.joined.append(joined)
            return joined

        return Span([IdRange(each, each, 1) for each in ids], merge, ids)

    async def _committed(self, prepared: PreparedJoin, absorptions: Sequence[_Absorption]) -> bool:
        """Whether nothing is left to do: there was a moment without readers, or there is nothing to join."""
        if not any(count and count > 1 for count in prepared.counts):
            await prepared.abandon()
            return True
        is_sent = False
        try:
            namespace = absorptions[0].bucket.series.collection.collection.namespace
            async with self._readers.kept_out(namespace) as alone:
                # This process may have been stopped since readers were told to wait.
                if alone and self._readers.still_kept_out:
                    is_sent = True
                    await self._commit(prepared, absorptions)
        finally:
            if not is_sent:
                await prepared.abandon()
        return is_sent

    async def _commit(self, prepared: PreparedJoin, absorptions: Sequence[_Absorption]) -> None:
        changed = [
            (each, count) for each, count in zip(absorptions, prepared.counts, strict=True) if count and count > 1
        ]
        is_known = False
        try:
            await prepared.commit()
            is_known = True
        finally:
            for each, count in changed:
                self._catalog.absorbed(each.bucket, each.joined[-1] if is_known else None)
                self.absorbed += count - 1 if is_known else 0


def _steps(orders: Sequence[Order]) -> list[_Step]:
    """Neighbours together."""
    steps: list[list[Order]] = []
    documents = 0
    for order in sorted(orders):
        documents += 1 + len(order.others)
        if steps and documents <= STEP_DOCUMENTS:
            steps[-1].append(order)
        else:
            steps.append([order])
            documents = 1 + len(order.others)
    return [_Step(orders) for orders in steps]
