"""What other processes left in parts is joined later, and only when they did not do it themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from catalog.orphan_parts import CONFLICT_PAUSE_SECONDS, SWEPT_SPANS, OrphanParts
from catalog.parts import join
from catalog.ports import COPIES_SECONDS, Span
from catalog.replacing import Differs
from tests.support.catalog_parts import CatalogBench, measurement
from tests.support.joining_bench import Nobody, RememberingStore

FIRST, LAST = b"first67890" + bytes(2), b"first67890" + b"\0\x05"


class LeftStore(RememberingStore):
    """Holds parts of somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.unreachable = False
        self.error: CommandError | None = None
        self.documents = {FIRST: b"", LAST: b""}

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> list[tuple[bytes, bytes]]:
        self.looks += 1
        if self.unreachable:
            raise BackendUnavailable("gone")
        return [(FIRST[:9] + bytes(3), LAST[:9] + b"\0\0\x05")]

    async def join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> Sequence[int | None]:
        if self.error is not None:
            raise self.error
        return await super().join(collection, spans, deadline_seconds)

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: object, deadline_seconds: float
    ) -> dict[bytes, bytes]:
        return self.documents


class Somebody:
    """A reader is always under way."""

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        yield False

    still_kept_out = True


class SweptBench(CatalogBench):
    """A process that writes to a collection in which another one has left parts."""

    def __init__(self) -> None:
        super().__init__()
        self.store = LeftStore()
        self.refused: list[CommandError] = []
        self.noticed: list[Differs] = []
        self.orphans = OrphanParts(
            self.catalog,
            self.store,
            self.clock,
            Nobody(),
            lambda buckets, document_id: join,
            self.refused.append,
            self.noticed.append,
        )
        self.store.documents = {FIRST[:9] + bytes(3): b""}
        self.buckets.stored_until_ms = SWEPT_SPANS * self.buckets.span_ms
        self.stage(measurement())


async def test_parts_of_others_wait_until_no_copy_can_come() -> None:
    bench = SweptBench()
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS - 1
    assert await bench.orphans.sweep() == 0
    bench.clock.now += 1
    assert await bench.orphans.sweep() == 2
    assert bench.store.joins == [(FIRST[:9] + bytes(3), LAST[:9] + b"\0\0\x05")]
    assert bench.store.looks == 1


@pytest.mark.parametrize("joined", [True, False])
async def test_parts_that_their_writer_has_joined_are_left_alone(joined: bool) -> None:
    bench = SweptBench()
    await bench.orphans.sweep()
    if joined:
        bench.store.documents = {}
    bench.clock.now += COPIES_SECONDS
    await bench.orphans.sweep()
    assert len(bench.store.joins) == (not joined)


async def test_readers_under_way_are_not_disturbed() -> None:
    bench = SweptBench()
    bench.orphans = OrphanParts(
        bench.catalog, bench.store, bench.clock, Somebody(), lambda *_: join, bench.refused.append, bench.noticed.append
    )
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    assert bench.store.joins == []


@pytest.mark.parametrize(
    ("error", "refused", "again"),
    [
        (CommandError(112, "held by a transaction"), 0, True),
        (CommandError(13, "not authorized"), 1, False),
        (CommandError(26, "gone"), 0, False),
        (BackendUnavailable("gone"), 0, True),
    ],
)
async def test_what_cannot_be_joined_is_tried_again_only_where_that_may_help(
    error: CommandError, refused: int, again: bool
) -> None:
    bench = SweptBench()
    bench.store.error = error
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    bench.store.error = None
    bench.clock.now += CONFLICT_PAUSE_SECONDS
    assert await bench.orphans.sweep() == (2 if again else 0)
    assert (len(bench.refused), len(bench.store.joins)) == (refused, int(again))
    assert bench.noticed == []


async def test_a_backend_that_was_away_is_looked_at_again() -> None:
    bench = SweptBench()
    bench.store.unreachable = True
    await bench.orphans.sweep()
    bench.store.unreachable = False
    await bench.orphans.sweep()
    assert bench.store.looks == 2
