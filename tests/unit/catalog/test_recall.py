"""Rows of an earlier process are found again by their ``_id`` (W102)."""

from __future__ import annotations

from bson import ObjectId

from catalog.kernel import BucketState
from catalog.open_bucket import Series
from catalog.recall import Recall
from tests.support.catalog_parts import (
    HOUR_MS,
    KEY,
    START_MS,
    CatalogBench,
    RememberingWriter,
    measurement,
)

IDS = [ObjectId() for _ in range(6)]


def stored(*ids: object) -> bytes:
    """A bucket document of an earlier process."""
    return CatalogBenchDocument(*ids).document


class CatalogBenchDocument:
    def __init__(self, *ids: object) -> None:
        (batch,) = CatalogBench().stage(*(measurement(n, _id=each) for n, each in enumerate(ids)))
        batch.claim()
        state = batch.bucket.state
        self.document = state.prepare(batch.measurements)


def series_of(bench: CatalogBench) -> Series:
    return bench.buckets.series.setdefault(b"\x02\x02\0\0\0a\0", Series(bench.buckets, b"\x02\x02\0\0\0a\0"))


def test_holds_the_rows_of_all_documents_that_were_found() -> None:
    recall, series = Recall(10), series_of(CatalogBench())
    recall.remember(series, stored(*IDS[:2]))
    recall.remember(series, stored(IDS[2]))
    assert [recall.holds(series, measurement(_id=each)) for each in IDS] == [True] * 3 + [False] * 3


def test_measurement_without_id_is_never_held() -> None:
    recall, series = Recall(10), series_of(CatalogBench())
    recall.remember(series, stored(*IDS[:2]))
    assert not recall.holds(series, measurement())


def test_document_that_tells_nothing_is_ignored() -> None:
    recall, series = Recall(10), series_of(CatalogBench())
    recall.remember(series, b"\x05\0\0\0\0")
    assert not recall.holds(series, measurement(_id=IDS[0]))


def test_rows_are_bounded() -> None:
    bench = CatalogBench()
    recall = Recall(10, rows_limit=3)
    first, second = Series(bench.buckets, b"1"), Series(bench.buckets, b"2")
    recall.remember(first, stored(*IDS[:2]))
    recall.remember(second, stored(*IDS[2:4]))
    assert first.recalled is None
    assert recall.holds(second, measurement(_id=IDS[2]))


def test_forgets_all_when_nobody_can_be_retrying_any_more() -> None:
    bench = CatalogBench()
    recall, series = Recall(10), series_of(bench)
    recall.remember(series, stored(IDS[0]))
    assert recall.is_active(9.9)
    assert not recall.is_active(10)
    assert series.recalled is None
    assert not bench.buckets.series


def test_statement_that_an_earlier_process_wrote_is_not_written_again() -> None:
    """W102: in the look that finds its bucket, and later too."""
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS)
    document = stored(*IDS[:2])
    writer, other = RememberingWriter(), RememberingWriter()
    bench.catalog.place_retried(bench.buckets, measurement(0, _id=IDS[0]), writer, 0, KEY)
    bench.catalog.place_retried(bench.buckets, measurement(9, _id=IDS[5]), other, 0, KEY)
    (lookup,) = bench.catalog.take_lookups()
    ((series, _),) = lookup.wanted
    bench.catalog.recall.remember(series, document)
    state = BucketState.from_document(document, b"t", b"m", HOUR_MS, bench.catalog.options.limits)
    bench.catalog.looked_up(lookup, {series.meta: state})
    assert writer.codes == {0: None}
    assert other.codes == {}
    (batch,) = bench.catalog.take_unclaimed()
    assert len(batch.measurements) == 1
    late = RememberingWriter()
    assert bench.catalog.place_retried(bench.buckets, measurement(1, _id=IDS[1]), late, 3, KEY) is None
    assert late.codes == {3: None}


def test_after_a_while_nothing_is_taken_as_written() -> None:
    bench = CatalogBench(recall_seconds=120)
    series = series_of(bench)
    bench.catalog.recall.remember(series, stored(IDS[0]))
    bench.clock.now += 120
    writer = RememberingWriter()
    assert bench.catalog.place_retried(bench.buckets, measurement(_id=IDS[0]), writer, 0, KEY) is not None
    assert writer.codes == {}
