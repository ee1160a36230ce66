"""Databases where the proxy's account has no rights: clients have their own there, as without a proxy."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymongo
import pytest
from bson import Binary, Int64, ObjectId

from tests.support.access import PASSWORD, GuardedMongod, errors_of
from tests.support.proxy import ProxyProcess
from tests.support.wire import WireClient

Client = pymongo.MongoClient[dict[str, Any]]

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TIMESERIES = {"timeField": "t", "metaField": "m"}
BUCKET_ACTIONS = ["find", "insert", "update", "remove", "bypassDocumentValidation"]


def commands(name: str) -> list[dict[str, Any]]:
    """Commands on an ordinary and on a time-series collection, each of which needs those before it."""
    series, plain = f"{name}_series", f"{name}_plain"
    row = {"_id": 1, "t": START, "m": 1, "v": 2}
    return [
        {"create": plain},
        {"insert": plain, "documents": [{"_id": 1}]},
        {"find": plain},
        {"count": plain},
        {"update": plain, "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
        {"create": series, "timeseries": TIMESERIES},
        {"insert": series, "documents": [row]},
        {"find": series, "filter": {"m": 1}},
        {"aggregate": series, "pipeline": [{"$group": {"_id": "$m", "v": {"$sum": "$v"}}}], "cursor": {}},
        {"delete": series, "deletes": [{"q": {"v": 2}, "limit": 0}]},
        {"delete": series, "deletes": [{"q": {"m": 1}, "limit": 0}]},
        {"count": series},
        {"drop": series},
        {"drop": plain},
        {"listIndexes": plain},
    ]


def told(reply: Any) -> Any:
    """What must be the same: rows, counts and errors."""
    if isinstance(reply, tuple):
        # The server's text for what is not authorised quotes the session.
        return reply[:2] if reply[0] == 13 else reply
    rows = reply.get("cursor", {}).get("firstBatch")
    return reply["ok"], reply.get("n"), reply.get("writeErrors"), rows


def compare(native: Client, proxied: Client, database: str) -> list[Any]:
    """The replies of the server to all commands, which are those through the proxy as well."""
    name = f"c{ObjectId()}"
    direct = [told(errors_of(native, database, each)) for each in commands(name)]
    assert [told(errors_of(proxied, database, each)) for each in commands(name)] == direct
    return direct


@pytest.mark.parametrize("database", ["local", "config"])
def test_databases_of_the_server_under_the_least_role(
    guarded_set: GuardedMongod, guarded_set_proxy: ProxyProcess, database: str
) -> None:
    guarded_set.create_user("admin", "keeper", ["__system"])
    guarded_set.create_user("admin", "stranger", [])
    try:
        for user in ("keeper", "stranger"):
            login = {"username": user, "password": PASSWORD}
            with guarded_set.client(**login) as native, guarded_set_proxy.client(**login) as proxied:
                direct = compare(native, proxied, database)
                assert direct[2][0] == (1.0 if user == "keeper" else 13)
                asked = {"find": "oplog.rs" if database == "local" else "transactions", "limit": 1}
                replies = [errors_of(each, database, asked) for each in (native, proxied)]
                assert [isinstance(each, tuple) for each in replies] == [user == "stranger"] * 2
    finally:
        for user in ("keeper", "stranger"):
            guarded_set.shared_client.admin.command("dropUser", user)


class Limited:
    """A proxy whose account has a role on one database, and a user with ``readWrite`` everywhere."""

    def __init__(self, server: GuardedMongod, directory: Path) -> None:
        self.server, self.root = server, server.shared_client
        self.app, self.other = f"app_{ObjectId()}", f"other_{ObjectId()}"
        self.role = f"limited_{ObjectId()}"
        self.lists = {"resource": {"db": self.app, "collection": ""}, "actions": ["listCollections"]}
        self.writes = {"resource": {"db": self.app, "system_buckets": ""}, "actions": BUCKET_ACTIONS}
        self.root.admin.command("createRole", self.role, privileges=[self.lists, self.writes], roles=[])
        server.create_user("admin", "limited", [self.role])
        server.create_user("admin", "writer", ["readWriteAnyDatabase"])
        for database in (self.app, self.other):
            self.root[database].create_collection("ts", timeseries=TIMESERIES)
        flags = ["--namespace-refresh-seconds", "1"]
        self.proxy = ProxyProcess(directory, server.uri_of("limited", PASSWORD, "admin"), flags=flags).start()

    def insert(self, client: Client, database: str) -> Any:
        """One row; the result."""
        reply = errors_of(client, database, {"insert": "ts", "documents": [{"t": START, "m": 1}]})
        return reply[0] if isinstance(reply, tuple) else reply["n"]

    def grant(self, database: str) -> None:
        """The account gets the same rights on another database."""
        privileges = [{**each, "resource": {**each["resource"], "db": database}} for each in (self.lists, self.writes)]
        self.root.admin.command("grantPrivilegesToRole", self.role, privileges=privileges)

    def close(self) -> None:
        """Stop and remove everything."""
        self.proxy.stop()
        for user in ("limited", "writer"):
            self.root.admin.command("dropUser", user)
        self.root.admin.command("dropRole", self.role)
        for database in (self.app, self.other):
            self.root.drop_database(database)


@pytest.fixture
def limited(guarded_set: GuardedMongod, tmp_path: Path) -> Iterator[Limited]:
    one = Limited(guarded_set, tmp_path)
    yield one
    one.close()


def test_a_role_that_is_limited_to_one_database(limited: Limited) -> None:
    login = {"username": "writer", "password": PASSWORD}
    with limited.server.client(**login) as native, limited.proxy.client(**login) as proxied:
        compare(native, proxied, limited.other)
        before = limited.proxy.metrics()["tsproxy_batch_measurements_sum"]
        assert limited.insert(proxied, limited.other) == 1
        assert limited.proxy.metrics()["tsproxy_batch_measurements_sum"] == before
        assert limited.insert(proxied, limited.app) == 1
        assert limited.proxy.metrics()["tsproxy_batch_measurements_sum"] == before + 1
    assert limited.proxy.status("/readyz")[0] == 200
    assert "commands on a database are relayed: the backend's account has no rights there" in limited.proxy.log


@pytest.mark.parametrize("revoked", ["the right to list", "everything"])
def test_what_is_revoked_does_not_make_inserts_native(limited: Limited, revoked: str) -> None:
    privileges = [limited.lists] if revoked == "the right to list" else [limited.lists, limited.writes]
    with limited.proxy.client(username="writer", password=PASSWORD) as proxied:
        assert limited.insert(proxied, limited.app) == 1
        limited.root.admin.command("revokePrivilegesFromRole", limited.role, privileges=privileges)
        limited.proxy.wait_until(lambda: limited.insert(proxied, limited.app) == 13)
        stored = limited.root[limited.app].ts.count_documents({})
        assert [limited.insert(proxied, limited.app) for _ in range(3)] == [13] * 3
        assert limited.root[limited.app].ts.count_documents({}) == stored


def sent(wire: WireClient, database: str, session: dict[str, Any], number: int, row: dict[str, Any]) -> Any:
    """A retryable insert of one row; what it tells."""
    retryable = {"lsid": session, "txnNumber": Int64(number), "$db": database}
    return wire.command({"insert": "ts", "documents": [row], **retryable})["n"]


@pytest.mark.parametrize("known", [True, False])
def test_w102_a_write_that_was_relayed_before_rights_were_granted_is_stored_once(limited: Limited, known: bool) -> None:
    """Also if the session was known before, so that a look-up after the start does not find it."""
    session, row = {"id": Binary(uuid4().bytes, 4)}, {"_id": ObjectId(), "t": START, "m": 2}
    with WireClient(limited.proxy.port) as wire, limited.proxy.client(username="writer", password=PASSWORD) as proxied:
        wire.login("admin", "writer", PASSWORD)
        if known:
            assert sent(wire, limited.app, session, 1, {**row, "_id": ObjectId()}) == 1
        assert sent(wire, limited.other, session, 2, row) == 1
        limited.grant(limited.other)
        before = limited.proxy.metrics()["tsproxy_batch_measurements_sum"]

        def is_covered() -> bool:
            limited.insert(proxied, limited.other)
            return limited.proxy.metrics()["tsproxy_batch_measurements_sum"] > before

        limited.proxy.wait_until(is_covered)
        assert [sent(wire, limited.other, session, 2, row) for _ in range(2)] == [1, 1]
        assert limited.root[limited.other].ts.count_documents({"m": 2}) == 1
        assert sent(wire, limited.other, session, 3, {**row, "_id": ObjectId()}) == 1
        assert limited.root[limited.other].ts.count_documents({"m": 2}) == 2
