"""A catalog that grows in parts, with joining over a store that remembers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from catalog.background.joining import Joining
from catalog.background.joining_pace import JoiningOptions
from catalog.background.replacing import Forms
from catalog.buckets.write_batch import WriteBatch
from catalog.growth.growth import GrowthOptions
from catalog.kernel import Measurement
from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import part_document
from catalog.ports import Found, PreparedJoin, Span
from tests.support.catalog_parts import START_MS, CatalogBench, ScriptedStore, measurement

OPTIONS = JoiningOptions(many=8, idle_seconds=2.0)


def _unexpected(fault: Exception) -> None:
    raise fault


UNTOUCHED = Forms(_unexpected)
"""Where nothing is made wrongly."""


class Nobody:
    """No reader is ever under way."""

    still_kept_out = True

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        yield True


def everything_of(span: Span) -> Found:
    """All of its documents are there."""
    return Found(sum(each.documents for each in span.ranges), span.ranges[-1].last_id)


class RememberedJoin:
    """Is remembered when it is committed, if its store says so."""

    is_carried_out_by_commit = False

    def __init__(self, store: RememberingStore, spans: Sequence[Span], found: Sequence[Found | None]) -> None:
        self.found = found
        self._store = store
        self._spans = spans

    async def commit(self) -> None:
        self._store.open -= 1
        await self._store.committing(self._spans)
        self._store.joins += [(span.ranges[0].first_id, span.ranges[-1].last_id) for span in self._spans]
        self._store.spans += self._spans

    async def abandon(self) -> None:
        self._store.open -= 1
        self._store.abandoned += 1


class RememberingStore(ScriptedStore):
    """Joins everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.joins: list[tuple[bytes, bytes]] = []
        """The first and the last id of what was joined."""
        self.spans: list[Span] = []
        self.steps = 0
        """The number of joins that were to be prepared."""
        self.open = 0
        """The number of those that are neither committed nor abandoned yet."""
        self.abandoned = 0
        self.refuses: bytes | None = None
        """The first id of what cannot be joined."""

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        self.steps += 1
        if self.refuses is not None and any(span.ranges[0].first_id == self.refuses for span in spans):
            raise ValueError("others changed them")
        self.open += 1
        return RememberedJoin(self, spans, list(map(everything_of, spans)))

    async def committing(self, spans: Sequence[Span]) -> None:
        """Called at each commit, which fails as this does."""


class HoldingStore(RememberingStore):
    """Holds parts, and merges them where they are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: list[bytes] = []
        self._merged: dict[bytes, bytes] = {}

    def hold(self, batch: WriteBatch, row: Measurement, *, sealed: bool) -> None:
        """What this batch has stored: a part with one row."""
        made = (batch.stored_id, b"t", b"m", batch.bucket.state.meta, START_MS, [row])
        self.documents[batch.stored_id] = part_document(*made, sealed=sealed)

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        stored = sorted(self.documents.items())
        for span in spans:
            ranges = [(each.first_id, each.last_id) for each in span.ranges]
            parts = [part for first, last in ranges for identity, part in stored if first <= identity <= last]
            self._merged[span.ranges[-1].last_id] = span.merge(parts)
        return await super().prepare_join(collection, spans, deadline_seconds)

    async def committing(self, spans: Sequence[Span]) -> None:
        self.joined += [self._merged[span.ranges[-1].last_id] for span in spans]


class JoiningBench(CatalogBench):
    """Buckets grow in parts from their second batch on; ``growth``: when segments end."""

    def __init__(self, options: JoiningOptions = OPTIONS, **growth: Any) -> None:
        super().__init__(growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1, **growth))
        self.store = RememberingStore()
        self.joining = Joining(self.catalog, self.store, self.clock, Nobody(), options, lambda _: None, UNTOUCHED)

    def end_segment(self) -> None:
        """Its parts are old."""
        self.catalog.growth.segments.end_old(math.inf)


def bench_of_parts(forms: Forms, *, full: bool) -> tuple[JoiningBench, HoldingStore, Joining]:
    """One bucket in parts that is due, over a store that has them."""
    bench, store = JoiningBench(), HoldingStore()
    options = replace(OPTIONS, compress=True)
    joining = Joining(bench.catalog, store, bench.clock, Nobody(), options, lambda _: None, forms)
    for number in range(8):
        row = measurement(number, v="x" * 200, w=number)
        store.hold(bench.commit(row), row, sealed=True)
    (bucket,) = bench.catalog.growth.parted
    assert bucket.parts is not None
    bucket.parts.full = full
    bench.clock.now += 3
    return bench, store, joining
