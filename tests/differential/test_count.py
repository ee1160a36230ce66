"""``count`` on native collections and through the proxy (Q1, C26)."""

from __future__ import annotations

from typing import Any

from tests.support.read_twins import at, collection, compare, fill, refusals
from tests.support.twins import Twins

COUNTS: list[dict[str, Any]] = [
    {},
    {"query": {}},
    {"query": {"m.a": 1}},
    {"query": {"m.a": 17}},
    {"query": {"v": {"$gte": 10}}},
    {"query": {"t": {"$lt": at(60)}}},
    {"query": {"m.a": 1}, "collation": {"locale": "en", "strength": 2}},
    {"skip": 5},
    {"limit": 5},
    {"limit": 5, "skip": 38},
    {"limit": -4},
    {"query": {"m.a": 1}, "limit": 3, "skip": 1},
    {"hint": {"$natural": 1}},
    {"maxTimeMS": 60_000, "comment": "c", "readConcern": {"level": "local"}},
]


def test_counts(twins: Twins) -> None:
    """C26: ``n``, and ``ok`` as an int32."""
    fill(twins)
    replies = compare(twins, [{"count": "x", **options} for options in COUNTS])
    assert {type(reply["ok"]) for reply in replies} == {int}


def test_collation_of_the_command(twins: Twins) -> None:
    """H3: native 6.0.5 loses rows here; the right answer is that of a plain collection."""
    fill(twins)
    command: dict[str, Any] = {"query": {"s": "mid"}, "collation": {"locale": "en", "strength": 2}}
    collection(twins, "plain").insert_many(list(collection(twins).find()))
    plain = twins.virtual.command({"count": "plain", **command})["n"]
    assert twins.virtual.command({"count": "x", **command})["n"] == plain == 20


def test_compressed_and_open_buckets(twins: Twins) -> None:
    """W3, W6: buckets of both versions are counted by their headers, whatever the number of rows."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    for series, rows in enumerate((1, 2, 9, 10, 11, 99, 100, 101, 999, 1000, 1001)):
        documents = [{"t": at(n / 60), "m": series, "v": 1} for n in range(rows)]
        twins.same({"insert": "x", "documents": documents})
        assert compare(twins, [{"count": "x", "query": {"m": series}}])[0]["n"] == rows
    stored = twins.native.client[twins.virtual.name]["system.buckets.x"]
    stored.update_one({"meta": 8}, {"$unset": {"data.t.5": "", "data.v.5": ""}})
    assert collection(twins).count_documents({"m": 8}) == 998


def test_compressed_bucket_without_count(twins: Twins) -> None:
    """W6: a reader does not need ``control.count``."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    rows = [{"t": at(n / 60), "m": 1, "v": 1} for n in range(50)] + [{"t": at(600), "m": 1}]
    native = twins.native.client[twins.virtual.name]
    native["x"].insert_many(rows)
    buckets = native["system.buckets.x"]
    assert buckets.update_one({"control.version": 2}, {"$unset": {"control.count": ""}}).modified_count == 1
    assert twins.virtual.command({"count": "x"})["n"] == 51


def test_refusals(twins: Twins, set_twins: Twins) -> None:
    """X1, X3 and malformed options."""
    fill(twins, count=3)
    assert refusals(twins, [{"count": "x", "limit": 0}]) == [15958]
    refused: list[dict[str, Any]] = [{"skip": -1}, {"query": 5}, {"unknown": 1}, {"hint": "none"}, {"limit": "a"}]
    assert refusals(twins, [{"count": "x", **options} for options in refused]) == [51024, 14, 40415, 2, 2]
    fill(set_twins, count=3)
    assert refusals(set_twins, [{"count": "x", "readConcern": {"level": "snapshot"}}]) == [72]
