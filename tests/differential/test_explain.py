"""``explain`` of reads: its shape (Q6), and that indexed reads do not scan the buckets (Q11, Q17)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.read_twins import at, collection, fill
from tests.support.twins import Twins, run

COMMANDS: list[dict[str, Any]] = [
    {"find": "x", "filter": {"v": {"$gt": 3}}},
    {"count": "x", "query": {"v": {"$gt": 3}}},
    {"distinct": "x", "key": "v"},
    {"aggregate": "x", "pipeline": [{"$match": {"v": {"$gt": 3}}}], "cursor": {}},
]


def stages_of(plan: Any) -> Iterator[Mapping[str, Any]]:
    """Every part of an explain reply that names a stage."""
    if isinstance(plan, Mapping):
        if "stage" in plan:
            yield plan
        for value in plan.values():
            yield from stages_of(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from stages_of(value)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(next(iter(command))))
@pytest.mark.parametrize("verbosity", ["queryPlanner", "executionStats", "allPlansExecution"])
def test_shape(twins: Twins, command: dict[str, Any], verbosity: str) -> None:
    """Q6: an aggregate on the buckets, with the unpacking among its stages."""
    fill(twins)
    native, virtual = twins.both({"explain": command, "verbosity": verbosity})
    assert list(virtual) == list(native)
    assert virtual["command"]["aggregate"] == "system.buckets.x"
    planner = virtual["stages"][0]["$cursor"]["queryPlanner"]
    assert planner["namespace"] == native["stages"][0]["$cursor"]["queryPlanner"]["namespace"]
    assert any("$_internalUnpackBucket" in stage for stage in virtual["stages"])


def test_refused_explains(twins: Twins) -> None:
    """C23."""
    fill(twins)
    for command in ({"find": "x", "tailable": True}, {"mapReduce": "x", "map": "f", "reduce": "g", "out": "o"}):
        native, virtual = twins.both({"explain": command})
        assert (virtual["ok"], virtual["code"]) == (0, native["code"])


def examined(twins: Twins, command: Mapping[str, Any]) -> tuple[set[str], int]:
    """The names of the access stages, and how many buckets were looked at."""
    reply = run(twins.virtual, {"explain": command, "verbosity": "executionStats"})
    plan = reply["stages"][0]["$cursor"] if "stages" in reply else reply
    names = {stage["stage"] for stage in stages_of(plan["queryPlanner"]["winningPlan"])}
    return names, plan["executionStats"]["totalDocsExamined"]


INDEXED: list[tuple[dict[str, Any] | None, dict[str, Any], str]] = [
    (None, {"t": {"$gte": at(24 * 60 * 3), "$lt": at(24 * 60 * 3 + 60)}}, "CLUSTERED_IXSCAN"),
    (None, {"t": {"$gte": at(24 * 60 * 9)}}, "CLUSTERED_IXSCAN"),
    (None, {"t": {"$lt": at(60)}}, "CLUSTERED_IXSCAN"),
    (None, {"t": at(24 * 60 * 3), "v": 72}, "CLUSTERED_IXSCAN"),
    ({"m": 1, "t": -1}, {"m": 7}, "IXSCAN"),
    ({"m": 1, "t": -1}, {"m": 0, "t": {"$gte": at(24 * 60), "$lt": at(24 * 60 + 60)}}, "IXSCAN"),
    ({"v": -1}, {"v": {"$gt": 230}}, "IXSCAN"),
    ({"v": 1}, {"v": {"$lt": 9}}, "IXSCAN"),
    ({"v": 1}, {"v": {"$in": [3, 4]}}, "IXSCAN"),
    ({"t": 1}, {"t": {"$gte": at(24 * 60 * 9)}}, "IXSCAN"),
]


@pytest.mark.parametrize(("key", "query", "access"), INDEXED, ids=str)
def test_indexed_reads_do_not_scan(
    twins: Twins, key: dict[str, Any] | None, query: dict[str, Any], access: str, mongod_version: tuple[int, ...]
) -> None:
    """Q11, Q13: of 240 buckets only those that may match are looked at."""
    twins.virtual.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    rows = [{"t": at(60 * n), "m": n % 24, "v": n} for n in range(240)]
    collection(twins).insert_many(rows)
    if key is not None:
        twins.virtual.command({"createIndexes": "x", "indexes": [{"key": key, "name": "i"}]})
    hint = {} if key is None else {"hint": key}
    names, buckets = examined(twins, {"find": "x", "filter": query, **hint})
    # 5.0 bounds its scan by the clustered _id too, but has no name for that.
    assert access in names or (access == "CLUSTERED_IXSCAN" and mongod_version < (6, 0, 0))
    assert buckets <= 30
    expected = [row["_id"] for row in collection(twins).aggregate([{"$match": query}])]
    assert len(expected) == run(twins.virtual, {"count": "x", "query": query})["n"] > 0


def test_latest_of_each_series_by_index(twins: Twins) -> None:
    """Q23: one bucket of each series is looked at where an index has the order."""
    twins.virtual.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    collection(twins).insert_many([{"t": at(60 * n), "m": {"a": n % 24}, "v": n} for n in range(240)])
    twins.virtual.command({"createIndexes": "x", "indexes": [{"key": {"m.a": 1, "t": -1}, "name": "i"}]})
    pipeline = [{"$sort": {"m.a": 1, "t": -1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}]
    command = {"aggregate": "x", "pipeline": pipeline, "cursor": {}}
    names, buckets = examined(twins, command)
    assert "DISTINCT_SCAN" in names
    assert buckets == 24
    assert sorted(row["v"] for row in collection(twins).aggregate(pipeline)) == list(range(216, 240))
