"""Reads that were asked before: the same answers as at first, also when what they are about has changed."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Binary, Int64

from tests.support.read_twins import at, fill, measurement
from tests.support.twins import Twins

READS: list[dict[str, Any]] = [
    {"find": "x", "filter": {"m.a": 1, "t": {"$gte": at(30), "$lt": at(200)}}, "sort": {"t": 1}},
    {"find": "x", "filter": {"m.a": 1}, "sort": {"_id": 1}, "limit": 5, "comment": "c"},
    {"aggregate": "x", "pipeline": [{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}],
     "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$match": {"v": {"$gte": 7}}}, {"$sort": {"_id": 1}}],
     "cursor": {"batchSize": 100}, "maxTimeMS": 60_000},
    {"aggregate": "x", "pipeline": [{"$nope": 1}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$match": {"m.a": 2}}, {"$sort": {"_id": 1}}], "cursor": {}, "explain": False},
    {"count": "x"},
    {"count": "x", "query": {"m.a": 2}},
    {"distinct": "x", "key": "m.tags"},
    {"distinct": "x", "key": "o.p", "query": {"m.a": 0}},
    {"find": "x", "filter": {"$nope": 1}},
    {"find": "x", "projection": {"v": 1, "_id": 1}, "sort": {"_id": -1}, "readConcern": {"level": "local"}},
]  # fmt: skip


def same(pair: Twins, command: dict[str, Any]) -> None:
    """Distinct values come in any order."""
    native, virtual = ({**reply, "values": sorted(reply.get("values", ()))} for reply in pair.both(command))
    assert virtual == native, command


@pytest.mark.parametrize("server", ["twins", "set_twins"])
def test_repeated_reads(request: pytest.FixtureRequest, server: str) -> None:
    """Q1; the collection grows, then goes and comes again with other names for its fields."""
    pair: Twins = request.getfixturevalue(server)
    fill(pair)
    for count in (0, 1, 2):
        if count:
            pair.same({"insert": "x", "documents": [measurement(100 * count + n) for n in range(7)]})
        for command in READS:
            same(pair, command)
            same(pair, {**command, "lsid": {"id": Binary(bytes(16), 4)}})
    pair.same({"drop": "x"})
    pair.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "o", "granularity": "hours"}})
    pair.same({"insert": "x", "documents": [measurement(n) for n in range(20)]})
    for command in READS * 2:
        same(pair, command)
    pair.same({"drop": "x"})
    pair.same({"insert": "x", "documents": [measurement(n) for n in range(20)]})
    for command in READS:
        same(pair, command)


def test_repeated_reads_in_transactions(set_twins: Twins) -> None:
    """X1: a transaction sees its own moment; what was asked outside of it is no answer inside."""
    fill(set_twins)
    command = {"find": "x", "filter": {"m.a": 1}, "sort": {"_id": 1}}
    for number in (1, 2):
        fields: dict[str, Any] = {"txnNumber": Int64(number), "autocommit": False}
        with set_twins.native.client.start_session() as native, set_twins.virtual.client.start_session() as virtual:
            set_twins.same(command)
            replies = [
                database.client[database.name].command(
                    {**command, "lsid": session.session_id, **fields, "startTransaction": True}, check=False
                )
                for database, session in ((set_twins.native, native), (set_twins.virtual, virtual))
            ]
            assert replies[0]["cursor"]["firstBatch"] == replies[1]["cursor"]["firstBatch"]
            for database, session in ((set_twins.native, native), (set_twins.virtual, virtual)):
                database.client.admin.command({"abortTransaction": 1, "lsid": session.session_id, **fields})


def test_cursors_of_repeated_reads(twins: Twins) -> None:
    """C23: every cursor is continued by the name that its client knows, and ends once."""
    fill(twins, count=60)
    for _ in range(3):
        for read in (
            {"find": "x", "sort": {"_id": 1}, "batchSize": 20},
            {"aggregate": "x", "pipeline": [{"$sort": {"_id": 1}}], "cursor": {"batchSize": 20}},
        ):
            rows: list[list[Any]] = []
            for database in (twins.native, twins.virtual):
                cursor = database.command(read)["cursor"]
                assert cursor["ns"] == f"{database.name}.x"
                found = [document["_id"] for document in cursor["firstBatch"]]
                other = {"getMore": cursor["id"], "collection": "y"}
                assert database.command(other, check=False)["code"] == 13
                while cursor["id"]:
                    cursor = database.command({"getMore": cursor["id"], "collection": "x", "batchSize": 15})["cursor"]
                    assert cursor["ns"] == f"{database.name}.x"
                    found += [document["_id"] for document in cursor["nextBatch"]]
                gone = database.command({"getMore": Int64(17), "collection": "x"}, check=False)
                assert gone["code"] == 43
                rows.append(found)
            assert rows[0] == rows[1] == list(range(60))


def test_batches_larger_than_any_buffer(twins: Twins) -> None:
    """C23: they pass while they arrive, under the collection's own name."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    padding = "y" * 50_000
    for start in range(0, 400, 50):
        rows = [{"_id": n, "t": at(n), "m": n % 3, "p": padding} for n in range(start, start + 50)]
        twins.same({"insert": "x", "documents": rows})
    read = {"find": "x", "sort": {"_id": 1}, "batchSize": 3}
    native, virtual = twins.both(read)
    assert virtual["cursor"]["firstBatch"] == native["cursor"]["firstBatch"]
    more = [
        database.command({"getMore": Int64(reply["cursor"]["id"]), "collection": "x"})
        for database, reply in ((twins.native, native), (twins.virtual, virtual))
    ]
    assert more[1]["cursor"]["nextBatch"] == more[0]["cursor"]["nextBatch"]
    assert more[1]["cursor"]["ns"] == f"{twins.virtual.name}.x"
    assert len(more[1]["cursor"]["nextBatch"]) > 300
