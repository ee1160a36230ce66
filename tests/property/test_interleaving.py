"""Columns of objects and arrays: what a server reads, and what it would have written itself (W147)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from bson import DatetimeMS, ObjectId, decode, encode
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from catalog.bson import raw
from catalog.kernel.column import encode_column
from catalog.kernel.compression import compressed
from catalog.kernel.interleaving import sections
from tests.support.bucket_strategies import damaged
from tests.support.column_strategies import (
    ABSENT,
    RAW,
    SERIES,
    SLOW_TO_GENERATE,
    few_shapes,
    object_bucket,
    object_columns,
)
from tests.support.kernels import COMPILED, INTERPRETED
from tests.support.measurement_strategies import START_MS
from tests.support.mongod import MongodProcess

pytestmark = SLOW_TO_GENERATE


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


@given(values=object_columns())
def test_a_server_reads_objects_that_were_taken_apart(database: Database[Any], values: list[Any]) -> None:
    smaller = compressed(object_bucket(values), b"t")
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


@given(seed=st.integers(0, 2**32))
def test_a_server_reads_columns_of_few_shapes(database: Database[Any], seed: int) -> None:
    """W150: what one section leaves behind in a server must not make the next one unreadable."""
    sent: dict[int, list[Any]] = {}
    for values in few_shapes(seed):
        smaller = compressed(object_bucket(values), b"t")
        if smaller is not None:
            series = next(SERIES)
            sent[series] = values
            stored = database.get_collection("system.buckets.read", RAW)
            stored.insert_one(decode(smaller) | {"_id": ObjectId(), "meta": series})
    for series, values in sent.items():
        expected = [None if value is ABSENT else raw.fields_of(encode({"o": value}))[b"o"] for value in values]
        assert cells_of(list(database.get_collection("read", RAW).find({"m": series}))) == expected


_LONG = "long name " * 3
_BRANCH = {"b" + _LONG: {"c" + _LONG: 2.0**63}}
_OTHER = {"d" + _LONG: {"c" + _LONG: 2.0**63}}


@pytest.mark.parametrize(
    ("without", "whole"),
    [
        ({"a": 1}, {"a": 1, **_BRANCH}),
        (_BRANCH, {**_BRANCH, **_OTHER}),
        (_BRANCH, _OTHER),
        ({"d": {"e": 1}}, {"d": {"e": 1, **_BRANCH}}),
        ({"a": 1}, {"a": 1, "b" + _LONG: [1.5, "long enough"]}),
        ([1], [1, _BRANCH]),
        ([_BRANCH], [_BRANCH, _OTHER]),
        ([False], [{"a": [0]}, False]),
        ([0, [[1.5, None]]], {"b" * 50: [True]}),
    ],
)
def test_a_server_reads_rows_without_value_among_rows_that_lack_a_branch(
    database: Database[Any], without: Any, whole: Any
) -> None:
    """W150: a server that is given sections with both fails, or ends, at some lengths of names.

    The last two do not fit one reference, so there are several sections.
    """
    stored = database.get_collection("system.buckets.read", RAW)
    sent: dict[int, list[Any]] = {}
    for kinds in itertools.product((ABSENT, without, whole), repeat=4):
        smaller = compressed(object_bucket(kinds), b"t")
        assert smaller is not None
        series = next(SERIES)
        sent[series] = list(kinds)
        stored.insert_one(decode(smaller) | {"_id": ObjectId(), "meta": series})
    for series, rows in sent.items():
        read = list(database["read"].find({"m": series}))
        assert [row.get("o", ABSENT) for row in read] == rows


def test_only_what_servers_may_fail_to_read_is_not_split() -> None:
    """W150."""
    whole, without = encode({"o": {"a": 1, "b": {"c": 1}}}), encode({"o": {"a": 1}})
    full, part = (raw.fields_of(each)[b"o"] for each in (whole, without))

    def is_split(*cells: bytes | None) -> bool:
        return bool(references(encode_column(cells) or b""))

    other = raw.fields_of(encode({"o": [1]}))[b"o"]
    assert is_split(full, None, full, part, full)
    assert is_split(full, other, full)
    assert is_split(None, full, None, other)
    assert not is_split(full, other, None)
    assert not is_split(full, None, other, full, None)
    assert is_split(full, part)
    assert is_split(None, part, full)
    assert is_split(part, None, part)
    assert not is_split(full, part, None)
    assert not is_split(part, None, full)
    assert not is_split(part, full, full, None, full)
    assert not is_split(full, part, bytes((raw.INT32,)) + bytes(4), None)


def _outcome(form: Any, document: bytes) -> Any:
    try:
        return form(document, b"t")
    except ValueError:
        return "refused"


@given(document=st.one_of(object_columns().map(object_bucket), damaged(object_columns().map(object_bucket))))
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


@given(batch=st.lists(object_columns(wild=False), min_size=2, max_size=4))
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
        if references(theirs) and not references(ours):
            # A server finds only when it reads what it wrote whether that can be read (W150).
            assert None in cells
            continue
        assert references(ours) == references(theirs)
        assert len(ours) <= len(theirs)
        made = [section.reference for section in sections(cells) if section.reference is not None]
        assert [reference.document() for reference in made] == [each[1:] for each in references(ours)]
