"""Buckets without some of their measurements (U8)."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.background.replacing import Differs
from catalog.bson.codec import CODEC
from catalog.kernel.documents import bucket_document
from rewrite import repacking
from rewrite.repacking import columns_of, repacked, survivors

NOON = 1_700_000_040_000
ROWS: list[dict[str, Any]] = [
    {"t": DatetimeMS(NOON + 5000), "v": 9, "w": {"x": 1}},
    {"t": DatetimeMS(NOON + 1000), "v": 2},
    {"t": DatetimeMS(NOON + 3000), "w": {"x": 7, "y": "s"}, "a.b": None},
]
BUCKET: dict[str, Any] = {
    "_id": ObjectId(),
    "control": {"version": 2, "min": {"t": DatetimeMS(NOON), "v": 0}, "max": {"t": DatetimeMS(NOON + 9000), "v": 99}},
    "meta": {"a": [1, {"b": 2}]},
    "data": {},
}


def encoded(*rows: dict[str, Any]) -> list[bytes]:
    """As they come from the backend."""
    return [bson.encode(row, codec_options=CODEC) for row in rows]


def test_rows_are_numbered_anew_and_summaries_are_theirs() -> None:
    """The id, the meta value and the start stay; a compressed bucket becomes one of version 1 (W3, W20)."""
    bucket = bson.decode(repacked(encoded(BUCKET)[0], encoded(*ROWS[1:]), b"t"), codec_options=CODEC)
    assert bucket == {
        "_id": BUCKET["_id"],
        "control": {
            "version": 1,
            "min": {"t": DatetimeMS(NOON), "v": 2, "w": {"x": 7, "y": "s"}, "a.b": None},
            "max": {"t": DatetimeMS(NOON + 3000), "v": 2, "w": {"x": 7, "y": "s"}, "a.b": None},
        },
        "meta": {"a": [1, {"b": 2}]},
        "data": {
            "t": {"0": ROWS[1]["t"], "1": ROWS[2]["t"]},
            "v": {"0": 2},
            "w": {"1": {"x": 7, "y": "s"}},
            "a.b": {"1": None},
        },
    }


def test_a_bucket_without_meta_stays_without() -> None:
    without = {name: value for name, value in BUCKET.items() if name != "meta"}
    bucket = bson.decode(repacked(encoded(without)[0], encoded(ROWS[0]), b"t"), codec_options=CODEC)
    assert "meta" not in bucket


def test_what_is_no_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="without"):
        repacked(encoded({"_id": ObjectId(), "data": {}})[0], encoded(ROWS[0]), b"t")


def test_equal_measurements_go_one_by_one() -> None:
    one, two = encoded(ROWS[0], ROWS[1])
    assert survivors([one, two, one, one], [one, one]) == [two, one]
    assert survivors([one, two], [one, two]) == []


def test_rows_that_are_not_there_tell_that_the_bucket_changed() -> None:
    one, two = encoded(ROWS[0], ROWS[1])
    assert survivors([one], [two]) is None
    assert survivors([one], [one, one]) is None


def test_fields_are_left_out_byte_for_byte() -> None:
    row = bson.encode({"t": 1, "m": 2, "tag": {"id": 3}, "v": 4})
    assert columns_of(row, (b"m", b"tag")) == bson.encode({"t": 1, "v": 4})


@pytest.mark.parametrize("lost", [b"v", b"t", b"a.b"])
def test_a_bucket_that_does_not_hold_the_others_is_not_made(lost: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong in what makes it: measurements that nobody deleted stay."""

    def without(bucket_id: bytes, meta: bytes, ends: Any, columns: Any) -> bytes:
        return bucket_document(bucket_id, meta, ends, [(name, cells) for name, cells in columns if name != lost])

    monkeypatch.setattr(repacking, "bucket_document", without)
    with pytest.raises(Differs):
        repacked(encoded(BUCKET)[0], encoded(*ROWS), b"t")
