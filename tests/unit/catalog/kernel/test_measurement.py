"""Measurements are checked whole and split once, alike in both forms."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import DatetimeMS, Int64, Regex

from catalog.bson import raw
from catalog.errors import CommandError
from catalog.kernel.measurement import MAX_FIELD_LEVELS, MAX_META_LEVELS, normalised
from tests.support.kernels import KERNELS, measure
from tests.support.mongod import MongodProcess

pytestmark = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def value_of(value: Any) -> bytes:
    return raw.fields_of(bson.encode({"v": value}))[b"v"]


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_a_measurement_is_split_into_time_meta_and_columns(kernel: Any) -> None:
    """W3: the meta field is no column, every other field is."""
    document = {"_id": 1, "t": 5, "m": "x", "control": 2, "": None}
    measurement = measure(kernel, document)
    assert measurement.time_ms == 5
    assert measurement.meta == value_of("x")
    assert list(measurement.columns) == [b"_id", b"t", b"control", b""]
    assert measurement.columns[b"t"] == value_of(DatetimeMS(5))
    assert measurement.raw == bson.encode({**document, "t": DatetimeMS(5)})
    assert measurement.payload_bytes == 5 + 9 + 5 + 1


@pytest.mark.parametrize("time", ["absent", None, "2024", Int64(1), {}, bson.Timestamp(1, 1)])
def test_a_measurement_without_valid_time_is_refused(kernel: Any, time: Any) -> None:
    """W96, with the server's words."""
    document = {} if time == "absent" else {"when": time}
    with pytest.raises(CommandError) as caught:
        kernel.parse_measurement(bson.encode({**document, "x": 1}), b"when", None)
    assert caught.value.code == 2
    assert caught.value.message == "'when' must be present and contain a valid BSON UTC datetime value"


def test_a_time_field_without_name_is_refused(kernel: Any) -> None:
    """A bucket of such a collection that is written as a document ends mongod 6.0.5."""
    with pytest.raises(CommandError) as caught:
        kernel.parse_measurement(bson.encode({"": DatetimeMS(0)}), b"", None)
    assert caught.value.code == 2


def test_meta_is_normalised_at_every_depth(kernel: Any) -> None:
    """W33: names by their bytes, arrays in their order, objects in arrays too."""
    sent = {"é": 1, "b": 1, "a": [{"d": 1, "c": 1}, 2], "aa": 1, "B": 1, "9": 1, "10": 1, "$b": 1, "": 1}
    meta = measure(kernel, {"t": 0, "m": sent}).meta
    stored = bson.decode(meta[1:])
    assert list(stored) == ["", "$b", "10", "9", "B", "a", "aa", "b", "é"]
    assert list(stored["a"][0]) == ["c", "d"]
    assert stored["a"][1] == 2
    assert meta == normalised(value_of(sent))


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (1, Int64(1)), ("a", "A"), ({}, []), ([1, 2], [2, 1]), (None, "absent"), (Regex("a"), Regex("b"))],
)
def test_meta_keys_are_bytes(kernel: Any, left: Any, right: Any) -> None:
    """W34, W35: equal only when type and bytes are; missing is not null."""
    keys = [measure(kernel, {"t": 0} | ({} if meta == "absent" else {"m": meta})).meta for meta in (left, right)]
    assert keys[0] != keys[1]


def test_missing_meta_is_an_empty_key(kernel: Any) -> None:
    """W35."""
    assert measure(kernel, {"t": 0}).meta == b""
    assert measure(kernel, {"t": 0, "m": 1}, meta_field=None).meta == b""


def test_undefined_meta_is_a_key_of_its_own(kernel: Any) -> None:
    """W35."""
    document = raw.document((b"\x06m\0", b"\x09t\0" + bytes(8)))
    assert kernel.parse_measurement(document, b"t", b"m").meta == b"\x06"


def test_of_repeated_fields_the_first_counts(kernel: Any) -> None:
    """W36: there is one entry in a row whatever was sent."""
    parts = (b"\x09t\0" + bytes(8), b"\x10m\0\1\0\0\0", b"\x10a\0\1\0\0\0")
    later = (b"\x09t\0" + b"\1" * 8, b"\x10m\0\2\0\0\0", b"\x10a\0\2\0\0\0")
    measurement = kernel.parse_measurement(raw.document(parts + later), b"t", b"m")
    assert measurement.time_ms == 0
    assert measurement.meta == b"\x10\1\0\0\0"
    assert measurement.columns == {b"t": b"\x09" + bytes(8), b"a": b"\x10\1\0\0\0"}


def test_nesting_that_no_bucket_can_hold_is_refused(kernel: Any) -> None:
    """W99: with what a server says to such a document in an ordinary collection."""
    measure(kernel, {"t": 0, "f": nested(MAX_FIELD_LEVELS), "m": nested(MAX_META_LEVELS)})
    for document in ({"f": nested(MAX_FIELD_LEVELS + 1)}, {"m": nested(MAX_META_LEVELS + 1)}):
        with pytest.raises(CommandError) as caught:
            measure(kernel, {"t": 0, **document})
        assert caught.value.code == 15
        assert caught.value.message == "cannot insert document because it exceeds 180 levels of nesting"


def test_the_server_stores_what_is_just_not_too_deep(kernel: Any, mongod: MongodProcess, db_name: str) -> None:
    """W99: a bucket of the deepest measurement can be written and appended to."""
    from tests.support.kernel_driver import KernelCollection

    database = mongod.shared_client[db_name]
    database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    collection = KernelCollection(kernel, database["system.buckets.c"])
    for name in ("plain", "o.d.d"):
        document = {"t": DatetimeMS(0), name: nested(MAX_FIELD_LEVELS), "m": nested(MAX_META_LEVELS)}
        collection.insert([bson.encode(document)])
    assert database.c.count_documents({}) == 2


def test_what_is_no_bson_is_refused(kernel: Any) -> None:
    document = bytearray(bson.encode({"t": DatetimeMS(0), "o": {"s": "text"}}))
    document[document.index(b"text") - 4] = 77
    with pytest.raises(CommandError) as caught:
        kernel.parse_measurement(bytes(document), b"t", None)
    assert caught.value.code == 22


def test_a_measurement_that_no_bucket_can_hold_is_refused_alone(kernel: Any) -> None:
    """W98: data, min and max hold it three times."""
    measure(kernel, {"t": 0, "f": "x" * (5 * 1024 * 1024)})
    measure(kernel, {"t": 0, "m": "x" * (15 * 1024 * 1024)})
    for document in ({"f": "x" * (6 * 1024 * 1024)}, {"m": "x" * (5 * 1024 * 1024), "f": "x" * (4 * 1024 * 1024)}):
        with pytest.raises(CommandError) as caught:
            measure(kernel, {"t": 0, **document})
        assert caught.value.code == 10334
