"""What the backend refuses changes nothing for anybody: no bucket is left, nothing is looked up anew.

Beside an honest client others send commands that would change what is virtual, or which buckets are open. What happens
is counted in buckets, in looks for buckets that were open already, and in commands that the backend gets; how fast it
goes says nothing here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pymongo
import pytest
from bson import ObjectId
from bson.int64 import Int64

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command, document_of

MORE_TO_COME = 2
ROWS = 60
HOSTILE_COMMANDS = 20
"""For each row."""
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)

Client = pymongo.MongoClient[dict[str, Any]]
Document = Mapping[str, Any]


def changes_of(database: str, number: int) -> list[Document]:
    """Commands that would change what stands in the database, or names that nobody knows yet."""
    return [
        {"drop": "ts", "$db": database},
        {"drop": "system.buckets.ts", "$db": database},
        {"dropDatabase": 1, "$db": database},
        {"create": f"new_{number}", "timeseries": {"timeField": "t"}, "$db": database},
        {"collMod": "ts", "expireAfterSeconds": 1, "$db": database},
        {"renameCollection": f"{database}.ts", "to": f"{database}.other", "$db": "admin"},
        {"delete": "system.buckets.ts", "deletes": [{"q": {}, "limit": 0}], "$db": database},
        {"update": "ts", "updates": [{"q": {}, "u": {"$set": {"m": 1}}, "multi": True}], "$db": database},
        {"applyOps": [], "$db": database},
        {"insert": "ts", "documents": [{"t": START, "m": 1}], "$db": database},
        {"insert": f"said_{number}", "documents": [{}], "$db": f"{database}_{number}"},
        {"find": "ts", "$db": f"{database}_{number}"},
    ]


def listings(server: Client) -> int:
    """How many ``listCollections`` the backend has got."""
    return int(server.admin.command("serverStatus")["metrics"]["commands"]["listCollections"]["total"])


def reopened(client: Client, database: str) -> int:
    """How many buckets of ``ts`` the proxy had let go of before it needed them."""
    said = client[database].command("collStats", "ts")["timeseries"]
    return int(said.get("numBucketsReopened", 0))


def buckets_beside(
    honest: Client, server: Client, database: str, hostile: Callable[[int], None], *, meta: int = 1
) -> tuple[int, int]:
    """Buckets of an honest client's rows, with the hostile one at it between them, and listings of collections."""
    honest[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    rows = honest[database].ts
    rows.insert_one({"t": START, "m": meta, "n": -1})
    before = listings(server)
    for number in range(ROWS):
        hostile(number)
        rows.insert_one({"t": START, "m": meta, "n": number})
    asked = listings(server) - before
    assert sorted(row["n"] for row in rows.find()) == [-1, *range(ROWS)]
    assert reopened(honest, database) == 0
    return server[database]["system.buckets.ts"].count_documents({}), asked


@pytest.fixture
def honest(guarded: GuardedMongod, guarded_proxy: ProxyProcess) -> Iterator[tuple[Client, str]]:
    """A client with all rights on a database of its own."""
    database = f"effects_{ObjectId()}"
    guarded.create_user(database, "honest", ["dbOwner"])
    uri = f"mongodb://honest:{PASSWORD}@127.0.0.1:{guarded_proxy.port}/?authSource={database}&directConnection=true"
    with Client(uri) as client:
        yield client, database
    guarded.shared_client.drop_database(database)


@pytest.mark.parametrize("flags", [0, MORE_TO_COME], ids=["with_reply", "more_to_come"])
def test_who_never_logged_in_changes_nothing(
    honest: tuple[Client, str], guarded: GuardedMongod, guarded_proxy: ProxyProcess, flags: int
) -> None:
    client, database = honest
    with RawClient(guarded_proxy.port) as stranger:

        def hostile(number: int) -> None:
            sent = [changes_of(database, number * HOSTILE_COMMANDS + each) for each in range(HOSTILE_COMMANDS // 10)]
            together = [one for some in sent for one in some]
            stranger.send(b"".join(command(one, flags=flags) for one in together))
            codes = [reply.get("code") for reply in stranger.documents(0 if flags else len(together))]
            assert set(codes) <= {13, 166}
            # What is asked in between is answered after all that came before.
            assert stranger.run({"ping": 1, "$db": "admin"})["ok"] == 1

        buckets, asked = buckets_beside(client, guarded.shared_client, database, hostile)
    assert buckets == 1
    # The listing of the honest client's database is renewed every few seconds; that is all.
    assert asked <= ROWS // 4


def test_a_user_without_rights_breaks_no_bucket(
    honest: tuple[Client, str], guarded: GuardedMongod, guarded_proxy: ProxyProcess
) -> None:
    client, database = honest
    guarded.create_user(database, "nobody", [])
    uri = f"mongodb://nobody:{PASSWORD}@127.0.0.1:{guarded_proxy.port}/?authSource={database}&directConnection=true"
    with Client(uri) as nobody:

        def hostile(number: int) -> None:
            for one in changes_of(database, number)[:9]:
                with pytest.raises(pymongo.errors.PyMongoError):
                    nobody[one["$db"]].command({name: value for name, value in one.items() if name != "$db"})

        buckets, asked = buckets_beside(client, guarded.shared_client, database, hostile)
    assert (buckets, asked <= ROWS // 4) == (1, True)


@pytest.mark.parametrize("flags", [0, MORE_TO_COME], ids=["with_reply", "more_to_come"])
def test_what_fails_without_access_control_changes_nothing(
    proxy: ProxyProcess, mongod: MongodProcess, db_name: str, flags: int
) -> None:
    """Nor does what succeeds on a collection of one's own in the same database."""
    with Client(proxy.uri) as client, RawClient(proxy.port) as other:

        def hostile(number: int) -> None:
            own = f"own_{number}"
            failing: list[Document] = [
                {"drop": "nothing", "$db": db_name},
                {"collMod": "ts", "nonsense": number, "$db": db_name},
                {"create": "ts", "$db": db_name},
                {"delete": "system.buckets.ts", "deletes": [{"q": {"_id": "none"}, "limit": 0}], "$db": db_name},
                {"create": own, "timeseries": {"timeField": "t"}, "$db": db_name},
                {"drop": own, "$db": db_name},
            ]
            other.send(b"".join(command(one, flags=flags) for one in failing))
            list(other.documents(0 if flags else len(failing)))
            assert other.run({"ping": 1, "$db": "admin"})["ok"] == 1

        buckets, _ = buckets_beside(client, mongod.shared_client, db_name, hostile)
    assert buckets == 1
    assert set(mongod.shared_client[db_name].list_collection_names()) == {"ts", "system.buckets.ts", "system.views"}


def test_refused_commands_in_transactions_break_no_bucket(
    proxy_rs: ProxyProcess, replica_set: MongodProcess, db_name: str
) -> None:
    with Client(proxy_rs.uri) as client, RawClient(proxy_rs.port) as other:

        def hostile(number: int) -> None:
            with client.start_session() as session:
                fields = {"lsid": session.session_id, "txnNumber": Int64(number + 1), "autocommit": False}
                said = other.run({"insert": "ts", "documents": [{"t": START, "m": 1}], "$db": db_name, **fields})
                assert said["code"] == 251
                said = other.run(
                    {"delete": "ts", "deletes": [{"q": {}, "limit": 0}], "$db": db_name, **fields}
                    | {"startTransaction": True}
                )
                assert said["ok"] == 0

        buckets, _ = buckets_beside(client, replica_set.shared_client, db_name, hostile)
    assert buckets == 1


@pytest.mark.parametrize("ends", ["commitTransaction", "abortTransaction"])
def test_direct_writes_in_a_transaction_count_when_it_is_committed(
    proxy_rs: ProxyProcess, replica_set: MongodProcess, db_name: str, ends: str
) -> None:
    """Over several connections, too, as drivers may send them."""
    with Client(proxy_rs.uri) as client, RawClient(proxy_rs.port) as first, RawClient(proxy_rs.port) as second:
        client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        rows = client[db_name].ts
        rows.insert_one({"t": START, "m": 1})
        rows.insert_one({"t": START, "m": 2})
        with client.start_session() as session:
            fields = {"lsid": session.session_id, "txnNumber": Int64(1), "autocommit": False}
            removed = first.run(
                {"delete": "system.buckets.ts", "deletes": [{"q": {"meta": 2}, "limit": 0}], "$db": db_name, **fields}
                | {"startTransaction": True}
            )
            assert removed["n"] == 1
            rows.insert_one({"t": START, "m": 1})
            stored = replica_set.shared_client[db_name]["system.buckets.ts"]
            assert stored.count_documents({"meta": 1}) == 1
            assert second.run({ends: 1, "$db": "admin", **fields})["ok"] == 1
        rows.insert_one({"t": START, "m": 1})
        assert reopened(client, db_name) == (1 if ends == "commitTransaction" else 0)
        rows.insert_one({"t": START, "m": 2})
        assert rows.count_documents({}) == (4 if ends == "commitTransaction" else 5)


def pings(server: Client) -> int:
    """How many ``ping`` the backend has got."""
    return int(server.admin.command("serverStatus")["metrics"]["commands"]["ping"]["total"])


def test_a_flood_of_strangers_does_not_reach_the_backend(guarded: GuardedMongod, guarded_proxy: ProxyProcess) -> None:
    """Before a login, what wants no reply does nothing; what wants one is answered in its order."""
    root = guarded.shared_client
    with RawClient(guarded_proxy.port, 30) as client:
        before = pings(root)
        for document in ({"ping": 1}, {"find": "ts"}, {"nonsense": 1}, {"insert": "ts", "documents": [{}]}):
            client.send(command({**document, "$db": "d"}, flags=MORE_TO_COME) * 500)
        client.send(command({"ping": 1, "$db": "d"}))
        reply = client.receive()
        assert reply is not None
        assert document_of(reply)["ok"] == 1.0
        assert pings(root) - before < 100
