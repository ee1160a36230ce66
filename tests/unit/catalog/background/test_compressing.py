"""When buckets are replaced by their compressed form, and under which guard (W9, W130)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.background.compressing import MAX_DOCUMENT_BYTES, Compressing, CompressingOptions
from catalog.background.replacing import Forms
from catalog.bson.codec import decode, encode
from catalog.catalog import BucketCatalog
from catalog.errors import CommandError
from catalog.kernel import Limits, compressed
from catalog.parts import bucket_of
from catalog.ports import Applied, Rejected
from proxy.observe import tasks as tasks_module
from proxy.observe.tasks import TaskSet
from tests.support.catalog_parts import ACKNOWLEDGED, HOUR_MS, START_MS, CatalogBench, ScriptedStore, measurement
from tests.support.eventually import eventually

ROWS = 20


class Bench:
    """A catalog of buckets of twenty rows whose first one is full, and a store that holds it."""

    def __init__(self, compress: Callable[[bytes, bytes], bytes | None] = compressed, **fields: object) -> None:
        self.noticed: list[Exception] = []
        self.bench = CatalogBench(limits=Limits(max_count=ROWS))
        self.catalog: BucketCatalog = self.bench.catalog
        self.store = ScriptedStore()
        self.rows = [measurement(1000 * row, v=row, **fields) for row in range(ROWS)]
        batch = self.bench.commit(*self.rows)
        self.bucket_id = batch.bucket.state.bucket_id
        self.document = bucket_of(self.bucket_id, b"t", b"m", batch.bucket.state.meta, START_MS, self.rows)
        self.store.documents[self.bucket_id] = self.document
        self.compressing = Compressing(
            self.catalog, self.store, self.bench.clock, Forms(self.noticed.append, compress), CompressingOptions()
        )

    @property
    def figures(self) -> tuple[int, int]:
        counters = self.bench.buckets.counters
        return counters.numCompressedBuckets, counters.numUncompressedBuckets

    @property
    def left(self) -> dict[str, int]:
        return {reason: count for reason, count in self.compressing.metrics.left.items() if count}


async def test_a_full_bucket_is_replaced_as_it_was_read() -> None:
    """W130: whatever changed meanwhile, the compressed form does not undo it."""
    bench = Bench()
    await bench.compressing.compress_due()
    assert bench.store.sent == []
    bench.bench.commit(measurement(1000 * ROWS, v=1))
    await bench.compressing.compress_due()
    ((name, statements, _),) = bench.store.sent
    assert name == "update"
    statement = decode(statements[0])
    smaller = compressed(bench.document, b"t")
    assert smaller is not None
    changed = {name: {"$literal": decode(smaller)[name]} for name in ("control", "data")}
    assert statement["u"] == [{"$set": changed}], "the meta value is not ours to change"
    assert statement["q"]["control.version"] == 1
    assert statement["q"]["$expr"] == {"$eq": ["$$ROOT", {"$literal": decode(bench.document)}]}
    counters = bench.bench.buckets.counters
    for each in (counters, bench.catalog.totals):
        assert (each.numBytesUncompressed, each.numBytesCompressed) == (len(bench.document), len(smaller))
    assert bench.figures == (1, 0)
    await bench.compressing.compress_due()
    assert len(bench.store.sent) == 1


async def test_a_bucket_with_a_write_under_way_waits() -> None:
    bench = Bench()
    catalog = bench.catalog
    bench.bench = CatalogBench(limits=Limits(max_count=ROWS))
    (batch,) = bench.bench.stage(*bench.rows)
    batch.claim()
    bench.bench.catalog.prepare(batch)
    bench.bench.stage(measurement(1000 * ROWS))
    assert bench.bench.catalog.take_full() == []
    bench.bench.catalog.finish([batch], ACKNOWLEDGED)
    assert [ended.bucket_id for ended in bench.bench.catalog.take_full()] == [batch.bucket.state.bucket_id]
    assert catalog.take_full() == []


async def test_archived_buckets_are_left_until_nobody_comes_back() -> None:
    """W50"""
    bench = CatalogBench()
    bench.commit(measurement(0, v=1), measurement(1, v=2))
    bench.commit(measurement(HOUR_MS, v=1))

    def close_inactive(before: dict[bytes, int]) -> dict[bytes, int]:
        rows: dict[bytes, int] = {}
        list(bench.catalog.close_inactive(before, rows))
        return rows

    seen = close_inactive({})
    bench.commit(measurement(2, v=3))
    seen = close_inactive(seen)
    assert bench.catalog.take_full() == []
    bench.commit(measurement(HOUR_MS + 1, v=1))
    seen = close_inactive(seen)
    close_inactive(seen)
    assert len(bench.catalog.take_full()) == 1


async def test_parts_wait_until_they_are_one_document() -> None:
    bench = Bench()
    bench.bench.commit(measurement(1000 * ROWS))
    (ended,) = bench.catalog.take_full()
    assert ended.parts is None
    bench.catalog.keep_full(ended)
    assert bench.catalog.take_full() == [ended]


async def test_what_others_closed_or_compressed_is_left_alone() -> None:
    for version, closed in ((2, False), (1, True)):
        bench = Bench()
        document = decode(bench.document)
        document["control"] |= {"version": version, "closed": closed}
        bench.store.documents[bench.bucket_id] = encode(document)
        bench.bench.commit(measurement(1000 * ROWS))
        await bench.compressing.compress_due()
        assert bench.store.sent == []
        assert bench.figures == (0, 0)
        assert bench.left == {"other_form": 1}


async def test_a_lost_race_and_an_unreadable_backend_leave_the_bucket() -> None:
    bench = Bench()
    bench.bench.commit(measurement(1000 * ROWS))
    bench.store.answers.append(Applied(0, {}, ACKNOWLEDGED))
    await bench.compressing.compress_due()
    assert bench.figures == (0, 0)
    assert bench.left == {"changed": 1}
    bench = Bench()
    bench.bench.commit(measurement(1000 * ROWS))
    bench.store.unreadable = CommandError(13, "no")
    await bench.compressing.compress_due()
    assert bench.store.sent == []
    assert bench.left == {"unavailable": 1}
    bench = Bench()
    bench.bench.commit(measurement(1000 * ROWS))
    bench.store.answers.append(Rejected(CommandError(13, "no")))
    await bench.compressing.compress_due()
    assert bench.left == {"unavailable": 1}


async def test_buckets_without_a_smaller_form_are_counted_by_reason() -> None:
    bench = Bench(lambda document, time_field: None)
    bench.bench.commit(measurement(1000 * ROWS))
    await bench.compressing.compress_due()
    assert (bench.left, bench.figures) == ({"not_smaller": 1}, (0, 1))
    for reason, change in (("one_row", {"data": {"t": {"0": 1}}}), ("too_large", {"x": b"x" * MAX_DOCUMENT_BYTES})):
        bench = Bench(lambda document, time_field: None)
        bench.store.documents[bench.bucket_id] = encode({**decode(bench.document), **change})
        bench.bench.commit(measurement(1000 * ROWS))
        await bench.compressing.compress_due()
        assert (bench.left, bench.figures) == ({reason: 1}, (0, 0))


def _another_value(document: bytes, time_field: bytes) -> bytes | None:
    """As if a value changed between reading and writing."""
    changed = decode(document)
    changed["data"]["v"]["7"] += 1
    return compressed(encode(changed), time_field)


def _a_field_less(document: bytes, time_field: bytes) -> bytes | None:
    changed = decode(document)
    del changed["data"]["v"]["7"]
    return compressed(encode(changed), time_field)


def _a_row_less(document: bytes, time_field: bytes) -> bytes | None:
    changed = decode(document)
    for column in changed["data"].values():
        del column[str(ROWS - 1)]
    return compressed(encode(changed), time_field)


def _no_bucket(document: bytes, time_field: bytes) -> bytes | None:
    return b"\5\0\0\0\0"


@pytest.mark.parametrize("broken", [_another_value, _a_field_less, _a_row_less, _no_bucket])
async def test_what_is_compressed_wrongly_is_not_written(broken: Callable[[bytes, bytes], bytes | None]) -> None:
    """It stays as it was, it is told, and counted as one that stayed uncompressed."""
    bench = Bench(broken)
    bench.bench.commit(measurement(1000 * ROWS))
    await bench.compressing.compress_due()
    assert bench.store.sent == []
    assert ["differs from the stored one" in str(fault) for fault in bench.noticed] == [True]
    assert bench.figures == (0, 1)
    assert bench.left == {"wrong": 1}
    await bench.compressing.compress_due()
    assert len(bench.noticed) == 1


async def test_an_error_of_our_own_is_told_and_the_bucket_stays() -> None:
    error = TypeError("a bug")

    def compress(document: bytes, time_field: bytes) -> bytes | None:
        raise error

    bench = Bench(compress)
    bench.bench.commit(measurement(1000 * ROWS, v=1))
    await bench.compressing.compress_due()
    assert (bench.noticed, bench.left, bench.store.sent) == ([error], {"wrong": 1}, [])


async def test_compressing_goes_on_after_an_error_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, error = Bench(), TypeError("a bug")
    bench.compressing.options = CompressingOptions(interval_seconds=0.001)
    passes = 0

    async def compress_due() -> None:
        nonlocal passes
        passes += 1
        if passes == 1:
            raise error

    monkeypatch.setattr(bench.compressing, "compress_due", compress_due)
    monkeypatch.setattr(tasks_module, "AGAIN_SECONDS", 0.01)
    tasks = TaskSet(bench.noticed.append)
    tasks.keep(bench.compressing.run)
    await eventually(lambda: passes >= 3)
    await tasks.close()
    assert bench.noticed == [error]
