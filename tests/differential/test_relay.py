"""Commands that are not for time-series collections: the same replies direct and through the proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MinKey, ObjectId, Regex, Timestamp

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command, document_of, op_msg_bytes, sequence
from tests.support.raw_wire import body as body_section

Step = Mapping[str, Any]
FIXED_ID = ObjectId("5f0000000000000000000000")
ODD = {
    "_id": FIXED_ID, "double": 1.5, "nan": float("nan"), "long": Int64(2**40), "decimal": Decimal128("1.10"),
    "bytes": Binary(b"\0\1", 128), "date": datetime(1960, 1, 1, tzinfo=UTC), "regex": Regex("^a", "i"),
    "code": Code("f()"), "stamp": Timestamp(5, 6), "least": MinKey(), "nested": {"a": [1, {"b": None}]}, "": "empty",
}  # fmt: skip
SESSION = {"id": Binary(bytes(16), 4)}
"""Stands for a session of each run's own."""

STEPS: list[Step] = [
    {"ping": 1},
    {"ping": 1, "comment": {"why": "test"}},
    {"create": "c"},
    {"create": "c"},
    {"create": "capped", "capped": True, "size": 4096, "max": 3},
    {"create": "v", "viewOn": "c", "pipeline": [{"$match": {"a": {"$gt": 1}}}]},
    {"create": "clustered", "clusteredIndex": {"key": {"_id": 1}, "unique": True, "name": "k"}},
    {"create": "strict", "validator": {"$jsonSchema": {"required": ["a"]}}},
    {"create": "x.y", "collation": {"locale": "de", "strength": 2}},
    {"create": "bad$name"},
    {"insert": "c", "documents": [{"_id": i, "a": i, "s": f"t{i % 3}"} for i in range(10)]},
    {"insert": "c", "documents": [{"_id": 3}, {"_id": 20}]},
    {"insert": "c", "documents": [{"_id": 3}, {"_id": 21}], "ordered": False},
    {"insert": "c", "documents": []},
    {"insert": "c", "documents": [{"_id": 22}], "writeConcern": {"w": 1, "j": True}},
    {"insert": "c", "documents": [{"_id": 23}], "writeConcern": {"w": 3}},
    {"insert": "c", "documents": [{"_id": 24}], "nonsense": 1},
    {"insert": "strict", "documents": [{"_id": 1, "b": 1}]},
    {"insert": "v", "documents": [{"_id": 1}]},
    {"insert": "odd", "documents": [ODD]},
    {"insert": "capped", "documents": [{"_id": i} for i in range(5)]},
    {"find": "odd"},
    {"find": "c"},
    {"find": "c", "filter": {"a": {"$lt": 3}}, "sort": {"a": -1}, "projection": {"s": 1}},
    {"find": "c", "limit": 2, "skip": 3, "singleBatch": True},
    {"find": "c", "filter": {"$nope": 1}},
    {"find": "nowhere"},
    {"find": "v", "sort": {"_id": 1}},
    {"find": "c", "hint": "nope"},
    {"find": "c", "readConcern": {"level": "local"}, "maxTimeMS": 10_000},
    {"find": "c", "readConcern": {"level": "nonsense"}},
    {"find": 5},
    {"count": "c", "query": {"a": {"$gte": 5}}},
    {"count": "nowhere"},
    {"distinct": "c", "key": "s"},
    {"distinct": "c", "key": "s", "query": {"a": 1}},
    {"aggregate": "c", "pipeline": [{"$group": {"_id": "$s", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$out": "copy"}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$merge": {"into": "merged"}}], "cursor": {}},
    {"aggregate": "c",
     "pipeline": [{"$lookup": {"from": "odd", "localField": "a", "foreignField": "double", "as": "o"}}],
     "cursor": {"batchSize": 3}},
    {"aggregate": 1, "pipeline": [{"$documents": [{"x": 1}, {"x": 2}]}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$nope": 1}], "cursor": {}},
    {"aggregate": "c", "pipeline": []},
    {"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}}]},
    {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"b": 1}}, "multi": True}, {"q": {"a": 2}, "u": {"a": 2}}]},
    {"update": "c", "updates": [{"q": {"_id": 100}, "u": {"$set": {"b": 1}}, "upsert": True}]},
    {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"d": {"$add": ["$a", 1]}}}], "multi": True}]},
    {"update": "c", "updates": [{"q": {}, "u": {"$nope": 1}}]},
    {"findAndModify": "c", "query": {"_id": 5}, "update": {"$set": {"z": 1}}, "new": True},
    {"findAndModify": "c", "query": {"_id": 6}, "remove": True},
    {"delete": "c", "deletes": [{"q": {"_id": 7}, "limit": 1}, {"q": {"a": {"$gt": 8}}, "limit": 0}]},
    {"delete": "c", "deletes": [{"q": {}, "limit": 7}]},
    {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}, {"key": {"s": "text"}, "name": "text"}]},
    {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "other"}]},
    {"createIndexes": "c", "indexes": [{"key": {"t": 1}, "name": "ttl", "expireAfterSeconds": 3600}]},
    {"listIndexes": "c"},
    {"listIndexes": "nowhere"},
    {"collMod": "c", "index": {"name": "ttl", "expireAfterSeconds": 7200}},
    {"collMod": "nowhere"},
    {"dropIndexes": "c", "index": "a_1"},
    {"dropIndexes": "c", "index": "a_1"},
    {"listCollections": 1, "nameOnly": True, "filter": {"name": "c"}},
    {"listCollections": 1, "filter": {"name": "v"}},
    {"collStats": "nowhere"},
    {"dbStats": 1, "scale": "x"},
    {"validate": "c", "full": "x"},
    {"explain": {"find": "c", "filter": {"a": 1}}, "verbosity": "nonsense"},
    {"explain": {"count": "nowhere"}, "verbosity": "queryPlanner"},
    {"renameCollection": "nowhere", "to": "x"},
    {"mapReduce": "c", "map": Code("function(){emit(1,1)}"), "reduce": Code("function(k,v){return Array.sum(v)}"),
     "out": {"inline": 1}},
    {"planCacheClear": "c"},
    {"getMore": Int64(12345), "collection": "c"},
    {"killCursors": "c", "cursors": [Int64(12345)]},
    {"find": "c", "lsid": SESSION, "sort": {"_id": 1}, "batchSize": 2},
    {"endSessions": [SESSION]},
    {"insert": "c", "documents": [{"_id": 200}], "lsid": SESSION, "txnNumber": Int64(1)},
    {"insert": "c", "documents": [{"_id": 201}], "lsid": SESSION, "txnNumber": Int64(1), "autocommit": False,
     "startTransaction": True},
    {"commitTransaction": 1},
    {"connectionStatus": 1},
    {"usersInfo": 1},
    {"rolesInfo": "readWrite"},
    {"createUser": "u", "pwd": "p", "roles": ["nonsense"]},
    {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=nobody,r=abcdefghijklmnopqrstuvwx"},
    {"saslContinue": 1, "conversationId": 7, "payload": b""},
    {"logout": 1},
    {"getParameter": 1, "nonsense": 1},
    {"getCmdLineOpts": 1},
    {"whatsmyuri": 1},
    {"replSetGetConfig": 1},
    {"dataSize": "nowhere.at_all"},
    {"listCommands": 1},
    {"find": "c", "apiVersion": "1", "apiStrict": True},
    {"count": "c", "apiVersion": "1", "apiStrict": True, "apiDeprecationErrors": True},
    {"serverStatus": 1, "apiVersion": "1", "apiStrict": True},
    {"drop": "capped"},
    {"drop": "capped"},
    {"dropDatabase": 1},
]  # fmt: skip
ON_ADMIN = {
    "renameCollection", "usersInfo", "replSetGetConfig", "getParameter", "getCmdLineOpts", "commitTransaction",
}  # fmt: skip
VOLATILE = {
    "operationTime", "$clusterTime", "localTime", "you", "atClusterTime", "uuid", "payload", "indexDetails",
    "executionTimeMillis", "serverInfo", "opTime", "electionId", "warnings", "lastWrite",
}  # fmt: skip


