"""What the server looks at for a command, natively and through the proxy: as much as is stored, or little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from catalog.queries import NO_DOCUMENT
from tests.support.mongod import MongodProcess
from tests.support.twins import Commands, Twins, run

START_MS = 1_700_000_000_000
SERIES = 150
MARGIN = 20
"""Documents and keys that the proxy may cause to be examined in addition, whatever is stored."""

NEXT = {"w": "majority"}


def deletes(query: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"delete": "x", "deletes": [{"q": query, "limit": 0}], **more}


def updates(query: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"update": "x", "updates": [{"q": query, "u": {"$set": {"m.k": 1}}, "multi": True}], **more}


def aggregate(*stages: dict[str, Any]) -> dict[str, Any]:
    return {"aggregate": "x", "pipeline": list(stages), "cursor": {}}


ONE = {"$match": {"m.s": 20}}
ALIKE: tuple[dict[str, Any], ...] = (
    deletes({"m.s": -5}),
    deletes({"m.s": 1}),
    deletes({"m.s": 2}, writeConcern=NEXT),
    deletes({"m.s": 3}, writeConcern={"w": 1}),
    deletes({"m.s": 4}, writeConcern={"w": "majority", "wtimeout": 5000.0}),
    updates({"m.s": -5}),
    updates({"m.s": 12}),
    updates({"m.s": 13}, writeConcern=NEXT),
    {"find": "x", "filter": {"m.s": 20}},
    {"find": "x", "filter": {"m.s": 20, "t": DatetimeMS(START_MS)}},
    {"find": "x", "filter": {"m.s": {"$in": []}}},
    {"find": "x", "filter": {}, "sort": {"t": -1}, "limit": 1},
    {"find": "x", "filter": {}, "limit": 1},
    {"count": "x", "query": {"m.s": 20}},
    {"distinct": "x", "key": "v", "query": {"m.s": 20}},
    aggregate(ONE, {"$group": {"_id": "$m", "x": {"$sum": "$v"}}}),
    aggregate({"$set": {"z": 1}}, ONE),
    aggregate({"$sort": {"t": 1}}, ONE),
    aggregate(ONE, {"$unionWith": {"coll": "x", "pipeline": [{"$match": {"m.s": 21}}]}}),
    aggregate(ONE, {"$lookup": {"from": "x", "localField": "m.s", "foreignField": "m.s", "as": "o"}}, {"$count": "n"}),
)
BY_INDEX: tuple[dict[str, Any], ...] = (
    {"delete": "x", "deletes": [{"q": {"m.s": 30, "v": -1}, "limit": 0}]},
    {"delete": "x", "deletes": [{"q": {"m.s": 30}, "limit": 1}], "writeConcern": NEXT},
    {"findAndModify": "x", "query": {"m.s": 31}, "remove": True},
    {"findAndModify": "x", "query": {"m.s": -31}, "remove": True},
)


@pytest.fixture
def many(set_twins: Twins) -> Iterator[Twins]:
    """Collections with a bucket for each of many series, and an index on them."""
    documents = [{"t": DatetimeMS(START_MS + each), "m": {"s": each}, "v": each} for each in range(SERIES)]
    # Both by the server, as joins of the proxy examine what they join, whenever that is.
    for commands in (set_twins.native, set_twins.stored):
        commands.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
        commands.command({"insert": "x", "documents": documents})
        commands.command({"createIndexes": "x", "indexes": [{"key": {"m.s": 1}, "name": "s"}]})
    yield set_twins
    for commands in (set_twins.native, set_twins.stored):
        commands.command({"profile": 0})


def examined(sent_to: Commands, server: Commands, command: Mapping[str, Any]) -> int:
    """Documents and keys of ``x`` that the server examines until it has replied to a command."""
    profile = server.client[server.name]["system.profile"]
    profile.drop()
    server.command({"profile": 2})
    run(sent_to, command)
    server.command({"profile": 0})
    return sum(
        each.get("docsExamined", 0) + each.get("keysExamined", 0)
        for each in profile.find({"ns": {"$regex": r"\.(system\.buckets\.)?x$"}, "op": {"$ne": "insert"}})
    )


def test_no_more_is_examined_than_natively(many: Twins) -> None:
    for command in ALIKE:
        native = examined(many.native, many.native, command)
        assert examined(many.virtual, many.stored, command) <= native + MARGIN, command


def test_writes_that_only_newer_servers_know_use_indexes(many: Twins) -> None:
    for command in BY_INDEX:
        assert examined(many.virtual, many.stored, command) <= MARGIN, command


def test_nothing_is_examined_to_find_nothing(mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    database.x.insert_many([{"t": DatetimeMS(START_MS), "m": each} for each in range(SERIES)])
    database.ordinary.insert_many([{"_id": each} for each in range(SERIES)])
    for name in ("system.buckets.x", "ordinary", "missing"):
        for command in (
            {"delete": name, "deletes": [{"q": NO_DOCUMENT, "limit": 1}]},
            {"find": name, "filter": NO_DOCUMENT, "collation": {"locale": "de"}},
        ):
            explained = database.command("explain", command, verbosity="executionStats")["executionStats"]
            assert explained["nReturned"] == 0
            assert explained["totalDocsExamined"] <= 1, (name, command)
