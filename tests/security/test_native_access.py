"""An account that may not touch buckets: the proxy goes on natively, and each client keeps its own rights."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymongo
import pytest
from bson import Binary, ObjectId
from pymongo.errors import BulkWriteError, OperationFailure

from tests.support.access import PASSWORD, GuardedMongod, errors_of, least_role
from tests.support.proxy import ProxyProcess, started, tsproxy
from tests.support.wire import WireClient

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TIMESERIES = {"timeField": "t", "metaField": "m"}


@pytest.fixture
def database(guarded_set: GuardedMongod) -> Iterator[str]:
    """With the proxy's account, which has ``readWrite`` here, a client with the same rights, and one that may read."""
    name = f"limited_{ObjectId()}"
    guarded_set.create_user(name, "account", ["readWrite"])
    guarded_set.create_user(name, "writer", ["readWrite"])
    guarded_set.create_user(name, "reader", ["read"])
    guarded_set.shared_client[name].create_collection("ts", timeseries=TIMESERIES)
    yield name
    guarded_set.shared_client[name].command("dropAllUsersFromDatabase")
    guarded_set.shared_client.drop_database(name)


def test_read_write_is_enough_for_the_account(guarded_set: GuardedMongod, database: str, tmp_path: Path) -> None:
    other = f"other_{ObjectId()}"
    guarded_set.create_user(other, "writer", ["readWrite"])
    guarded_set.shared_client[other].create_collection("ts", timeseries=TIMESERIES)
    proxy = ProxyProcess(tmp_path, guarded_set.uri_of("account", PASSWORD, database)).start()
    try:
        assert proxy.status("/readyz")[0] == 200
        assert "the backend's account lacks find, insert, update" in proxy.log
        with proxy.client(username="writer", password=PASSWORD, authSource=database) as client:
            series = client[database].ts
            series.insert_one({"t": START, "m": 1})
            with pytest.raises(BulkWriteError) as caught:
                series.insert_many([{"t": START, "m": 2}, {"m": 3}], ordered=False)
            assert [each["code"] for each in caught.value.details["writeErrors"]] == [2]
            assert [each["m"] for each in series.find().sort("m")] == [1, 2]
            assert client.admin.command("buildInfo")["tsproxy"]["access"] == "native"
        with proxy.client(username="reader", password=PASSWORD, authSource=database) as client:
            with pytest.raises(OperationFailure) as refused:
                client[database].ts.insert_one({"t": START, "m": 4})
            assert refused.value.code == 13
            assert client[database].ts.count_documents({}) == 2
        coalesced = proxy.metrics()["tsproxy_coalesced_measurements_total"]
        assert coalesced == 2
        # Where the account may do nothing, the client's own rights count.
        with proxy.client(username="writer", password=PASSWORD, authSource=other) as client:
            client[other].ts.insert_one({"t": START, "m": 1})
            assert client[other].ts.count_documents({}) == 1
        assert proxy.metrics()["tsproxy_coalesced_measurements_total"] == coalesced
    finally:
        proxy.stop()
        guarded_set.shared_client[other].command("dropAllUsersFromDatabase")
        guarded_set.shared_client.drop_database(other)


def test_the_doctor_names_the_access_and_its_reason(guarded_set: GuardedMongod, database: str) -> None:
    told = tsproxy("doctor", "--backend", guarded_set.uri_of("account", PASSWORD, database))
    assert told.returncode == 0, told.stdout
    assert "access" in told.stdout
    assert "native: the backend's account lacks find, insert, update, remove, bypassDocumentValidation" in told.stdout


