"""Clients that ask for ``apiStrict``.

Their reads go to the view, because buckets need internal stages (Q7); their inserts are taken; all other commands are
the server's own.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from bson import SON, Binary, Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.server_api import ServerApi

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient
from tests.support.read_twins import at, fill
from tests.support.twins import Twins

REFUSAL = 323
READ_AT = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
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
    for read in allowed.reads:
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


ROW: dict[str, Any] = {"t": at(1), "m": {"a": 1}, "v": 1}
WRITES: list[dict[str, Any]] = [
    {"create": "y", "timeseries": {"timeField": "t", "metaField": "m"}},
    {"insert": "x", "documents": [{"_id": 100, **ROW}]},
    {"insert": "x", "documents": [{"_id": 101, "m": {"a": 1}}, {"_id": 102, "t": at(3)}], "ordered": False},
    {"insert": "x", "documents": [{"_id": 103, **ROW}], "bypassDocumentValidation": True, "maxTimeMS": 1000},
    {"insert": "x", "documents": [{"_id": 104, **ROW}], "unknown": 1},
    {"insert": "x", "documents": []},
    {"update": "x", "updates": [{"q": {"m.a": 1}, "u": {"$set": {"m.b": 2}}, "multi": True}]},
    {"update": "x", "updates": [{"q": {"v": 1}, "u": {"$set": {"v": 2}}}]},
    {"update": "x", "updates": [{"q": {"m.a": 1}, "u": [{"$set": {"m.b": 2}}], "multi": True}]},
    {"delete": "x", "deletes": [{"q": {"m.a": 0}, "limit": 0}]},
    {"delete": "x", "deletes": [{"q": {"v": 3}, "limit": 0}]},
    {"delete": "x", "deletes": [{"q": {"m.a": 2}, "limit": 1}]},
    {"findAndModify": "x", "query": {"m.a": 2}, "remove": True},
    {"findAndModify": "x", "query": {"m.a": 2}, "update": {"$set": {"m.a": 3}}},
    {"createIndexes": "x", "indexes": [{"key": {"m.a": 1}, "name": "q"}]},
    {"listIndexes": "x"},
    {"dropIndexes": "x", "index": "q"},
    {"collMod": "x", "expireAfterSeconds": 10_000_000},
    {"collStats": "x"},
    {"aggregate": "x", "pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$indexStats": {}}], "cursor": {}},
    {"validate": "x"},
    {"explain": {"delete": "x", "deletes": [{"q": {"m.a": 1}, "limit": 0}]}},
    {"drop": "y"},
]
"""Writes and commands about the collection."""


def test_writes_of_strict_clients_are_those_of_the_server(twins: Twins) -> None:
    fill(twins)
    rows: list[dict[str, Any]] = [{"find": "x", "sort": {"_id": 1}}, {"count": "x"}]
    for command in WRITES:
        for fields in (
            STRICT,
            {**STRICT, "apiDeprecationErrors": True},
            {"apiVersion": "2", "apiStrict": True},
            {"apiStrict": True},
            {"apiVersion": "1", "apiStrict": 1},
        ):
            native, virtual = twins.both({**command, **fields})
            assert summary(virtual) == summary(native), (command, fields)
        for read in rows:
            twins.same(read)


def summary(reply: dict[str, Any]) -> dict[str, Any]:
    """What a writer sees of a reply: its errors with their texts."""
    return {name: reply.get(name) for name in ("ok", "code", "errmsg", "n", "nModified", "writeErrors", "value")}


def test_inserts_of_strict_clients_are_taken(twins: Twins) -> None:
    """They are written with those of all other clients; W82 shows who wrote them."""
    fill(twins, count=1)

    def taken() -> int:
        section = twins.virtual.client.admin.command("serverStatus").get("bucketCatalog", {})
        mongod = twins.native.client.admin.command("serverStatus").get("bucketCatalog", {})
        return int(section.get("numMeasurementsCommitted", 0)) - int(mongod.get("numMeasurementsCommitted", 0))

    before = taken()
    for n in range(5):
        twins.virtual.command({"insert": "x", "documents": [{"_id": 200 + n, **ROW}], **STRICT})
    assert taken() == before + 5
    host, port = next(iter(twins.virtual.client.nodes))
    with MongoClient[Any](host, port, server_api=ServerApi("1", strict=True)) as client:
        client[twins.virtual.name]["x"].insert_one({"_id": 300, "t": READ_AT, "m": {"a": 1}})
    assert taken() == before + 6


def test_retried_inserts_of_strict_clients_are_written_once(set_twins: Twins) -> None:
    fill(set_twins, count=1)
    insert = {"insert": "x", "documents": [{"_id": 100, **ROW}, {"_id": 101, **ROW}], **STRICT}
    for side in (set_twins.native, set_twins.virtual):
        _, port = next(iter(side.client.nodes))
        # A driver would put a session of its own into the command.
        lsid = {"id": Binary.from_uuid(uuid.uuid4())}
        with RawClient(port) as client:
            for number in (1, 1, 1, 2):
                reply = client.run({**insert, "lsid": lsid, "txnNumber": Int64(number), "$db": side.name})
                assert (reply.get("n"), reply["ok"]) == (2, 1.0), reply
    assert set_twins.same({"count": "x"})["n"] == 5
