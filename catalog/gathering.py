"""Gathers what several processes have written of one series, so that it becomes one bucket as with one process.

Under load, each process writes buckets of its own. When they rest (``catalog.resting``), each process tells one of them
of its buckets: the one that *gathers*. It finds those that belong together (``catalog.families``), asks the owners of
all but the first of them to give theirs up, and orders the owner of the first to *absorb* those: its document gets
their rows, in one atomic step and in a moment without readers, as with joins of parts (``catalog.joining``).

A bucket that was given up is nobody's: it is only stored, as after a restart. So if anything fails after that, it stays
as it is, and nothing is lost. The owner that absorbs goes on with its bucket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from catalog.aligning import aligned
from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, CommandError, InvariantViolated
from catalog.families import Bounds, Families, Family
from catalog.open_bucket import Bucket
from catalog.orphan_parts import ReaderBarrier
from catalog.parts import IdRange
from catalog.ports import BucketStore, Clock, PreparedJoin, Span
from catalog.replacing import Differs, Forms
from catalog.resting import Rested

LOOK_SECONDS: Final = 0.5
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


class Company(Protocol):
    """The other processes."""

    def gatherer(self) -> str | None:
        """The name of the process that gathers; ``""`` if it is this one, ``None`` if there is no other."""
        ...

    def tell(self, name: str, rested: Sequence[Rested]) -> None:
        """Tell that process of buckets of this one."""
        ...

    async def give_up(self, name: str, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Ask that process to give these buckets up; those that it has given up, none if it cannot be asked."""
        ...

    def order(self, name: str, orders: Sequence[Order]) -> None:
        """Order that process to absorb."""
        ...


class Alone:
    """Where other processes cannot be known; implements ``Company``."""

    def gatherer(self) -> str | None:
        return None

    def tell(self, name: str, rested: Sequence[Rested]) -> None:
        raise InvariantViolated("there is nobody to tell")

    async def give_up(self, name: str, ids: Sequence[bytes]) -> Sequence[bytes]:
        raise InvariantViolated("there is nobody to ask")

    def order(self, name: str, orders: Sequence[Order]) -> None:
        raise InvariantViolated("there is nobody to order")


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


class GatheringMetrics:
    """Counters: documents of this process that others got, and documents that its buckets have absorbed."""

    __slots__ = ("absorbed", "given_up")

    def __init__(self) -> None:
        self.absorbed = 0
        self.given_up = 0


class Gathering:
    """The part of this process: it tells, gathers, gives up and absorbs."""

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
        self.company: Company = Alone()
        self.metrics = GatheringMetrics()
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._forms = forms
        self._refused = refused
        self._families = Families()
        self._gatherer: str | None = None
        self._steps: deque[_Step] = deque()
        self._looked_seconds = 0.0
        self._not_before_seconds = 0.0

    # --- the background task -------------------------------------------------------------------------------

    async def look(self) -> int:
        """One pass; returns how many documents were absorbed."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds >= self._looked_seconds + LOOK_SECONDS:
            self._looked_seconds = now_seconds
            self._tell(now_seconds)
            if self._gatherer == "":
                await self._gather(now_seconds)
        before = self.metrics.absorbed
        until_seconds = self._clock.monotonic_seconds() + PASS_SECONDS
        while self._steps and self._not_before_seconds <= self._clock.monotonic_seconds() < until_seconds:
            await self._absorb(self._steps.popleft())
        return self.metrics.absorbed - before

    def _tell(self, now_seconds: float) -> None:
        resting, gatherer = self._catalog.growth.resting, self.company.gatherer()
        if gatherer != self._gatherer:
            self._gatherer = gatherer
            self._families.forget_all()
            resting.tell_again()
        if gatherer is None:
            resting.forget_all()
            return
        resting.is_wanted = True
        rested = resting.take(now_seconds, self._catalog.growth.committed_at_seconds)
        if gatherer:
            if rested:
                self.company.tell(gatherer, rested)
        else:
            self._families.told("", rested, now_seconds)

    async def _gather(self, now_seconds: float) -> None:
        """Have families become one bucket each."""
        families = self._families.due(now_seconds, self._bounds)
        wanted: dict[str, list[bytes]] = {}
        for family in families:
            for owner, stored_id in family.others:
                wanted.setdefault(owner, []).append(stored_id)
        given: set[bytes] = set()
        for owner, ids in wanted.items():
            given.update(await self.company.give_up(owner, ids) if owner else self.give_up(ids))
        orders: dict[str, list[Order]] = {}
        for family in families:
            if others := _later_first(family, given):
                orders.setdefault(family.owner, []).append(Order(family.stored_id, others))
        for owner, each in orders.items():
            if owner:
                self.company.order(owner, each)
            else:
                self.ordered(each)

    def _bounds(self, collection: bytes) -> Bounds | None:
        limits = self._catalog.options.limits
        for buckets in self._catalog.collections():
            if buckets.collection.uuid == collection:
                return Bounds(buckets.span_ms // 1000, limits.max_count, limits.max_size_bytes)
        return None

    # --- other processes call ------------------------------------------------------------------------------

    def told(self, name: str, rested: Sequence[Rested]) -> None:
        """That process has told of its buckets."""
        if self._gatherer == "":
            self._families.told(name, rested, self._clock.monotonic_seconds())

    def give_up(self, ids: Sequence[bytes]) -> list[bytes]:
        """Give up the buckets that are these documents, if they still rest; returns the ids of those."""
        resting, now_seconds = self._catalog.growth.resting, self._clock.monotonic_seconds()
        given: list[bytes] = []
        for stored_id in ids:
            bucket = resting.bucket(stored_id, now_seconds)
            resting.forget(stored_id)
            if bucket is not None:
                self._catalog.give_up(bucket)
                given.append(stored_id)
        self.metrics.given_up += len(given)
        return given

    def ordered(self, orders: Sequence[Order]) -> None:
        """Absorb these as soon as possible."""
        left = MOST_ORDERS - sum(len(step.orders) for step in self._steps)
        self._steps.extend(_steps(orders[: max(0, left)]))

    # --- absorbing -----------------------------------------------------------------------------------------

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
            if bucket is None or bucket.parts is None:
                continue
            if begun and bucket.series.collection is not begun[0].bucket.series.collection:
                self.ordered([order])
                continue
            bucket.parts.joining = True
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
                self.metrics.absorbed += count - 1 if is_known else 0


def _later_first(family: Family, given: set[bytes]) -> list[bytes]:
    """Those that were given up; the document that keeps its id, and so its start, comes last."""
    return sorted((stored_id for _, stored_id in family.others if stored_id in given), reverse=True)


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
