"""Whether stored rows are those of a batch, where equal rows may be others' (W127)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId

from catalog.bson.codec import decode, encode
from catalog.buckets.write_batch import WriteBatch
from catalog.commit.written import LARGEST_FAMILY_BYTES, is_written, is_written_elsewhere
from catalog.kernel.compression import compressed
from tests.support.catalog_parts import CatalogBench, measurement

SAME: dict[str, Any] = {"v": 1}


class Bench(CatalogBench):
    """A bucket with one committed row ``SAME``, and a batch that grows it."""

    def __init__(self, *fields: dict[str, Any]) -> None:
        super().__init__()
        first = self.commit(measurement(**SAME))
        self.batch: WriteBatch
        (self.batch,) = self.stage(*(measurement(**each) for each in fields))
        self.batch.claim()
        assert self.catalog.prepare(self.batch) is not None
        self.first = first

    def document(self, *fields: dict[str, Any], closed: bool = True) -> bytes:
        """The bucket with these rows."""
        other = CatalogBench()
        (batch,) = other.stage(*(measurement(**each) for each in fields))
        batch.claim()
        document = decode(batch.bucket.state.prepare(batch.measurements))
        if closed:
            document["control"]["closed"] = True
        return encode(document)


def test_an_equal_row_that_was_there_before_is_not_ours() -> None:
    """The bucket was closed and has one row as before: nobody can say whether one of two was taken out."""
    bench = Bench(SAME)
    assert is_written(bench.document(SAME), bench.batch, is_alone=True) is None
    assert is_written_elsewhere([bench.document(SAME)], bench.batch, is_alone=True) is None


def test_equal_rows_are_ours_when_there_are_as_many_as_there_must_be() -> None:
    bench = Bench(SAME, SAME)
    assert is_written(bench.document(SAME, SAME, SAME), bench.batch, is_alone=True) is True


def test_equal_rows_that_are_elsewhere_may_be_of_anybody() -> None:
    """Another process may have added its rows to the bucket."""
    bench = Bench(SAME, SAME)
    assert is_written_elsewhere([bench.document(SAME), bench.document(SAME, SAME)], bench.batch, is_alone=True) is None
    assert is_written_elsewhere([bench.document(SAME, SAME)], bench.batch, is_alone=True) is None
    assert is_written_elsewhere([bench.document({"v": 9})], bench.batch, is_alone=True) is False


@pytest.mark.parametrize("others", [[], [SAME]])
def test_a_row_with_an_id_of_a_driver_tells_for_its_batch(others: list[dict[str, Any]]) -> None:
    unique = {"_id": ObjectId(), "v": 2}
    bench = Bench(unique, *others)
    assert is_written(bench.document({"v": 9}, unique), bench.batch, is_alone=True) is True
    assert is_written_elsewhere([bench.document(unique)], bench.batch, is_alone=True) is True


def test_rows_that_another_process_may_have_stored_tell_only_for_themselves() -> None:
    """It was asked for one of two statements again, and has stored its row in the same bucket."""
    one, two = ({"_id": ObjectId(), "v": value} for value in (1, 2))
    bench = Bench(one, two)
    assert is_written(bench.document({"v": 9}, one), bench.batch, is_alone=False) is None
    assert is_written(bench.document({"v": 9}, two, one), bench.batch, is_alone=False) is True
    assert is_written(bench.document({"v": 9}), bench.batch, is_alone=False) is False
    assert is_written_elsewhere([bench.document(one)], bench.batch, is_alone=False) is None
    assert is_written_elsewhere([bench.document(one), bench.document(two)], bench.batch, is_alone=False) is True
    assert is_written_elsewhere([], bench.batch, is_alone=False) is False


def test_a_new_bucket_is_known_although_its_meta_was_changed_and_a_row_deleted() -> None:
    """Both by clients past the proxy, before it has seen whether the bucket was stored."""
    bench = CatalogBench()
    (batch,) = bench.stage(*(measurement(_id=ObjectId(), v=value) for value in (1, 2)))
    batch.claim()
    assert bench.catalog.prepare(batch) is not None
    document = decode(batch.bucket.state.prepare(batch.measurements))
    document["meta"] = "renamed"
    document["control"]["closed"] = True
    document["data"] = {name: {"0": column["1"]} for name, column in document["data"].items()}
    assert is_written(encode(document), batch, is_alone=True) is True


def test_rows_that_differ_in_a_value_are_not_ours() -> None:
    bench = Bench({"_id": ObjectId(), "v": 2})
    (ours,) = bench.batch.measurements
    other = {"_id": decode(ours.raw)["_id"], "v": 3}
    assert is_written(bench.document(SAME, other), bench.batch, is_alone=True) is False
    assert is_written_elsewhere([bench.document(SAME, other)], bench.batch, is_alone=True) is False
    assert is_written_elsewhere([], bench.batch, is_alone=True) is False


@pytest.mark.parametrize("is_there", [True, False])
def test_a_compressed_bucket_tells_as_well(is_there: bool) -> None:
    """A healthy backend may hold one: a delete closed the bucket, and it was compressed before anybody looked."""
    unique = {"_id": ObjectId(), "v": 2}
    bench = Bench(unique)
    others = [{"_id": ObjectId(), "v": 7} for _ in range(50)]
    packed = compressed(bench.document(*others, *([unique] if is_there else [])), b"t")
    assert packed is not None
    assert is_written(packed, bench.batch, is_alone=True) is is_there
    assert is_written_elsewhere([packed], bench.batch, is_alone=True) is is_there


def test_a_compressed_bucket_that_cannot_be_read_cannot_tell() -> None:
    bench = Bench(SAME)
    packed = decode(bench.document(SAME))
    packed["control"]["version"] = 2
    for count in (1, 1 << 30):
        packed["control"]["count"] = count
        assert is_written_elsewhere([encode(packed)], bench.batch, is_alone=True) is None
        assert is_written(encode(packed), bench.batch, is_alone=True) is None


def test_of_a_large_family_only_the_buckets_of_the_series_are_read() -> None:
    """The others are those of a server, and may be all of a minute."""
    unique = {"_id": ObjectId(), "v": 2}
    bench = Bench(unique)
    ours = bench.document(unique)
    other = {**decode(ours), "meta": "another", "data": "not to be read", "padding": "x" * LARGEST_FAMILY_BYTES}
    assert is_written_elsewhere([encode(other), ours], bench.batch, is_alone=True) is True
    assert is_written_elsewhere([encode(other)], bench.batch, is_alone=True) is False
