"""``distinct`` on native collections and through the proxy (Q1, C26)."""

from __future__ import annotations

from typing import Any

from tests.support.read_twins import at, fill, refusals
from tests.support.twins import Twins

KEYS = ("m", "m.a", "m.tags", "m.tags.0", "m.none", "v", "w", "s", "o", "o.p", "o.list", "t", "none", "_id")
QUERIES: list[dict[str, Any]] = [{}, {"m.a": 1}, {"v": {"$lt": 6}}, {"t": {"$gte": at(20)}}, {"m.a": 17}]


def test_values(twins: Twins) -> None:
    """Values come in no order; array elements count one by one; ``ok`` is an int32."""
    fill(twins)
    for key in KEYS:
        for query in QUERIES:
            native, virtual = twins.both({"distinct": "x", "key": key, "query": query})
            assert sorted(map(repr, virtual.pop("values"))) == sorted(map(repr, native.pop("values"))), (key, query)
            assert virtual == native
            assert type(virtual["ok"]) is int


def test_missing_meta_is_no_value(twins: Twins) -> None:
    """W35: a null meta value is one, a missing one is none."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    twins.same({"insert": "x", "documents": [{"t": at(1)}]})
    assert twins.same({"distinct": "x", "key": "m"})["values"] == []
    twins.same({"insert": "x", "documents": [{"t": at(1), "m": None}]})
    assert twins.same({"distinct": "x", "key": "m"})["values"] == [None]
    assert twins.same({"distinct": "x", "key": "m.a"})["values"] == []


def test_collation(twins: Twins) -> None:
    """Values that are equal under the collation are one."""
    fill(twins)
    _, reply = twins.both({"distinct": "x", "key": "s", "collation": {"locale": "en", "strength": 2}})
    assert sorted(value.lower() for value in reply["values"]) == ["high", "low", "mid"]


def test_refusals(twins: Twins) -> None:
    """Malformed options."""
    fill(twins, count=3)
    refused: list[dict[str, Any]] = [{"key": 1}, {}, {"key": "v", "query": 5}, {"key": "v", "unknown": 1}]
    assert refusals(twins, [{"distinct": "x", **options} for options in refused]) == [14, 40414, 14, 40415]