def masked(value: Any, database: str) -> Any:
    """Without times, ids and the database's own name; dictionaries as pairs, since the order of fields counts."""
    match value:
        case dict():
            return [
                (
                    key,
                    "…"
                    if key in VOLATILE or (key == "id" and isinstance(one, Int64) and one)
                    else masked(one, database),
                )
                for key, one in value.items()
            ]
        case list():
            return [masked(one, database) for one in value]
        case str():
            # The explained command shows where it ran, some messages show a namespace or a number of their own.
            return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|cursor id \d+", "…", value.replace(database, "DB"))
        case float() if value != value:
            return "NaN"
    return value


def replies(port: int, database: str, steps: list[Step]) -> list[Any]:
    found = []
    session = {"id": Binary(uuid4().bytes, 4)}
    with RawClient(port) as client:
        for step in steps:
            own = {**step, "$db": "admin" if next(iter(step)) in ON_ADMIN else database}
            if "lsid" in own:
                own["lsid"] = session
            if "endSessions" in own:
                own["endSessions"] = [session]
            found.append(masked(client.run(own), database))
    return found


def test_commands_are_answered_as_by_the_server_itself(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str
) -> None:
    assert len(STEPS) > 60
    direct = replies(mongod.port, f"{db_name}a", STEPS)
    relayed = replies(proxy.port, f"{db_name}b", STEPS)
    for step, expected, answer in zip(STEPS, direct, relayed, strict=True):
        assert answer == expected, step


