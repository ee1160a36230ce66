"""What makes one stored form differ from another, for both forms of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId, decode

from catalog.bson.codec import CODEC, encode
from catalog.kernel.compression import compressed
from catalog.kernel.merging import join_documents
from tests.support.kernels import KERNELS

FORMS = pytest.mark.parametrize("form", KERNELS.values(), ids=KERNELS)
START_MS = 1_700_000_040_000
PADDING = "x" * 300
Change = Callable[[dict[str, Any]], object]


def _bucket(*rows: dict[str, Any], meta: Any = 1, first_row: int = 0) -> bytes:
    data: dict[str, dict[str, Any]] = {"t": {}}
    for number, row in enumerate(rows):
        for name, value in {"t": DatetimeMS(START_MS + number + first_row), **row, "p": PADDING}.items():
            data.setdefault(name, {})[str(number)] = value
    ends = {
        "t": DatetimeMS(START_MS),
        **{name: next(iter(column.values())) for name, column in data.items() if name != "t"},
    }
    control = {"version": 1, "min": ends, "max": ends}
    return encode({"_id": ObjectId(b"twelve bytes"), "control": control, "meta": meta, "data": data})


ROWS: list[dict[str, Any]] = [
    {"a": 1, "o": {"x": 1, "y": [1, {"z": 2}]}, "t": DatetimeMS(START_MS + 5)},
    {"a": 2, "t": DatetimeMS(START_MS + 2)},
    {"b": Decimal128("1.0"), "o": {"x": 1, "y": [1, {"z": 2}]}, "t": DatetimeMS(START_MS - 2**42)},
    {"a": -0.0, "b": Decimal128("1.0"), "t": DatetimeMS(START_MS + 2)},
]


def _changed(document: bytes, change: Change) -> bytes:
    content = decode(document, codec_options=CODEC)
    change(content)
    return encode(content)


@FORMS
def test_a_bucket_is_what_it_was_compressed_from(form: Any) -> None:
    """Sorted by time, signed; rows of one time as they stood (W6, W7)."""
    bucket = _bucket(*ROWS)
    packed = compressed(bucket, b"t")
    assert packed is not None
    assert form.same_rows(bucket, packed, b"t")
    assert not form.same_rows(bucket, bucket, b"t")
    assert not form.same_rows(packed, packed, b"t")
    assert not form.same_rows(bucket, packed, b"a")
    assert not form.same_rows(bucket, packed, b"none")


def _value(column: str, row: str, value: Any) -> Change:
    return lambda bucket: bucket["data"][column].__setitem__(row, value)


def _turned(bucket: dict[str, Any]) -> None:
    bucket["data"]["o"]["2"] = {"y": [1, {"z": 2}], "x": 1}


CHANGES: dict[str, Change] = {
    "a value": _value("a", "1", 3),
    "a type": _value("a", "1", Int64(2)),
    "a sign of zero": _value("a", "3", 0.0),
    "a representation": _value("b", "3", Decimal128("1.00")),
    "an order of fields": _turned,
    "a nested type": _value("o", "0", {"x": 1, "y": [1, {"z": 2.0}]}),
    "a nested field that is missing": _value("o", "0", {"x": 1, "y": [1, {}]}),
    "an array that is an object": _value("o", "0", {"x": 1, "y": {"0": 1, "1": {"z": 2}}}),
    "null for nothing": _value("o", "3", None),
    "a row that is missing": lambda bucket: bucket["data"]["a"].pop("0"),
    "a time": _value("t", "1", DatetimeMS(START_MS + 3)),
    "an order of times": _value("t", "1", DatetimeMS(START_MS + 9)),
    "a column": lambda bucket: bucket["data"].pop("b"),
    "another column": lambda bucket: bucket["data"].__setitem__("c", {"0": 1}),
    "the meta value": lambda bucket: bucket.__setitem__("meta", 1.0),
    "no meta value": lambda bucket: bucket.pop("meta"),
    "the id": lambda bucket: bucket.__setitem__("_id", ObjectId()),
    "a summary": lambda bucket: bucket["control"]["max"].__setitem__("a", 7),
    "something in control": lambda bucket: bucket["control"].__setitem__("closed", False),
    "a field of the bucket": lambda bucket: bucket.__setitem__("more", 1),
}


@FORMS
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_shows(form: Any, change: Change) -> None:
    bucket = _bucket(*ROWS)
    other = _changed(bucket, change)
    packed, other_packed = compressed(bucket, b"t"), compressed(other, b"t")
    assert packed is not None
    assert other_packed is not None
    assert form.same_rows(other, other_packed, b"t")
    assert not form.same_rows(other, packed, b"t")
    assert not form.same_rows(bucket, other_packed, b"t")


PACKED_CHANGES: dict[str, Change] = {
    "another version": lambda bucket: bucket["control"].__setitem__("version", 3),
    "another count": lambda bucket: bucket["control"].__setitem__("count", 5),
    "no count": lambda bucket: bucket["control"].pop("count"),
    "another subtype": lambda bucket: bucket["data"].__setitem__("a", Binary(bytes(bucket["data"]["a"]), 0)),
    "a column out of order": lambda bucket: bucket["data"].__setitem__("t", bucket["data"].pop("t")),
    "a stream that goes on": lambda bucket: bucket["data"].__setitem__("a", Binary(bucket["data"]["a"] + b"\0", 7)),
}


@FORMS
@pytest.mark.parametrize("change", PACKED_CHANGES.values(), ids=PACKED_CHANGES)
def test_a_compressed_form_of_another_format_is_none(form: Any, change: Change) -> None:
    bucket = _bucket(*ROWS)
    packed = compressed(bucket, b"t")
    assert packed is not None
    assert not form.same_rows(bucket, _changed(packed, change), b"t")


def _parts() -> list[bytes]:
    return [
        _bucket({"a": 1, "o": {"x": 1}}),
        _bucket({"a": 2}, {"b": Decimal128("1.0")}, first_row=1),
        _bucket({"b": Decimal128("1.0"), "a": -0.0}, first_row=3),
    ]


def _joined() -> bytes:
    return join_documents(_parts(), b"twelve bytes", b"t", b"m")[0]


@FORMS
def test_a_join_holds_each_row_of_its_parts_once(form: Any) -> None:
    parts, joined = _parts(), _joined()
    assert form.holds_parts(joined, parts, b"t")
    for others in (parts[1:], parts[:-1], [*parts, parts[-1]], [parts[1], parts[0], parts[2]], []):
        assert not form.holds_parts(joined, others, b"t")
    assert not form.holds_parts(joined, [*parts[:-1], _changed(parts[-1], lambda part: part.pop("meta"))], b"t")
    assert not form.holds_parts(joined, [*parts[:-1], b"\5\0\0\0\0"], b"t")
    assert not form.holds_parts(b"", parts, b"t")


JOINED_CHANGES: dict[str, Change] = {
    "a value": _value("a", "1", 3),
    "a sign of zero": _value("a", "3", 0.0),
    "a representation": _value("b", "2", Decimal128("1.00")),
    "a row more": lambda bucket: bucket["data"]["t"].__setitem__("4", DatetimeMS(START_MS)),
    "a value more": _value("b", "4", 1),
    "a value less": lambda bucket: bucket["data"]["o"].pop("0"),
    "rows that do not ascend": lambda bucket: bucket["data"]["a"].__setitem__("0", bucket["data"]["a"].pop("0")),
    "a column more": lambda bucket: bucket["data"].__setitem__("c", {"0": 1}),
    "a column less": lambda bucket: bucket["data"].pop("o"),
    "another meta value": lambda bucket: bucket.__setitem__("meta", Int64(1)),
    "another start": lambda bucket: bucket["control"]["min"].__setitem__("t", DatetimeMS(START_MS + 1)),
    "another version": lambda bucket: bucket["control"].__setitem__("version", 2),
}


@FORMS
@pytest.mark.parametrize("change", JOINED_CHANGES.values(), ids=JOINED_CHANGES)
def test_every_change_of_a_join_shows(form: Any, change: Change) -> None:
    assert not form.holds_parts(_changed(_joined(), change), _parts(), b"t")


@FORMS
def test_a_bucket_holds_rows(form: Any) -> None:
    rows = [encode({**row, "p": PADDING}) for row in ROWS]
    bucket = _bucket(*ROWS)
    assert form.holds_rows(bucket, rows, b"t")
    for others in (rows[1:], rows[:-1], [*rows, rows[-1]], rows[::-1], []):
        assert not form.holds_rows(bucket, others, b"t")
    for change in CHANGES.values():
        changed = _changed(bucket, change)
        assert form.holds_rows(changed, rows, b"t") is (_data(changed) == _data(bucket))


def _data(bucket: bytes) -> bytes:
    return encode(decode(bucket, codec_options=CODEC)["data"])
