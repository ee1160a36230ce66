"""Buckets of one series with different starts get the same one, and nothing else of them changes."""

from __future__ import annotations

from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from catalog.background.aligning import aligned, rows_of
from catalog.bson.codec import decode, encode
from catalog.kernel import has_true_header, join_documents
from catalog.parts import bucket_of
from tests.support.catalog_parts import HOUR_MS, START_MS, measurement

MINUTE_MS = 60_000


def bucket(start_ms: int, *offsets_ms: int, meta: Any = "a") -> bytes:
    rows = [measurement(each, meta, v=each, control={"min": {"t": DatetimeMS(each)}}) for each in offsets_ms]
    return bucket_of(bytes(12), b"t", b"m", rows[0].meta, start_ms, rows)


def test_the_earliest_start_is_that_of_all() -> None:
    late, early = bucket(START_MS + MINUTE_MS, MINUTE_MS, 2 * MINUTE_MS), bucket(START_MS, 0, 3 * MINUTE_MS)
    documents = aligned([late, early], b"t", HOUR_MS)
    assert documents[1] == early
    expected = decode(late)
    expected["control"]["min"]["t"] = DatetimeMS(START_MS)
    assert documents[0] == encode(expected)
    joined, rows = join_documents(documents, bytes(12), b"t", b"m")
    assert rows == 4
    assert has_true_header(joined, b"t")


def test_equal_starts_stay_whatever_the_span_is() -> None:
    documents = [bucket(START_MS, 0), bucket(START_MS, HOUR_MS)]
    assert aligned(documents, b"t", 1) == documents


def test_buckets_that_are_too_far_apart_are_refused() -> None:
    documents = [bucket(START_MS + MINUTE_MS, HOUR_MS - 1), bucket(START_MS, 0)]
    assert len(aligned(documents, b"t", HOUR_MS)) == 2
    documents = [bucket(START_MS + MINUTE_MS, HOUR_MS), bucket(START_MS, 0)]
    with pytest.raises(ValueError, match="do not fit"):
        aligned(documents, b"t", HOUR_MS)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"control": 1},
        {"control": {"min": {"t": DatetimeMS(START_MS + MINUTE_MS)}}},
        {"control": {"min": {"t": 1}, "max": {"t": DatetimeMS(0)}}},
        {"data": {"control": {"min": {"t": DatetimeMS(0)}}}},
    ],
)
def test_what_is_no_bucket_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="without a start, an end or times"):
        aligned([encode(document), bucket(START_MS, 0)], b"t", HOUR_MS)


def test_the_last_one_keeps_its_id_and_so_its_start() -> None:
    with pytest.raises(ValueError, match="another one starts first"):
        aligned([bucket(START_MS, 0), bucket(START_MS + MINUTE_MS, MINUTE_MS)], b"t", HOUR_MS)


@pytest.mark.parametrize("rows", [1, 9, 10, 11, 99, 100, 101, 999, 1000, 1001, 12_345])
def test_rows_are_counted(rows: int) -> None:
    assert rows_of(bucket(START_MS, *range(rows)), b"t") == rows


@pytest.mark.parametrize("times", [{"0": 1}, {"0": DatetimeMS(0), "x" * 20: DatetimeMS(0)}, 7])
def test_other_times_are_not_counted(times: Any) -> None:
    with pytest.raises(ValueError, match=r"wrong length|without"):
        rows_of(encode({"data": {"t": times}}), b"t")
