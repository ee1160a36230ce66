"""Which values of a read differ from one read to the next, and what the reads then have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.namespaces import VirtualCollection
from proxy.reads.plan_slots import HIGH, LOW, META, elements_of, millis_of, shape_of, slots_of
from proxy.request.command import Command, parse_command
from proxy.wire.message import Message
from tests.support.raw_wire import command
from tests.support.scopes import TARGET

QUERY = {"m": "ab", "t": {"$gte": DatetimeMS(10**12), "$lt": DatetimeMS(10**12 + 1)}, "a": 5}


def parsed(document: Mapping[str, Any]) -> Command:
    return parse_command(Message.from_bytes(command({**document, "$db": "db"})))


def found(document: Mapping[str, Any], target: VirtualCollection = TARGET) -> list[tuple[int, bytes]] | None:
    slots = slots_of(parsed(document), target)
    return None if slots is None else [(slot.role, slot.value) for slot in slots]


@pytest.mark.parametrize(
    "read",
    [
        {"find": "x", "filter": QUERY},
        {"count": "x", "query": QUERY},
        {"distinct": "x", "key": "m", "query": QUERY},
        {"aggregate": "x", "pipeline": [{"$match": QUERY}, {"$match": {"m": "no"}}], "cursor": {}},
    ],
    ids=lambda read: next(iter(read)),
)
def test_the_series_and_the_times_in_the_filter(read: dict[str, Any]) -> None:
    assert found(read) == [
        (META, b"\3\0\0\0ab\0"),
        (LOW, (10**12).to_bytes(8, "little")),
        (HIGH, (10**12 + 1).to_bytes(8, "little")),
    ]


@pytest.mark.parametrize(
    "read",
    [
        {"find": "x"},
        {"find": "x", "filter": 5},
        {"find": "x", "query": QUERY},
        {"aggregate": "x", "pipeline": [], "cursor": {}},
        {"aggregate": "x", "pipeline": [5], "cursor": {}},
        {"aggregate": "x", "pipeline": [{"$project": {"m": "ab"}}], "cursor": {}},
        {"aggregate": "x", "pipeline": [{"$match": QUERY, "$limit": 1}], "cursor": {}},
        {"aggregate": "x", "pipeline": [{"$match": 5}], "cursor": {}},
        {"listIndexes": "x", "filter": QUERY},
        {"find": "x", "filter": {"b": bson.Regex("a"), **QUERY}},
    ],
    ids=str,
)
def test_nothing_is_found_elsewhere(read: dict[str, Any]) -> None:
    assert found(read) is None


def test_the_fields_are_those_of_the_collection() -> None:
    other = replace(TARGET, options=replace(TARGET.options, time_field="when", meta_field=None))
    assert found({"find": "x", "filter": QUERY}, other) is None
    assert found({"find": "x", "filter": {"m.a.b": 1, "mm": 2, "m": Int64(3)}}) == [
        (META, b"\1\0\0\0"),
        (META, b"\3" + bytes(7)),
    ]


def test_reads_with_other_values_have_the_same_shape_and_all_others_have_not() -> None:
    def shape(**query: Any) -> bytes:
        read = parsed({"find": "x", "filter": query, "limit": 3, "lsid": {"id": ObjectId()}})
        slots = slots_of(read, TARGET)
        assert slots is not None
        return shape_of(read, slots)

    known = shape(m="ab", a=1, t={"$gt": DatetimeMS(10**12)})
    assert known == shape(m="cd", a=1, t={"$gt": DatetimeMS(10**12 + 5)})
    others = [
        shape(m="abc", a=1, t={"$gt": DatetimeMS(10**12)}),
        shape(m="ab", a=2, t={"$gt": DatetimeMS(10**12)}),
        shape(m="ab", a=1, t={"$gte": DatetimeMS(10**12)}),
        shape(m="ab", t={"$gt": DatetimeMS(10**12)}, a=1),
        shape(m=5, a=1, t={"$gt": DatetimeMS(10**12)}),
    ]
    assert len({known, *others}) == 6
    assert shape(**{"m.a": "ab", "m.b": "abcd"}) != shape(**{"m.a": "abcd", "m.b": "ab"})


@pytest.mark.parametrize(
    "raw",
    [
        b"\5\0\0\0",
        b"\6\0\0\0\0",
        b"\x0c\0\0\0\x10aaaaa\0",
        b"\x0c\0\0\0\x02a\0\xff\0\0\0\0",
        b"\x0c\0\0\0\x02a\0\0\0\0\0\0",
        b"\x0b\0\0\0\x10a\0\1\0\0\0",
        b"\x08\0\0\0\x13a\0\0",
    ],
)
def test_malformed_documents_have_no_elements(raw: bytes) -> None:
    assert elements_of(raw, 0, len(raw)) is None


def test_elements_have_type_name_and_position() -> None:
    raw = bson.encode({"a": 1, "b": "x", "c": {"d": 1}, "e": [], "f": None, "g": True, "h": 1.5})
    elements = elements_of(raw, 0, len(raw))
    assert elements is not None
    assert b"".join(bytes([kind]) + name + b"\0" + raw[start:end] for kind, name, start, end in elements) == raw[4:-1]


def test_times_may_lie_before_1970() -> None:
    assert millis_of(bson.encode({"t": DatetimeMS(-5)})[7:15]) == -5