def test_commands_are_answered_as_by_a_replica_set_itself(
    replica_set: MongodProcess, proxy_rs: ProxyProcess, db_name: str
) -> None:
    direct = replies(replica_set.port, f"{db_name}a", STEPS)
    relayed = replies(proxy_rs.port, f"{db_name}b", STEPS)
    for step, expected, answer in zip(STEPS, direct, relayed, strict=True):
        assert answer == expected, step


def test_replies_are_relayed_byte_for_byte(mongod: MongodProcess, proxy: ProxyProcess, db_name: str) -> None:
    """Also what a decoder would lose: duplicate field names, NaN payloads, odd field order."""
    duplicate = bson.encode({"_id": 1, "aa": 1, "ab": 2}).replace(b"ab\0", b"aa\0")
    insert = op_msg_bytes(body_section({"insert": "c", "$db": db_name}), sequence("documents", duplicate))
    find = command({"find": "c", "$db": db_name}, request_id=77)
    with RawClient(proxy.port) as client:
        client.send(insert)
        assert list(client.documents(1)) == [{"n": 1, "ok": 1.0}]
        client.send(find)
        through = client.receive()
    with RawClient(mongod.port) as client:
        client.send(find)
        direct = client.receive()
    assert through is not None
    assert direct is not None
    # All but the reply's own request id.
    assert through.raw[8:] == direct.raw[8:]
    assert duplicate in through.raw


def test_unacknowledged_writes_are_not_answered(proxy: ProxyProcess, db_name: str) -> None:
    with RawClient(proxy.port) as client:
        for number in range(50):
            client.send(command({"insert": "c", "documents": [{"_id": number}], "$db": db_name}, flags=2))
        assert client.run({"count": "c", "$db": db_name})["n"] == 50


def test_hello_names_what_the_backend_can(mongod: MongodProcess, proxy: ProxyProcess) -> None:
    with RawClient(mongod.port) as client:
        direct = client.run({"hello": 1, "helloOk": True, "$db": "admin"})
    with RawClient(proxy.port) as client:
        relayed = client.run({"hello": 1, "helloOk": True, "$db": "admin"})
    for document in (direct, relayed):
        for name in ("topologyVersion", "localTime", "connectionId"):
            assert document.pop(name)
    assert list(relayed.items()) == list(direct.items())


@pytest.mark.parametrize("name", ["hello", "isMaster", "ismaster"])
def test_replica_set_is_presented_as_a_mongos(proxy_rs: ProxyProcess, name: str) -> None:
    with RawClient(proxy_rs.port) as client:
        hello = client.run({name: 1, "$db": "admin"})
    assert hello["msg"] == "isdbgrid"
    assert hello.keys().isdisjoint({"setName", "hosts", "me", "primary", "secondary", "setVersion", "lastWrite"})


def test_retryable_writes_and_transactions_work_over_one_connection(proxy_rs: ProxyProcess, db_name: str) -> None:
    with proxy_rs.client(retryWrites=True) as client:
        collection = client[db_name].c
        collection.insert_one({"_id": 0})
        with client.start_session() as session:
            with session.start_transaction():
                collection.insert_one({"_id": 1}, session=session)
                assert collection.count_documents({}, session=session) == 2
                assert collection.count_documents({}) == 1
            assert collection.count_documents({}) == 2
            session.start_transaction()
            collection.delete_many({}, session=session)
            session.abort_transaction()
        assert [document["_id"] for document in collection.find(sort=[("_id", 1)])] == [0, 1]


def test_pipelined_commands_are_answered_in_order(proxy: ProxyProcess, db_name: str) -> None:
    """A hundred commands in one piece, slow and quick ones, on one connection."""
    commands = []
    for number in range(100):
        match number % 4:
            case 0:
                document: dict[str, Any] = {"insert": "c", "documents": [{"_id": number}]}
            case 1:
                document = {"count": "c"}
            case 2:
                document = {"hello": 1}
            case _:
                document = {"find": "c", "filter": {"_id": number - 3}}
        commands.append(command({**document, "$db": db_name}, request_id=1000 + number))
    with RawClient(proxy.port) as client:
        client.send(b"".join(commands))
        for number in range(100):
            reply = client.receive()
            assert reply is not None
            assert reply.response_to == 1000 + number
            document = document_of(reply)
            assert document["ok"] == 1.0
            match number % 4:
                case 1:
                    assert document["n"] == number // 4 + 1
                case 3:
                    assert document["cursor"]["firstBatch"] == [{"_id": number - 3}]
