"""Columns of objects and arrays: what a server reads, and what it would have written itself (W147)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from bson import DatetimeMS, ObjectId, decode, encode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from catalog.bson import raw
from catalog.column import encode_column
from catalog.compression import compressed
from catalog.interleaving import sections
from tests.property.test_kernel_forms import damaged
from tests.support.kernels import COMPILED, INTERPRETED
from tests.support.measurement_strategies import START_MS, any_value
from tests.support.mongod import MongodProcess

pytestmark = [
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
    pytest.mark.timeout(120 + 60 * float(os.environ.get("TSPROXY_TEST_SCALE", "1"))),
]
RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
ABSENT: Any = object()
SERIES = itertools.count()

_steady = st.sampled_from(
    [
        lambda row: row,
        lambda row: row % 3,
        lambda row: row * row / 100,
        lambda row: DatetimeMS(START_MS + 1000 * row + row // 9),
        lambda row: ["ok", "warning", "more than sixteen characters"][row * row % 3],
        lambda row: ObjectId((START_MS // 1000 + row).to_bytes(4, "big") + b"abcde" + row.to_bytes(3, "big")),
        lambda row: row % 7 == 0,
        lambda row: 5,
    ]
)
_wild = st.lists(any_value, min_size=1, max_size=3).map(lambda values: lambda row: values[row % len(values)])


def _leaves(*, wild: bool) -> st.SearchStrategy[Any]:
    return st.one_of(_steady, _steady, _wild) if wild else _steady


def _shapes(depth: int, *, wild: bool) -> st.SearchStrategy[Any]:
    """A leaf as a function of the row; a branch as fields: name, shape, and in which rows it is missing."""
    leaf = _leaves(wild=wild)
    if depth == 0:
        return leaf
    inner = st.one_of(leaf, leaf, _shapes(depth - 1, wild=wild))
    missing = st.sampled_from([0, 0, 0, 2, 3, 7, -4, -20])
    fields = st.lists(
        st.tuples(st.sampled_from("abcdefg"), inner, missing), min_size=0, max_size=4, unique_by=lambda field: field[0]
    )
    return st.tuples(st.sampled_from(["object", "object", "array", "turning"]), fields)


def _value(shape: Any, row: int) -> Any:
    if callable(shape):
        return shape(row)
    kind, fields = shape
    there = [
        (name, _value(inner, row))
        for name, inner, missing in fields
        if not (missing > 0 and row % missing == 1) and not (missing < 0 and row < -missing)
    ]
    if kind == "array":
        return [value for _, value in there]
    return dict(reversed(there) if kind == "turning" and row % 11 == 10 else there)


@st.composite
def columns(draw: st.DrawFn, *, wild: bool = True) -> list[Any]:
    """The values of a column, of one shape and perhaps then of another."""
    values: list[Any] = []
    for _ in range(draw(st.integers(1, 2 if wild else 1))):
        shape = draw(_shapes(2, wild=wild).filter(lambda shape: not callable(shape)))
        absent = draw(st.sampled_from([0, 0, 0, 2, 5]))
        for row in range(draw(st.sampled_from([2, 4, 9, 30, 70]))):
            values.append(ABSENT if absent and row % absent == 1 else _value(shape, row))
    return values


def bucket(values: Sequence[Any]) -> bytes:
    times = {str(row): DatetimeMS(START_MS + 1000 * row) for row in range(len(values))}
    cells = {str(row): value for row, value in enumerate(values) if value is not ABSENT}
    padding = {str(row): "x" * 200 for row in range(len(values))}
    ends = {"t": DatetimeMS(START_MS)}
    return encode(
        {
            "_id": ObjectId((START_MS // 1000).to_bytes(4, "big") + b"abcdefgh"),
            "control": {"version": 1, "min": ends, "max": {"t": DatetimeMS(START_MS + 3_000_000)}},
            "meta": 1,
            "data": {"t": times, "padding": padding, **({"o": cells} if cells else {})},
        }
    )


def cells_of(rows: Sequence[RawBSONDocument]) -> list[bytes | None]:
    return [raw.fields_of(bytes(row.raw)).get(b"o") for row in rows]


@pytest.fixture(scope="module")
def database(mongod: MongodProcess) -> Iterator[Database[Any]]:
    with mongod.client() as client:
        client.drop_database("interleaving")
        for name in ("read", "native"):
            client["interleaving"].create_collection(name, timeseries={"timeField": "t", "metaField": "m"})
        yield client["interleaving"]
        client.drop_database("interleaving")


@given(values=columns())
def test_a_server_reads_objects_that_were_taken_apart(database: Database[Any], values: list[Any]) -> None:
    smaller = compressed(bucket(values), b"t")
    if smaller is None:
        return
    series, identity = next(SERIES), ObjectId()
    stored = database.get_collection("system.buckets.read", RAW)
    stored.insert_one(decode(smaller) | {"_id": identity, "meta": series})
    expected = [None if value is ABSENT else raw.fields_of(encode({"o": value}))[b"o"] for value in values]
    unpack = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}
    assert cells_of(list(database.get_collection("read", RAW).find({"m": series}))) == expected
    rows = stored.aggregate([{"$match": {"_id": identity}}, {"$_internalUnpackBucket": unpack}])
    assert cells_of(list(rows)) == expected


def _outcome(form: Any, document: bytes) -> Any:
    try:
        return form(document, b"t")
    except ValueError:
        return "refused"


@given(document=st.one_of(columns().map(bucket), damaged(columns().map(bucket))))
def test_both_forms_take_apart_alike(document: bytes) -> None:
    form = (COMPILED or INTERPRETED).compressed
    assert _outcome(compressed, document) == _outcome(form, document)


def references(stream: bytes) -> list[bytes]:
    """The control byte and reference of each section, by walking the stream."""
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        control = stream[at]
        if control in (0xF1, 0xF2):
            end = raw.value_end(stream, raw.OBJECT, at + 1, len(stream))
            found.append(stream[at:end])
            at = end
        elif 0 < control < 0x20:
            at = raw.value_end(stream, control, at + 2, len(stream))
        else:
            at += 1 + 8 * ((control & 15) + 1) if control else 1
    return found


@given(batch=st.lists(columns(wild=False), min_size=2, max_size=4))
def test_sections_are_those_that_a_server_makes(database: Database[Any], batch: list[list[Any]]) -> None:
    """Its own compressed buckets, and ours of the rows that are in them; ours are not larger."""
    if database.client.server_info()["versionArray"][:2] < [6, 0]:
        # 5.0 compresses nothing (W9).
        return
    series = [next(SERIES) for _ in batch]
    for meta, values in zip(series, batch, strict=True):
        sent = [
            {"t": DatetimeMS(START_MS + 1000 * row), "m": meta, "padding": "x" * 50, "o": value}
            for row, value in enumerate(values)
        ]
        database["native"].insert_many([{k: v for k, v in row.items() if v is not ABSENT} for row in sent])
    database["native"].insert_many([{"t": DatetimeMS(START_MS - 10**8), "m": meta} for meta in series])
    buckets = database.get_collection("system.buckets.native", RAW)
    unpack = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}
    for stored in buckets.find({"meta": {"$in": series}, "control.version": 2, "data.o": {"$exists": True}}):
        known = decode(stored.raw)
        rows = buckets.aggregate([{"$match": {"_id": known["_id"]}}, {"$_internalUnpackBucket": unpack}])
        cells = cells_of(list(rows))
        ours, theirs = encode_column(cells), bytes(known["data"]["o"])
        assert ours is not None
        assert references(ours) == references(theirs)
        assert len(ours) <= len(theirs)
        made = [section.reference for section in sections(cells) if section.reference is not None]
        assert [reference.document() for reference in made] == [each[1:] for each in references(ours)]
