"""Commands that every server refuses, whatever they are about, are refused in the same words, and do nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

import bson
import pytest
from bson import Binary, Int64

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.wire import WireClient

START = datetime(2024, 5, 18)  # noqa: DTZ001 -- as the wire has it
ROWS = [{"t": START, "m": 1, "v": number} for number in range(3)]

COMMANDS: Mapping[str, Mapping[str, Any]] = {
    "find": {"filter": {"m": 1}, "sort": {"t": 1}, "limit": 2, "projection": {"v": 1}, "let": {"a": 1}, "comment": "c"},
    "aggregate": {"pipeline": [{"$match": {"m": 1}}], "cursor": {}, "let": {}, "allowDiskUse": True},
    "count": {"query": {"m": 1}, "limit": 2},
    "distinct": {"key": "m", "query": {}},
    "insert": {"documents": ROWS[:1], "ordered": True, "writeConcern": {"w": 1}, "comment": "c"},
    "delete": {"deletes": [{"q": {"m": 1}, "limit": 0}], "ordered": True},
    "update": {"updates": [{"q": {"m": 1}, "u": {"$set": {"m": 2}}, "multi": True}], "ordered": True},
    "collMod": {"expireAfterSeconds": 100},
    "createIndexes": {"indexes": [{"key": {"v": 1}, "name": "v"}]},
    "listIndexes": {"cursor": {}},
    "collStats": {"scale": 1},
    "findAndModify": {"query": {"m": 1}, "remove": True},
}
NUMBERS = [Int64(-1), Int64(-(1 << 63)), 5, "x"]
PREFERENCES: list[Any] = [
    {"mode": "bogus"},
    {"mode": "Primary"},
    {"mode": 1},
    {},
    5,
    {"mode": "primary", "tags": [{"a": "b"}]},
    {"mode": "secondary", "tags": 5},
    {"mode": "primary", "maxStalenessSeconds": 100},
    {"mode": "primary", "hedge": {"enabled": True}},
]


class Twins:
    """The same commands, natively and through the proxy, on collections of two databases."""

    def __init__(self, native: WireClient, proxied: WireClient, db_name: str) -> None:
        self.sides = ((native, f"{db_name}_n"), (proxied, f"{db_name}_p"))
        for client, database in self.sides:
            options = {"timeField": "t", "metaField": "m"}
            client.command({"create": "x", "timeseries": options, "$db": database})
            client.command({"insert": "x", "documents": ROWS, "$db": database})

    def replies(self, fields: Mapping[str, Any], again: str = "") -> list[tuple[Any, ...]]:
        """Code and message of both; ``again`` is the name of a field that is sent twice."""
        replies = []
        for client, database in self.sides:
            whole = {**fields, "$db": database}
            if "lsid" in whole:
                whole["lsid"] = {"id": Binary(uuid4().bytes, 4)}
            raw = bson.encode(whole)
            if again:
                raw = raw[4:-1] + bson.encode({again: whole[again]})[4:-1]
                raw = (len(raw) + 5).to_bytes(4, "little") + raw + b"\0"
            reply = client.command(raw)
            replies.append((reply["ok"], reply.get("code"), reply.get("errmsg", "").replace(database, "database")))
        return replies

    def rows(self) -> list[Any]:
        return [client.command({"find": "x", "$db": name})["cursor"]["firstBatch"] for client, name in self.sides]


@pytest.fixture(params=["plain", "again"])
def twins(request: pytest.FixtureRequest, proxy_rs: ProxyProcess, replica_set: MongodProcess, db_name: str) -> Any:
    """Once with a proxy that has seen well-formed commands of this kind, and recognises them by their bytes."""
    with WireClient(replica_set.port) as native, WireClient(proxy_rs.port) as proxied:
        both = Twins(native, proxied, db_name)
        if request.param == "again":
            for _ in range(3):
                for name in ("find", "aggregate", "count", "distinct"):
                    both.replies({name: "x", **COMMANDS[name], "lsid": None})
                both.replies({"insert": "x", "documents": ROWS[:1], "lsid": None, "txnNumber": Int64(7)})
        yield both


@pytest.mark.parametrize("name", COMMANDS)
def test_a_field_that_occurs_twice(twins: Twins, name: str) -> None:
    before = twins.rows()
    fields = {name: "x", **COMMANDS[name], "lsid": None, "$readPreference": {"mode": "primary"}, "maxTimeMS": 10_000}
    for again in (*fields, "$db"):
        native, proxied = twins.replies(fields, again)
        assert native[1] == 40413, again
        assert proxied == native, again
    assert twins.rows() == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_transaction_number_that_is_none(twins: Twins, name: str) -> None:
    before = twins.rows()
    for number in NUMBERS:
        native, proxied = twins.replies({name: "x", **COMMANDS[name], "lsid": None, "txnNumber": number})
        assert native[0] == 0.0, number
        assert proxied == native, number
    native, proxied = twins.replies({name: "x", **COMMANDS[name], "txnNumber": Int64(1)})
    assert native[1] == 72
    assert proxied == native
    assert twins.rows() == before


@pytest.mark.parametrize("name", ["insert", "findAndModify", "find", "aggregate", "count", "delete", "update"])
def test_a_read_preference_that_is_none(twins: Twins, name: str) -> None:
    before = twins.rows()
    for preference in PREFERENCES:
        native, proxied = twins.replies({name: "x", **COMMANDS[name], "$readPreference": preference})
        assert native[0] == 0.0, preference
        assert proxied == native, preference
    assert twins.rows() == before


@pytest.mark.parametrize("mode", ["primary", "nearest", "secondaryPreferred"])
def test_inserts_with_a_read_preference(twins: Twins, mode: str) -> None:
    """It is of no use for them, and no error."""
    for more in ({}, {"tags": [{"a": "b"}]} if mode != "primary" else {}):
        assert (
            twins.replies({"insert": "x", "documents": ROWS, "$readPreference": {"mode": mode, **more}})
            == [(1.0, None, "")] * 2
        )
    native, proxied = twins.rows()
    assert len(native) == len(proxied)


@pytest.mark.parametrize("name", COMMANDS)
def test_metadata_of_a_client_that_is_none(twins: Twins, name: str) -> None:
    """Routers send it with every command."""
    before = twins.rows()
    for metadata in (5, {}, {"x": 1}, {"driver": {"name": "d"}}, {"driver": {"name": "d", "version": "1"}, "os": 1}):
        native, proxied = twins.replies({name: "x", **COMMANDS[name], "$client": metadata})
        assert native[0] == 0.0, metadata
        assert proxied == native, metadata
    assert twins.rows() == before
