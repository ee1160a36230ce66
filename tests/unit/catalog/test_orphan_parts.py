"""What other processes left in parts is joined later, and only when they did not do it themselves."""

from __future__ import annotations

import pytest

from catalog.namespaces import VirtualCollection
from catalog.orphan_parts import SWEPT_SPANS
from catalog.ports import COPIES_SECONDS
from tests.support.catalog_parts import measurement
from tests.support.joining_bench import JoiningBench, RememberingStore

FIRST, LAST = b"first67890" + bytes(2), b"first67890" + b"\0\x05"


class LeftStore(RememberingStore):
    """Holds parts of somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.documents = {FIRST: b"", LAST: b""}

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> list[tuple[bytes, bytes]]:
        self.looks += 1
        return [(FIRST[:9] + bytes(3), LAST[:9] + b"\0\0\x05")]

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: object, deadline_seconds: float
    ) -> dict[bytes, bytes]:
        return self.documents


class SweptBench(JoiningBench):
    def __init__(self) -> None:
        super().__init__()
        self.store: LeftStore = LeftStore()
        self.joining._store = self.joining._sweeping._store = self.store
        self.store.documents = {FIRST[:9] + bytes(3): b""}
        self.buckets.stored_until_ms = SWEPT_SPANS * self.buckets.span_ms
        self.stage(measurement())


async def test_parts_of_others_wait_until_no_copy_can_come() -> None:
    bench = SweptBench()
    await bench.joining._sweeping.sweep()
    bench.clock.now += COPIES_SECONDS - 1
    assert await bench.joining._sweeping.sweep() == 0
    bench.clock.now += 1
    assert await bench.joining._sweeping.sweep() == 2
    assert bench.store.joins == [(FIRST[:9] + bytes(3), LAST[:9] + b"\0\0\x05")]
    assert bench.store.looks == 1


@pytest.mark.parametrize("joined", [True, False])
async def test_parts_that_their_writer_has_joined_are_left_alone(joined: bool) -> None:
    bench = SweptBench()
    await bench.joining._sweeping.sweep()
    if joined:
        bench.store.documents = {}
    bench.clock.now += COPIES_SECONDS
    await bench.joining._sweeping.sweep()
    assert len(bench.store.joins) == (not joined)
