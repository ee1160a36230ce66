"""Which stored buckets are filled on, alike in both forms (W50)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Binary, DatetimeMS, ObjectId

from catalog.kernel.reopen_validation import reopened_bucket
from catalog.kernel.rollover import Limits, RolloverReason
from tests.support.kernels import KERNELS, bucket_for, measure, written
from tests.support.mongod import MongodProcess

pytestmark = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
SPAN_MS = 3_600_000


def adopted(kernel: Any, document: bytes) -> Any:
    return kernel.BucketState.from_document(document, b"t", b"m", SPAN_MS, Limits())


def stored(kernel: Any) -> bytes:
    first = measure(kernel, {"t": 65_000, "m": {"b": 1, "a": 2}, "v": 1, "o": {"x": [1]}})
    state = bucket_for(kernel, first)
    state.try_stage(first)
    second = measure(kernel, {"t": 60_000, "m": {"b": 1, "a": 2}, "v": 5, "s": "x"})
    state.try_stage(second)
    return bytes(state.prepare([first, second]))


def test_an_adopted_bucket_goes_on_where_it_was_left(kernel: Any) -> None:
    document = stored(kernel)
    state = adopted(kernel, document)
    assert (state.rows, state.committed_rows, state.size_bytes) == (2, 2, len(document))
    assert (state.start_ms, state.bucket_id) == (60_000, document[9:21])
    later = measure(kernel, {"t": 61_000, "m": {"a": 2, "b": 1}, "v": 0, "o": {"x": [0]}, "s": "x"})
    assert state.meta == later.meta
    sets = written(state, later)["u"]["$set"]
    assert sets["data.v.2"] == 0
    assert {name: value for name, value in sets.items() if name.startswith("control")} == {
        "control.min.v": 0,
        "control.min.o": {"x": [0]},
    }


def test_an_adopted_bucket_knows_its_schema(kernel: Any) -> None:
    """W47 goes on over a restart."""
    state = adopted(kernel, stored(kernel))
    for content in ({"v": "x"}, {"o": {"x": ["text"]}}, {"s": None}):
        assert state.try_stage(measure(kernel, {"t": 61_000, **content})) == RolloverReason.SCHEMA_CHANGE
    assert state.try_stage(measure(kernel, {"t": 59_000})) == RolloverReason.TIME_BACKWARD


def test_the_servers_own_bucket_can_be_adopted(kernel: Any, mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    database.c.insert_many([{"t": DatetimeMS(60_000 + i), "m": "x", "v": {"a": [i]}, f"f{i}": 1} for i in range(3)])
    buckets = database["system.buckets.c"].with_options(bson.CodecOptions(document_class=bson.raw_bson.RawBSONDocument))
    [bucket] = buckets.find()
    state = adopted(kernel, bytes(bucket.raw))
    assert state.rows == 3


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "compressed": lambda bucket: bucket["control"].update(version=2),
    "closed": lambda bucket: bucket["control"].update(closed=True),
    "no control": lambda bucket: bucket.pop("control"),
    "no data": lambda bucket: bucket.pop("data"),
    "no rows": lambda bucket: bucket["data"].update(t={}),
    "column compressed": lambda bucket: bucket["data"].update(v=Binary(b"\0", 7)),
    "hole in the rows": lambda bucket: bucket["data"].update(t={"0": DatetimeMS(60_000), "2": DatetimeMS(60_000)}),
    "rows in disorder": lambda bucket: bucket["data"].update(t={"1": DatetimeMS(60_000), "0": DatetimeMS(60_000)}),
    "column in disorder": lambda bucket: bucket["data"].update(v={"1": 1, "0": 5}),
    "row beyond time": lambda bucket: bucket["data"].update(v={"0": 1, "2": 5}),
    "bad row name": lambda bucket: bucket["data"].update(v={"00": 1}),
    "time after the span": lambda bucket: bucket["data"]["t"].update({"1": DatetimeMS(60_000 + SPAN_MS)}),
    "time before the start": lambda bucket: bucket["data"]["t"].update({"1": DatetimeMS(59_999)}),
    "time after the summary": lambda bucket: bucket["data"]["t"].update({"1": DatetimeMS(65_001)}),
    "time of another type": lambda bucket: bucket["data"]["t"].update({"1": 1}),
    "id of another start": lambda bucket: bucket.update(_id=ObjectId("000000000102030405060708")),
    "id of another type": lambda bucket: bucket.update(_id="x"),
    "no minimum": lambda bucket: bucket["control"]["min"].pop("v"),
    "no maximum": lambda bucket: bucket["control"]["max"].pop("v"),
    "unknown column": lambda bucket: bucket["data"].update(new={"0": 1}),
    "shapes that differ": lambda bucket: bucket["control"]["max"].update(v="x"),
    "ends in disorder": lambda bucket: bucket["control"]["max"].update(v=0),
    "paths that differ": lambda bucket: bucket["control"]["max"].update(o={"y": [1]}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_buckets_that_cannot_be_trusted_are_refused(kernel: Any, damage: str) -> None:
    bucket = copy.deepcopy(bson.decode(stored(kernel)))
    DAMAGE[damage](bucket)
    with pytest.raises(ValueError, match=r"."):
        adopted(kernel, bson.encode(bucket))


def test_foreign_fields_of_control_are_left_alone(kernel: Any) -> None:
    """W2: readers ignore them."""
    bucket = bson.decode(stored(kernel))
    bucket["control"].update(owner="x", closed=False, version=1.0)
    assert adopted(kernel, bson.encode(bucket)).rows == 2
    assert reopened_bucket(bson.encode(bucket), b"t", b"m", SPAN_MS).rows == 2
