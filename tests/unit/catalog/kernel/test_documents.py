"""Bucket documents and updates as a server takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, MaxKey, ObjectId, Regex
from bson.raw_bson import RawBSONDocument

from catalog.bson import raw
from catalog.kernel.documents import applied_rows
from tests.support.kernels import KERNELS, bucket_for, measure, written
from tests.support.mongod import MongodProcess

pytestmark = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
ID = ObjectId("000000000102030405060708")


def test_a_new_bucket_in_the_order_of_the_format(kernel: Any) -> None:
    """W3, W4, W20: the time column first, then fields as they were first seen; min of time is the start."""
    first = measure(kernel, {"b": 1, "t": 5_000, "m": {"y": 1, "x": 2}, "a": "s"})
    document = written(
        bucket_for(kernel, first), first, measure(kernel, {"t": 3_000, "m": {"y": 1, "x": 2}, "c": None})
    )
    assert list(document) == ["_id", "control", "meta", "data"]
    assert list(document["control"]) == ["version", "min", "max"]
    assert document == {
        "_id": ID,
        "control": {
            "version": 1,
            "min": {"t": DatetimeMS(0), "b": 1, "a": "s", "c": None},
            "max": {"t": DatetimeMS(5_000), "b": 1, "a": "s", "c": None},
        },
        "meta": {"x": 2, "y": 1},
        "data": {
            "t": {"0": DatetimeMS(5_000), "1": DatetimeMS(3_000)},
            "b": {"0": 1},
            "a": {"0": "s"},
            "c": {"1": None},
        },
    }
    assert list(document["data"]) == ["t", "b", "a", "c"]
    assert list(document["meta"]) == ["x", "y"]


def test_a_missing_meta_is_no_field_and_undefined_is_stored_as_null(kernel: Any) -> None:
    """W35."""
    without = measure(kernel, {"t": 0})
    assert "meta" not in written(bucket_for(kernel, without), without)
    undefined = kernel.parse_measurement(raw.document((b"\x06m\0", b"\x09t\0" + bytes(8))), b"t", b"m")
    state = bucket_for(kernel, undefined)
    assert written(state, undefined)["meta"] is None
    assert written(state, undefined)["q"]["$expr"] == {"$eq": ["$meta", {"$literal": None}]}


def test_an_append_sets_paths_and_only_changed_summaries(kernel: Any) -> None:
    """W121, W125: whole top-level summaries, and a guard on everything that is believed."""
    first = measure(kernel, {"t": 5_000, "m": "dev", "v": 5, "o": {"a": [1, 2]}})
    state = bucket_for(kernel, first)
    written(state, first)
    statement = written(state, measure(kernel, {"t": 4_000, "m": "dev", "v": 7, "o": {"a": [0], "b": 1}}))
    assert statement == {
        "q": {
            "_id": ID,
            "control.version": 1,
            "control.closed": {"$ne": True},
            "meta": {"$eq": "dev", "$not": {"$type": 4}},
            "data.t.0": {"$exists": True},
            "data.t.1": {"$exists": False},
        },
        "u": {
            "$set": {
                "data.t.1": DatetimeMS(4_000),
                "data.v.1": 7,
                "data.o.1": {"a": [0], "b": 1},
                "control.max.v": 7,
                "control.min.o": {"a": [0, 2], "b": 1},
                "control.max.o": {"a": [1, 2], "b": 1},
            }
        },
    }


METAS: dict[str, Any] = {
    "string": "x",
    "number": 1,
    "double": 1.5,
    "object": {"a": {"$b": 1}},
    "array": [1, 2],
    "null": None,
    "missing": "absent",
    "regex": Regex("a"),
    "code": Code("a", {"x": 1}),
    "max": MaxKey(),
    "binary": Binary(b"x", 4),
    "time": DatetimeMS(0),
    "id": ID,
    "flag": False,
}
INTERFERENCE: dict[str, Callable[[str], dict[str, Any]]] = {
    "nothing": lambda path: {"$set": {"control.note": 1}},
    "a row more": lambda path: {"$set": {f"data.{path}.1": DatetimeMS(0)}},
    "rows removed": lambda path: {"$set": {f"data.{path}": {}}},
    "compressed": lambda path: {"$set": {"control.version": 2, f"data.{path}": Binary(b"\0", 7)}},
    "closed": lambda path: {"$set": {"control.closed": True}},
    "other meta": lambda path: {"$set": {"meta": "somebody else"}},
    "meta in an array": lambda path: [{"$set": {"meta": {"$cond": [{"$isArray": "$meta"}, [["$meta"]], ["$meta"]]}}}],
    "meta removed": lambda path: {"$unset": {"meta": 1}},
}


@pytest.mark.parametrize("time_field", ["t", "a b", "0"])
@pytest.mark.parametrize("meta", METAS)
def test_the_guard_holds_for_every_meta(
    kernel: Any, mongod: MongodProcess, db_name: str, meta: str, time_field: str
) -> None:
    """W125: an append applies to the bucket as it was left, and to nothing else."""
    collection = mongod.shared_client[db_name].buckets
    content = {} if meta == "missing" else {"m": METAS[meta]}
    measurement = measure(kernel, {time_field: 0, **content}, time_field=time_field.encode())
    for interference, change in INTERFERENCE.items():
        state = bucket_for(kernel, measurement, time_field=time_field.encode())
        collection.delete_many({})
        state.try_stage(measurement)
        collection.insert_one(RawBSONDocument(state.prepare([measurement])))
        state.committed(1)
        collection.update_one({}, change(time_field))
        state.try_stage(measurement)
        statement = RawBSONDocument(state.prepare([measurement]))
        reply = mongod.shared_client[db_name].command({"update": "buckets", "updates": [statement]})
        harmless = interference == "nothing" or (interference == "meta removed" and meta == "missing")
        assert reply["n"] == int(harmless), interference


@pytest.mark.parametrize("time_field", ["$t", "$", "$[]"])
@pytest.mark.parametrize("meta", ["string", "array", "missing"])
def test_the_guard_holds_for_time_fields_that_no_path_addresses(
    kernel: Any, mongod: MongodProcess, db_name: str, meta: str, time_field: str
) -> None:
    """W108, W125: rows are looked for with an expression, also where the column is compressed or gone."""
    database = mongod.shared_client[db_name]
    content = {} if meta == "missing" else {"m": METAS[meta]}
    measurement = measure(kernel, {time_field: 0, **content}, time_field=time_field.encode())
    row = {time_field: {"0": DatetimeMS(0), "1": DatetimeMS(0)}}
    for data, matched in ((None, 1), (row, 0), ({time_field: Binary(b"\0", 7)}, 0), ({}, 0)):
        state = bucket_for(kernel, measurement, time_field=time_field.encode())
        database.buckets.delete_many({})
        state.try_stage(measurement)
        document = bson.decode(state.prepare([measurement]))
        database.buckets.insert_one(document if data is None else {**document, "data": data})
        state.committed(1)
        state.try_stage(measurement)
        reply = database.command({"update": "buckets", "updates": [RawBSONDocument(state.prepare([measurement]))]})
        assert reply["n"] == matched


def test_odd_names_and_many_rows_go_as_a_pipeline(kernel: Any) -> None:
    """W123: one odd name is enough; so are rows enough that a pipeline is cheaper."""
    first = measure(kernel, {"t": 0, "a": 1})
    state = bucket_for(kernel, first)
    written(state, first)
    assert isinstance(written(state, measure(kernel, {"t": 0, "a": 1}))["u"], dict)
    assert isinstance(written(state, measure(kernel, {"t": 0, "a.b": 1}))["u"], list)
    assert isinstance(written(state, *[first] * 8)["u"], list)


def test_a_wide_row_goes_as_a_pipeline(kernel: Any) -> None:
    """W123: the server would look for each of its paths from the first column, in quadratic time."""
    for fields, kind in ((999, dict), (1_000, list)):
        wide = measure(kernel, {"t": 0, **{f"f{i}": i for i in range(fields - 1)}})
        state = bucket_for(kernel, wide)
        written(state, wide)
        assert isinstance(written(state, wide)["u"], kind), fields


def test_statements_stay_small_whatever_the_names(kernel: Any) -> None:
    """A name of 10,000 bytes in 1,000 rows would not fit as that many paths."""
    measurement = measure(kernel, {"t": 0, "x" * 10_000: None})
    state = bucket_for(kernel, measurement)
    written(state, measurement)
    for _ in range(900):
        assert state.try_stage(measurement) == 0
    assert len(state.prepare([measurement] * 900)) < 200_000


def test_rows_are_found_again_after_an_unknown_outcome(kernel: Any) -> None:
    """W127: all columns of all rows have to be the same, and no others."""
    sent = [measure(kernel, {"_id": i, "t": i, "m": 1, "v": i} | ({"w": 1} if i % 2 else {})) for i in range(4)]
    state = bucket_for(kernel, sent[0])
    for measurement in sent:
        state.try_stage(measurement)
    document = state.prepare(sent)
    assert applied_rows(document, b"t", 0, sent)
    assert applied_rows(document, b"t", 2, sent[2:])
    assert not applied_rows(document, b"t", 1, sent[2:])
    assert not applied_rows(document, b"t", 3, sent[2:])
    assert not applied_rows(document, b"t", 0, [measure(kernel, {"_id": 0, "t": 0, "m": 1})])


def test_a_compressed_bucket_cannot_tell(kernel: Any) -> None:
    """W127: then the outcome stays unknown."""
    document = bson.encode({"_id": ID, "control": {"version": 2}, "data": {"t": Binary(b"\0", 7)}})
    with pytest.raises(ValueError, match="version 1"):
        applied_rows(document, b"t", 0, [measure(kernel, {"t": 0})])
