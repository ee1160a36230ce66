"""The server's comparison order, checked on the server by sorting the same values."""

from __future__ import annotations

import itertools
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from catalog.bson import raw
from catalog.bson.order import CANONICAL, compare
from tests.support.mongod import MongodProcess

NAN, INFINITY = float("nan"), float("inf")
ASCENDING: dict[str, list[Any]] = {
    "numbers": [
        NAN,
        -INFINITY,
        Int64(-(2**63)),
        Decimal128("-1.5"),
        -1,
        0.0,
        0.1,
        Decimal128("0.1000000000000000055511151231257828"),
        1,
        Decimal128("1.1"),
        2.0**53,
        Int64(2**53 + 1),
        Int64(2**63 - 1),
        2.0**63,
        Decimal128("1E+400"),
        INFINITY,
    ],
    "strings": ["", "A", "a", "a\0", "a\0b", "aa", "b", "é"],
    "binaries": [Binary(b"z", 5), Binary(b"aa", 0), Binary(b"bb", 0), Binary(b"aa", 128), Binary(b"aaa", 0)],
    "regexes": [Regex("", "i"), Regex("a", ""), Regex("a", "i"), Regex("ab", "")],
    "dates": [DatetimeMS(-(2**63)), DatetimeMS(-1), DatetimeMS(0), DatetimeMS(2**62)],
    "timestamps": [Timestamp(0, 1), Timestamp(1, 0), Timestamp(2**32 - 1, 0)],
    "codes": [Code(""), Code("a"), Code("b")],
    "scopes": [Code("a", {}), Code("a", {"x": 1}), Code("a", {"x": 2}), Code("a", {"y": 0}), Code("b", {})],
    "booleans": [False, True],
    "ids": [ObjectId("00" * 12), ObjectId("0f" * 12), ObjectId("ff" * 12)],
    "classes": [MinKey(), None, 1, "a", {}, Binary(b""), ObjectId(), False, DatetimeMS(0), Timestamp(1, 1), Regex("a")],
    "last classes": [Regex("a"), Code("a"), Code("a", {}), MaxKey()],
}
EQUAL: list[list[Any]] = [[1, 1.0, Int64(1), Decimal128("1.00")], [0.0, -0.0], [NAN, Decimal128("NaN")], [MinKey()] * 2]


def element_value(value: Any) -> bytes:
    return raw.fields_of(bson.encode({"v": value}))[b"v"]


@pytest.mark.parametrize("kind", ASCENDING)
def test_values_compare_as_listed(kind: str) -> None:
    """W22, W23."""
    values = [element_value(value) for value in ASCENDING[kind]]
    for left, right in itertools.combinations(values, 2):
        assert compare(left, right) == -1
        assert compare(right, left) == 1
        assert compare(left, left) == 0


@pytest.mark.parametrize("values", EQUAL)
def test_values_that_are_equal_whatever_their_type(values: list[Any]) -> None:
    """W21: of these the first seen stays."""
    for left, right in itertools.permutations(map(element_value, values), 2):
        assert compare(left, right) == 0


def test_the_server_sorts_so(mongod: MongodProcess, db_name: str) -> None:
    """The lists above are what a server's ascending sort gives."""
    collection = mongod.shared_client[db_name].get_collection(
        "values", bson.CodecOptions(document_class=RawBSONDocument)
    )
    for kind, values in ASCENDING.items():
        documents = [{"_id": f"{kind} {place:02}", "kind": kind, "v": value} for place, value in enumerate(values)]
        collection.insert_many([RawBSONDocument(bson.encode(document)) for document in reversed(documents)])
        found = [
            raw.fields_of(bytes(row.raw))[b"_id"][5:-1].decode() for row in collection.find({"kind": kind}).sort("v", 1)
        ]
        assert found == [document["_id"] for document in documents]


def test_types_that_share_a_class() -> None:
    """W47: numbers are one class, strings and symbols another."""
    assert len({CANONICAL[kind] for kind in (raw.INT32, raw.INT64, raw.DOUBLE, raw.DECIMAL128)}) == 1
    assert CANONICAL[raw.STRING] == CANONICAL[raw.SYMBOL] != CANONICAL[raw.CODE]
