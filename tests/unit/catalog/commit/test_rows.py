"""Rows are equal when every field is, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Binary, Int64, ObjectId

from catalog.bson.codec import decode, encode
from catalog.commit.rows import (
    digest_of,
    digest_of_stored,
    digest_without_meta,
    is_unique,
    row_digest,
    rows_in,
    with_id,
)
from tests.support.catalog_parts import CatalogBench, measurement


def test_fields_cannot_run_into_one_another() -> None:
    alike: list[tuple[bytes, dict[bytes, bytes]]] = [
        (b"", {b"a": b"\x0a", b"b": b"\x0a"}),
        (b"", {b"ab": b"\x0a"}),
        (b"", {b"a": b"\x0a\0b\x0a"}),
        (b"\x0a", {b"a": b"\x0a"}),
        (b"", {b"a": b"\x0a"}),
        (b"", {}),
    ]
    assert len({row_digest(*each) for each in alike}) == len(alike)


def test_order_of_fields_does_not_matter_but_their_types_do() -> None:
    assert digest_of(measurement(a=1, b=2)) == digest_of(measurement(b=2, a=1))
    different = [
        measurement(a=each) for each in (1, 1.0, Int64(1), True, "1", None, {"x": 1, "y": 2}, {"y": 2, "x": 1})
    ]
    assert len({digest_of(each) for each in different}) == len(different)


@pytest.mark.parametrize("meta", ["a", {"b": 1, "a": [1]}, None, 5])
def test_a_row_is_the_same_measured_stored_and_read(meta: Any) -> None:
    one, other = measurement(0, meta, v=1), measurement(1, meta, v=2, w={"a": 1})
    (batch,) = CatalogBench().stage(one, other, one)
    batch.claim()
    document = batch.bucket.state.prepare(batch.measurements)
    assert rows_in(document) == {digest_of(one): 2, digest_of(other): 1}
    assert rows_in(document, with_meta=False) == {digest_without_meta(one): 2, digest_without_meta(other): 1}
    stored_meta = decode(document)["meta"]
    read = encode({"t": decode(one.raw)["t"], "m": stored_meta, "v": 1})
    assert digest_of_stored(read, b"m") == digest_of(one)


def test_a_bucket_that_is_none_cannot_tell() -> None:
    with pytest.raises(ValueError, match="version"):
        rows_in(encode({"control": {"version": 2}, "data": {}}))
    with pytest.raises(ValueError, match="no object"):
        rows_in(encode({"control": {"version": 1}, "data": {"t": 1}}))


@pytest.mark.parametrize("chosen", [ObjectId(), "sensor-7/12", Binary(bytes(16), 4), {"sensor": 7, "row": 12}])
def test_ids_of_drivers_and_names_are_unique(chosen: object) -> None:
    assert is_unique(measurement(_id=chosen))


def test_numbers_and_missing_ids_are_not_unique() -> None:
    for chosen in (1, 1.5, Int64(1), None, True):
        assert not is_unique(measurement(_id=chosen))
    assert not is_unique(measurement())


def test_positions_with_an_id() -> None:
    assert with_id([measurement(), measurement(_id=None), measurement(_id=1)]) == [1, 2]