@pytest.fixture
def revocable(guarded_set: GuardedMongod, database: str) -> Iterator[Callable[[], None]]:
    """An account with the least role, and a client that reads buckets; takes the account's right to write buckets."""
    role = f"role_{ObjectId()}"
    buckets = {"resource": {"db": database, "system_buckets": ""}, "actions": ["find"]}
    root = guarded_set.shared_client
    root.admin.command("createRole", role, privileges=least_role()["privileges"], roles=[])
    root.admin.command("createRole", f"{role}_reads", privileges=[buckets], roles=[])
    guarded_set.create_user("admin", "service", [role, {"role": "readWrite", "db": database}])
    guarded_set.create_user(database, "both", ["readWrite", {"role": f"{role}_reads", "db": "admin"}])
    root[database].ts.insert_many([{"_id": number, "t": START, "m": 1} for number in range(50)])

    def revoke() -> None:
        inserts = {"resource": {"db": "", "system_buckets": ""}, "actions": ["insert"]}
        root.admin.command("revokePrivilegesFromRole", role, privileges=[inserts])

    yield revoke
    root.admin.command("dropUser", "service")
    root.admin.command("dropRole", role)
    root.admin.command("dropRole", f"{role}_reads")


def test_open_cursors_go_on_when_the_access_becomes_native(
    guarded_set: GuardedMongod, database: str, revocable: Callable[[], None], tmp_path: Path
) -> None:
    """Those on buckets, and those that are opened afterwards."""
    login = {"username": "both", "password": PASSWORD, "authSource": database}
    with (
        started(ProxyProcess(tmp_path, guarded_set.uri_of("service", PASSWORD, "admin"))) as proxy,
        proxy.client(**login) as client,
        guarded_set.client(**login) as native,
    ):
        both = [each[database].ts for each in (client, native)]
        open_cursors = [iter(each.find(batch_size=5)) for each in both]
        doomed = client[database].ts.find(batch_size=5)
        for cursor in (*open_cursors, doomed):
            next(cursor)
        revocable()
        proxy.wait_until(lambda: is_native(proxy, client, database))
        rest = [sorted(row["_id"] for row in cursor) for cursor in open_cursors]
        assert rest[0] == rest[1] == list(range(1, 50))
        doomed.close()
        opened = [{row["_id"] for row in each.find(batch_size=5)} for each in both]
        assert opened[0] == opened[1] >= set(range(50))


def is_native(proxy: ProxyProcess, client: pymongo.MongoClient[Any], database: str) -> bool:
    """Whether all processes of the proxy have seen that the account may not insert any more, which an insert tells."""
    errors_of(client, database, {"insert": "ts", "documents": [{"_id": 50, "t": START, "m": 1}]})
    ready = proxy.status("/readyz")[1]
    return "native" in ready and ": buckets" not in ready


def test_a_cursor_on_buckets_goes_on_natively_through_another_worker(
    guarded_set: GuardedMongod, database: str, revocable: Callable[[], None], tmp_path: Path
) -> None:
    proxy = ProxyProcess(tmp_path, guarded_set.uri_of("service", PASSWORD, "admin"), flags=["--workers", "2"])
    with started(proxy), ExitStack() as stack:
        proxy.wait_until(lambda: proxy.status("/readyz")[0] == 200)
        login = {"username": "both", "password": PASSWORD, "authSource": database, "directConnection": True}
        # Each has connections of its own, so that both workers are reached.
        clients = [stack.enter_context(proxy.client(maxPoolSize=1, **login)) for _ in range(8)]
        lsid = {"lsid": {"id": Binary(uuid4().bytes, 4)}}
        wires = [stack.enter_context(WireClient(proxy.port)) for _ in range(8)]
        for wire in wires:
            wire.login(database, "both", PASSWORD)
        find = {"find": "ts", "batchSize": 5, "$db": database, **lsid}
        cursor = wires[0].command(find)["cursor"]
        revocable()
        proxy.wait_until(lambda: {is_native(proxy, client, database) for client in clients} == {True})
        more = {"getMore": cursor["id"], "collection": "ts", "batchSize": 5, "$db": database, **lsid}
        replies = [wire.command(more) for wire in wires]
        assert [reply.get("errmsg") for reply in replies] == [None] * 8
        found = [row["_id"] for reply in replies for row in reply["cursor"]["nextBatch"]]
        assert sorted(found) == list(range(5, 45))
        assert {reply["cursor"]["ns"] for reply in replies} == {f"{database}.ts"}
