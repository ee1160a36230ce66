"""Clients that ask for ``apiStrict``: their reads go to the view, because buckets need internal stages (Q7)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import SON
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.server_api import ServerApi

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.read_twins import at, fill
from tests.support.twins import Twins

REFUSAL = 323
STRICT = {"apiVersion": "1", "apiStrict": True}
BY_ID: dict[str, Any] = {"$sort": {"_id": 1}}
HOUR_AGO = {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": 1}}


def aggregate(*pipeline: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"aggregate": "x", "pipeline": list(pipeline), "cursor": {}, **more}


READS: list[dict[str, Any]] = [
    aggregate({"$group": {"_id": "$m.a", "n": {"$sum": 1}, "high": {"$max": "$w"}}}, BY_ID),
    aggregate({"$group": {"_id": None, "v": {"$avg": "$v"}}}),
    aggregate({"$count": "n"}),
    aggregate({"$match": {"m.a": 1}}, BY_ID),
    aggregate({"$match": {"t": {"$lt": at(70)}}}, {"$sort": {"t": -1}}, {"$limit": 2}),
    aggregate({"$match": {"$expr": {"$lt": ["$t", HOUR_AGO]}}}, BY_ID),
    aggregate({"$group": {"_id": "$m.a", "v": {"$top": {"sortBy": {"t": -1}, "output": "$v"}}}}, BY_ID),
    aggregate({"$sort": {"m.a": 1, "t": -1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}, BY_ID),
    aggregate({"$lookup": {"from": "x", "pipeline": [{"$count": "n"}], "as": "j"}}, BY_ID, {"$limit": 1}),
    aggregate({"$unionWith": {"coll": "x", "pipeline": [{"$group": {"_id": {"a": "$m.a"}}}]}}, BY_ID),
    aggregate({"$facet": {"a": [{"$group": {"_id": "$m.a"}}, BY_ID]}}),
    {"find": "x", "sort": {"_id": 1}},
    {"find": "x", "filter": {"v": {"$gt": 30}}, "sort": {"t": -1}, "limit": 3},
    {"find": "x", "filter": {"m.a": 1, "t": {"$gte": at(20)}}, "sort": {"_id": 1}, "projection": {"v": 1}},
    {"count": "x"},
    {"count": "x", "query": {"m.a": 1}},
]

REFUSED: list[dict[str, Any]] = [
    {"distinct": "x", "key": "m.a"},
    {"mapReduce": "x", "map": "", "reduce": "", "out": {"inline": 1}},
    aggregate({"$_internalInhibitOptimization": {}}),
]


class Allowed:
    """What a server of ``version`` lets strict clients do: before 6.0 they may not read time-series collections."""

    def __init__(self, version: tuple[int, ...]) -> None:
        self.code = None if version >= (6,) else REFUSAL
        self.reads = [read for read in READS if version >= (5, 2) or "$top" not in repr(read)]


@pytest.fixture
def allowed(mongod_version: tuple[int, ...]) -> Allowed:
    """For the servers of this run."""
    return Allowed(mongod_version)


def check(twins: Twins, allowed: Allowed) -> None:
    """Each read twice, and between them without ``apiStrict``: no plan of one serves the other."""
    fill(twins)
    for read in allowed.reads:
        for fields in (STRICT, {}, STRICT, {**STRICT, "apiDeprecationErrors": True}, {"apiVersion": "1"}):
            code = allowed.code if "apiStrict" in fields else None
            assert twins.same({**read, **fields}).get("code") == code, (read, fields)
    for command in REFUSED:
        native, virtual = twins.both({**command, **STRICT})
        assert [(reply["ok"], reply["code"]) for reply in (native, virtual)] == [(0, REFUSAL)] * 2, (command, native)


def test_reads_of_strict_clients(twins: Twins, allowed: Allowed) -> None:
    check(twins, allowed)


def test_reads_of_strict_clients_of_a_replica_set(set_twins: Twins, allowed: Allowed) -> None:
    check(set_twins, allowed)
    for read in allowed.reads:
        there = {**read, **STRICT, "$readPreference": {"mode": "secondaryPreferred"}}
        assert set_twins.same(there).get("code") == allowed.code, read


def test_explains_of_strict_clients(twins: Twins, allowed: Allowed) -> None:
    fill(twins)
    for read in allowed.reads[:4]:
        told = twins.both({"explain": read, "verbosity": "queryPlanner", **STRICT})
        assert [reply.get("code") for reply in told] == [allowed.code] * 2, read


@pytest.mark.parametrize("read", [aggregate({"$match": {"v": {"$gte": 0}}}, BY_ID), {"find": "x", "sort": {"_id": 1}}])
def test_cursors_of_strict_clients(twins: Twins, read: dict[str, Any]) -> None:
    """All batches, and the end of a cursor by its client."""
    fill(twins)
    small = {**read, "cursor": {"batchSize": 3}} if "cursor" in read else {**read, "batchSize": 3}
    for side in (twins.native, twins.virtual):
        opened = side.command({**small, **STRICT})["cursor"]
        found = list(opened["firstBatch"])
        cursor = opened["id"]
        while cursor:
            more = side.command(SON([("getMore", cursor), ("collection", "x"), ("batchSize", 10), *STRICT.items()]))[
                "cursor"
            ]
            assert more["ns"] == f"{side.name}.x"
            found += more["nextBatch"]
            cursor = more["id"]
        assert [row["_id"] for row in found] == list(range(40))
        opened = side.command({**small, **STRICT})["cursor"]
        killed = side.command({"killCursors": "x", "cursors": [opened["id"]], **STRICT})
        assert killed["cursorsKilled"] == [opened["id"]]


def test_strict_drivers_read_in_transactions(
    replica_set: MongodProcess, proxy_rs: ProxyProcess, set_twins: Twins
) -> None:
    """PyMongo sends the fields with each command; snapshots too."""
    fill(set_twins)
    group = [{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}, BY_ID]
    api = ServerApi("1", strict=True)
    answers = []
    for uri, name in ((replica_set.uri, set_twins.native.name), (proxy_rs.uri, set_twins.virtual.name)):
        with MongoClient[Any](uri, server_api=api) as client, client.start_session() as session:
            measurements = client[name]["x"]
            with session.start_transaction():
                answers.append(list(measurements.aggregate(group, session=session)))
                found = list(measurements.find({"v": {"$gte": 0}}, session=session, batch_size=7, sort=[("_id", 1)]))
                assert [row["_id"] for row in found] == list(range(40))
                assert measurements.find_one({"v": 3}, session=session) is not None
            with client.start_session(snapshot=True) as snapshot:
                answers.append(list(measurements.aggregate(group, session=snapshot)))
            with pytest.raises(OperationFailure) as refused:
                measurements.distinct("m.a")
            assert refused.value.code == REFUSAL
    assert answers == [[{"_id": n, "n": count} for n, count in ((0, 14), (1, 13), (2, 13))]] * 4
