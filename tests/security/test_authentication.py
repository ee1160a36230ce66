"""Logins pass through: the proxy never sees a password, and is whoever the backend says the client is."""

from __future__ import annotations

import asyncio
import datetime as dt
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

from tests.support.access import PASSWORD, GuardedMongod, errors_of
from tests.support.node import mongosh, node
from tests.support.process import ProcessFailed
from tests.support.proxy import ProxyProcess
from tests.support.wire import WireClient, op_msg

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from motor.motor_asyncio import AsyncIOMotorClient

NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
MECHANISMS = ("SCRAM-SHA-1", "SCRAM-SHA-256")


@pytest.fixture(scope="module")
def database(guarded: GuardedMongod) -> Iterator[str]:
    name = f"login_{ObjectId()}"
    guarded.shared_client[name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    guarded.create_user(name, "writer", ["readWrite"])
    guarded.create_user(name, "reader", ["read"])
    guarded.create_user(name, "old", ["readWrite"], mechanisms=["SCRAM-SHA-1"])
    guarded.create_user(name, "new", ["readWrite"], mechanisms=["SCRAM-SHA-256"])
    yield name
    guarded.shared_client[name].command("dropAllUsersFromDatabase")
    guarded.shared_client.drop_database(name)


def uri_of(proxy: ProxyProcess, user: str, database: str, options: str = "") -> str:
    return f"mongodb://{user}:{PASSWORD}@{proxy.address}/{database}?{options}"


def connect(uri: str) -> pymongo.MongoClient[dict[str, Any]]:
    return pymongo.MongoClient(uri, serverSelectionTimeoutMS=20_000, retryWrites=False)


@pytest.mark.parametrize("mechanism", ["", *MECHANISMS])
@pytest.mark.parametrize("user", ["writer", "old", "new"])
def test_scram_logs_in(user: str, mechanism: str, guarded_proxy: ProxyProcess, database: str) -> None:
    """With and without negotiation (``saslSupportedMechs``), with ``speculativeAuthenticate`` as drivers do."""
    options = f"authMechanism={mechanism}" if mechanism else ""
    impossible = (user, mechanism) in (("old", "SCRAM-SHA-256"), ("new", "SCRAM-SHA-1"))
    with connect(uri_of(guarded_proxy, user, database, options)) as client:
        if impossible:
            with pytest.raises(OperationFailure) as refused:
                client[database].ts.insert_one({"t": NOW, "m": user})
            assert refused.value.code == 18
        else:
            client[database].ts.insert_one({"t": NOW, "m": user})
            users = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
            assert users == [{"user": user, "db": database}]


def test_wrong_password_is_refused(guarded_proxy: ProxyProcess, database: str) -> None:
    with connect(f"mongodb://writer:wrong@{guarded_proxy.address}/{database}") as client:
        with pytest.raises(OperationFailure) as refused:
            client[database].ts.insert_one({"t": NOW})
        assert refused.value.code == 18


def test_scram_over_compressed_messages(guarded_proxy: ProxyProcess, database: str) -> None:
    with connect(uri_of(guarded_proxy, "writer", database, "compressors=zlib")) as client:
        client[database].ts.insert_many([{"t": NOW, "m": "z" * 500, "v": v} for v in range(50)])
        assert client[database].ts.count_documents({"m": "z" * 500}) == 50


async def test_async_clients_log_in(guarded_proxy: ProxyProcess, database: str) -> None:
    uri = uri_of(guarded_proxy, "writer", database)
    async with pymongo.AsyncMongoClient(uri) as client:
        await client[database].ts.insert_one({"t": NOW, "m": "async"})
    motor: Any = AsyncIOMotorClient(uri)
    try:
        await motor[database].ts.insert_one({"t": NOW, "m": "async"})
        assert await motor[database].ts.count_documents({"m": "async"}) == 2
    finally:
        motor.close()
        await asyncio.sleep(0)


@pytest.mark.drivers
def test_node_logs_in(guarded_proxy: ProxyProcess, database: str) -> None:
    program = Path(__file__).parent / "login.mjs"
    for mechanism in MECHANISMS:
        node(program, uri_of(guarded_proxy, "writer", database, f"authMechanism={mechanism}"), database)
    assert node(program, uri_of(guarded_proxy, "writer", database), database).split() == ["9"]


@pytest.mark.drivers
def test_mongosh_logs_in(guarded_proxy: ProxyProcess, database: str) -> None:
    script = "print(db.runCommand({connectionStatus: 1}).authInfo.authenticatedUsers[0].user)"
    assert mongosh(uri_of(guarded_proxy, "reader", database), script).split() == ["reader"]


def saslprep_start(user: str) -> dict[str, Any]:
    """The first SCRAM message with a nonce of ours; enough to see that the conversation is the backend's."""
    return {
        "saslStart": 1,
        "mechanism": "SCRAM-SHA-256",
        "payload": b"n,,n=" + user.encode() + b",r=0123456789abcdef",
        "options": {"skipEmptyExchange": True},
    }


def test_logout_ends_what_the_login_began(guarded_proxy: ProxyProcess, database: str) -> None:
    with WireClient(guarded_proxy.port) as wire:
        wire.login(database, "writer", PASSWORD)
        insert = {"insert": "ts", "documents": [{"t": NOW, "m": "logout"}], "$db": database}
        assert wire.command(insert)["ok"] == 1
        assert wire.command({"logout": 1, "$db": database})["ok"] == 1
        refused = wire.command(insert)
        assert refused["errmsg"] == "command insert requires authentication"
        assert refused["code"] == 13


def test_one_login_at_a_time(guarded_proxy: ProxyProcess, database: str, mongod_version: tuple[int, ...]) -> None:
    """A 6.0 server takes one login for each connection; after a logout the next user is who counts.

    Before 6.0 a second login on the same database takes the place of the first.
    """
    insert = {"insert": "ts", "documents": [{"t": NOW, "m": "second"}], "$db": database}
    with WireClient(guarded_proxy.port) as wire:
        wire.login(database, "reader", PASSWORD)
        assert wire.command(insert)["code"] == 13
        if mongod_version >= (6,):
            with pytest.raises(AssertionError, match=r"(5626701|5626702)"):
                wire.login(database, "writer", PASSWORD)
            assert wire.command(insert)["code"] == 13
            wire.command({"logout": 1, "$db": database})
        wire.login(database, "writer", PASSWORD)
        assert wire.command(insert)["n"] == 1
        wire.command({"logout": 1, "$db": database})
        wire.login(database, "reader", PASSWORD)
        assert wire.command(insert)["code"] == 13


def test_speculative_login_inside_hello(guarded_proxy: ProxyProcess, database: str) -> None:
    with WireClient(guarded_proxy.port) as wire:
        start = {**saslprep_start("writer"), "db": database}
        hello = {"hello": 1, "saslSupportedMechs": f"{database}.writer", "speculativeAuthenticate": start}
        reply = wire.command({**hello, "$db": "admin"})
        assert sorted(reply["saslSupportedMechs"]) == sorted(MECHANISMS)
        assert reply["speculativeAuthenticate"]["payload"].startswith(b"r=0123456789abcdef")


def test_certificates_are_refused_with_the_reason(guarded_proxy: ProxyProcess) -> None:
    """X.509 would make every client who the proxy's own certificate says it is."""
    with WireClient(guarded_proxy.port) as wire:
        x509 = {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"}
        reply = wire.command({"hello": 1, "speculativeAuthenticate": x509, "$db": "admin"})
        assert reply["ok"] == 1
        assert "speculativeAuthenticate" not in reply
        refused = wire.command({"authenticate": 1, "mechanism": "MONGODB-X509", "$db": "$external"})
        assert (refused["code"], refused["codeName"]) == (18, "AuthenticationFailed")
        assert "SCRAM" in refused["errmsg"]


def test_revoked_role_takes_effect_in_bounded_time(
    guarded: GuardedMongod, guarded_proxy: ProxyProcess, database: str
) -> None:
    """``roles_refresh_seconds``, one second here; a granted one likewise, at once where the backend is asked."""
    guarded.create_user(database, "fickle", ["readWrite"])
    root = guarded.shared_client[database]
    insert = {"insert": "ts", "documents": [{"t": NOW, "m": "fickle"}]}
    with connect(uri_of(guarded_proxy, "fickle", database)) as client:
        assert errors_of(client, database, insert)["ok"] == 1
        root.command("revokeRolesFromUser", "fickle", roles=["readWrite"])
        guarded_proxy.wait_until(lambda: isinstance(errors_of(client, database, insert), tuple), timeout_seconds=20)
        root.command("grantRolesToUser", "fickle", roles=["readWrite"])
        assert isinstance(errors_of(client, database, insert), dict), "refusals are the backend's own, so never old"
        root.command("dropUser", "fickle")
        guarded_proxy.wait_until(lambda: isinstance(errors_of(client, database, insert), tuple), timeout_seconds=20)


def test_cursors_belong_to_their_users(guarded: GuardedMongod, guarded_proxy: ProxyProcess, database: str) -> None:
    """Also where the proxy keeps the cursor under the name of the bucket collection (C23)."""
    guarded.shared_client[database].ts.insert_many([{"t": NOW, "m": "cursor", "v": v} for v in range(10)])
    login = guarded.through(guarded_proxy.address, guarded.root_uri)
    with connect(login) as root, connect(uri_of(guarded_proxy, "reader", database)) as reader:
        opened = root[database].command({"find": "ts", "batchSize": 1})["cursor"]
        assert opened["ns"] == f"{database}.ts"
        for collection in ("ts", "other"):
            outcome = errors_of(reader, database, {"getMore": opened["id"], "collection": collection})
            assert outcome[0] == 13
            assert "system.buckets" not in outcome[2]
        assert errors_of(reader, database, {"killCursors": "ts", "cursors": [opened["id"]]})[0] == 13
        wrong = errors_of(root, database, {"getMore": opened["id"], "collection": "other"})
        assert isinstance(wrong, tuple)
        assert wrong[0] == 13
        left = root[database].command({"getMore": opened["id"], "collection": "ts", "batchSize": 1})
        assert len(left["cursor"]["nextBatch"]) == 1


def test_users_do_not_share_retried_statements(guarded_proxy: ProxyProcess, database: str) -> None:
    """A session id of somebody else must not tell whether their write happened."""
    session = {"id": bson.Binary(b"\x07" * 16, 4)}
    inserts = []
    for user in ("writer", "old"):
        with WireClient(guarded_proxy.port) as wire:
            wire.login(database, user, PASSWORD, mechanism="SCRAM-SHA-1")
            command = {"insert": "ts", "documents": [{"t": NOW, "m": "mine"}], "lsid": session, "$db": database}
            inserts.append(wire.command(command)["n"])
    assert inserts == [1, 1]


def test_logout_that_wants_no_reply_is_a_logout(guarded_proxy: ProxyProcess, database: str) -> None:
    """With ``moreToCome`` nothing tells of it but the backend, which is asked."""
    insert = {"insert": "ts", "documents": [{"t": NOW, "m": "left"}], "$db": database}
    with WireClient(guarded_proxy.port) as wire:
        wire.login(database, "writer", PASSWORD)
        assert wire.command(insert)["n"] == 1
        wire.socket.sendall(op_msg({"logout": 1, "$db": database}, flags=2))
        assert wire.command(insert)["code"] == 13


def test_restrictions_by_address_see_the_proxy_s(
    guarded: GuardedMongod, guarded_proxy: ProxyProcess, database: str
) -> None:
    """``authenticationRestrictions``: the client comes from 127.0.0.2, the proxy from 127.0.0.1."""
    outcomes = {}
    for source in ("127.0.0.1", "127.0.0.2"):
        user = f"from_{source.replace('.', '_')}"
        guarded.create_user(database, user, ["readWrite"], authenticationRestrictions=[{"clientSource": [source]}])
        for name, port in (("directly", guarded.port), ("through the proxy", guarded_proxy.port)):
            with WireClient(port, source="127.0.0.2") as wire:
                wire.login(database, user, PASSWORD, checked=False)
                told = wire.command({"connectionStatus": 1, "$db": database})
            outcomes[source, name] = bool(told["authInfo"]["authenticatedUsers"])
    assert outcomes == {
        ("127.0.0.1", "directly"): False,
        ("127.0.0.1", "through the proxy"): True,
        ("127.0.0.2", "directly"): True,
        ("127.0.0.2", "through the proxy"): False,
    }


def test_proxy_without_an_account_says_what_it_needs(guarded: GuardedMongod, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, f"mongodb://{guarded.address}/?directConnection=true")
    with pytest.raises(ProcessFailed, match="requires authentication"):
        proxy.start()


def test_proxy_with_a_wrong_password_does_not_start(guarded: GuardedMongod, tmp_path: Path) -> None:
    uri = guarded.uri_of("tsproxy", "not-the-password", "admin")
    proxy = ProxyProcess(tmp_path, uri, flags=["--server-selection-timeout-ms", "3000"])
    with pytest.raises(ProcessFailed, match=r"(?i)authentication failed"):
        proxy.start()
    assert "not-the-password" not in proxy.log
