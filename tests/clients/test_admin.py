"""Admin commands through a driver, in front of a real server without access control."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from proxy.admin.table import COMMANDS
from proxy.settings.table import ROWS
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.proxy import ProxyProcess
from tests.support.wire import WireClient, op_msg

Client = pymongo.MongoClient[dict[str, Any]]
NOW = dt.datetime(2024, 5, 1, 12, 0, 30, tzinfo=dt.UTC)


@pytest.fixture
def client(proxy: ProxyProcess) -> Iterator[Client]:
    with proxy.client(appname="the administrator") as client:
        yield client


@pytest.fixture
def own_proxy(mongod: MongodProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy that the test may drain, with a listener for admin commands and a file that it may change."""
    (tmp_path / "tsproxy.toml").touch()
    flags = ["--admin-listen", f"{LOOPBACK}:{free_port()}", "--config", str(tmp_path / "tsproxy.toml")]
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=flags).start()
    try:
        yield proxy
    finally:
        proxy.stop()


def admin_client(proxy: ProxyProcess) -> Client:
    return pymongo.MongoClient(f"mongodb://{proxy.flags[1]}/", serverSelectionTimeoutMS=20_000)


def admin(client: Client, name: str, **fields: Any) -> dict[str, Any]:
    return client.admin.command({"tsproxy": name, **fields})


def refusal(client: Client, command: dict[str, Any], database: str = "admin") -> tuple[int, str]:
    with pytest.raises(OperationFailure) as raised:
        client[database].command(command)
    assert raised.value.code is not None
    assert raised.value.details is not None
    return raised.value.code, raised.value.details["errmsg"]


def series(client: Client, database: str) -> Any:
    """A collection with three rows in two series."""
    client[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    for number in range(3):
        client[database].ts.insert_one({"t": NOW, "m": {"a": number % 2}, "v": number})
    return client[database].ts


def test_help_lists_every_command(client: Client) -> None:
    shown = admin(client, "help")["commands"]
    assert list(shown) == list(COMMANDS)
    assert shown["kill"]["privileges"] == ["killop", "shutdown"]
    assert set(shown["buckets"]["fields"]) == {"collection", "meta", "limit"}


def test_status_says_what_the_proxy_is_and_does(client: Client, proxy: ProxyProcess, db_name: str) -> None:
    series(client, db_name)
    shown = admin(client, "status")
    assert (shown["ready"], shown["state"], shown["pid"]) == (True, "serving", proxy.pid)
    assert (shown["listen"], shown["backend"]["answers"]) == (proxy.address, True)
    assert shown["uptimeSeconds"] > 0
    assert shown["connections"]["open"] >= 1
    assert shown["totals"]["measurementsCommitted"] >= 3
    assert shown["uncommitted"] == {"measurements": 0, "bytes": 0}
    assert shown["version"] == client.admin.command("buildInfo")["tsproxy"]["version"]


def test_clients_shows_commands_without_values(client: Client, proxy: ProxyProcess, db_name: str) -> None:
    client[db_name].c.insert_one({"_id": 1})
    with WireClient(proxy.port) as wire:
        hello = {"hello": 1, "client": {"driver": {"name": "d", "version": "7"}, "os": {"type": "x"}}, "$db": "admin"}
        connection = wire.command(hello)["connectionId"]
        (shown,) = [each for each in admin(client, "clients")["clients"] if each["connection"] == connection]
        assert (shown["state"], shown["users"], shown["driver"]) == ("idle", [], {"name": "d", "version": "7"})
        assert shown["address"] == "{}:{}".format(*wire.socket.getsockname())
        slow = {"find": "c", "filter": {"$where": "sleep(1500) || 'secret'"}, "$db": db_name}
        wire.socket.sendall(op_msg(slow))
        proxy.wait_until(lambda: admin(client, "clients", state="running", minSeconds=0.1)["matching"] == 1)
        (shown,) = admin(client, "clients", state="running", minSeconds=0.1)["clients"]
        assert (shown["connection"], shown["command"], shown["ns"]) == (connection, "find", f"{db_name}.c")
        assert shown["seconds"] >= 0.1
        assert "secret" not in str(shown)
        wire.receive()
    own = admin(client, "clients", limit=1)
    assert (len(own["clients"]), own["total"] >= own["matching"] > 1) == (1, True)
    assert [each.get("application") for each in admin(client, "clients")["clients"]].count("the administrator") >= 2
    assert admin(client, "clients", user="nobody@admin")["matching"] == 0
    assert admin(client, "clients", address="203.0.113.1")["matching"] == 0


def test_kill_closes_a_connection_and_ends_its_command(client: Client, proxy: ProxyProcess, db_name: str) -> None:
    client[db_name].c.insert_one({"_id": 1})
    with WireClient(proxy.port) as wire:
        connection = wire.command({"hello": 1, "$db": "admin"})["connectionId"]
        wire.socket.sendall(op_msg({"find": "c", "filter": {"$where": "sleep(60000)"}, "$db": db_name}))
        proxy.wait_until(lambda: admin(client, "clients", state="running")["matching"] == 2)
        assert admin(client, "kill", connection=connection)["killed"] == connection
        assert wire.is_closed()
    code, text = refusal(client, {"tsproxy": "kill", "connection": connection})
    assert (code, str(connection) in text) == (2, True)
    own = client.admin.command("hello")["connectionId"]
    assert refusal(client, {"tsproxy": "kill", "connection": own})[0] == 2


def test_collections_are_listed_with_their_open_buckets(client: Client, db_name: str) -> None:
    series(client, db_name)
    client[db_name].create_collection("unused", timeseries={"timeField": "t"})
    client[db_name].unused.find_one()
    shown = admin(client, "collections", database=db_name)
    first, second = shown["collections"]
    assert (first["collection"], first["series"], first["openBuckets"]) == (f"{db_name}.ts", 2, 2)
    assert (first["rows"], first["uncommittedRows"], first["measurementsCommitted"], first["parts"]) == (3, 0, 3, 0)
    assert second == {"collection": f"{db_name}.unused", "parts": 0}
    assert admin(client, "collections", database=db_name, limit=1)["total"] == 2


def test_buckets_are_those_of_the_backend(client: Client, mongod: MongodProcess, db_name: str) -> None:
    series(client, db_name)
    shown = admin(client, "buckets", collection=f"{db_name}.ts")
    assert (shown["total"], {each["meta"]["a"]: each["rows"] for each in shown["buckets"]}) == (2, {0: 2, 1: 1})
    (one,) = admin(client, "buckets", collection=f"{db_name}.ts", meta={"a": 1})["buckets"]
    stored = mongod.shared_client[db_name]["system.buckets.ts"].find_one({"meta": {"a": 1}})
    assert stored is not None
    assert one["_id"] == stored["_id"]
    assert one["start"] == stored["control"]["min"]["t"]
    assert (one["committedRows"], one["isCurrent"]) == (1, True)
    # As for measurements, the order of fields in a meta value does not matter, and neither does the name of the view.
    client[db_name].ts.insert_one({"t": NOW, "m": {"x": 1, "b": 2}})
    assert admin(client, "buckets", collection=f"{db_name}.system.buckets.ts", meta={"b": 2, "x": 1})["total"] == 1
    limited = admin(client, "buckets", collection=f"{db_name}.ts", limit=1)
    assert (len(limited["buckets"]), limited["total"]) == (1, 3)
    assert refusal(client, {"tsproxy": "buckets", "collection": f"{db_name}.none"})[0] == 26
    assert refusal(client, {"tsproxy": "buckets", "collection": "none"})[0] == 73


def test_closed_buckets_get_no_more_rows(client: Client, mongod: MongodProcess, db_name: str) -> None:
    """As after ``control.closed`` was set by hand; other series go on in their buckets."""
    measurements = series(client, db_name)
    assert admin(client, "close", collection=f"{db_name}.ts", meta={"a": 1})["closed"] == 1
    for number in (3, 4):
        measurements.insert_one({"t": NOW, "m": {"a": number % 2}, "v": number})
    stored = list(mongod.shared_client[db_name]["system.buckets.ts"].find())
    assert sorted((each["meta"]["a"], each["control"].get("closed", False)) for each in stored) == [
        (0, False),
        (1, False),
        (1, True),
    ]
    assert admin(client, "close", collection=f"{db_name}.ts")["closed"] == 2
    assert admin(client, "close", collection=f"{db_name}.ts")["closed"] == 0
    stored = list(mongod.shared_client[db_name]["system.buckets.ts"].find())
    assert [each["control"].get("closed") for each in stored] == [True] * 3
    assert measurements.count_documents({}) == 5
    assert sorted(row["v"] for row in measurements.find()) == [0, 1, 2, 3, 4]


def test_buckets_in_parts_are_closed_when_they_are_joined(mongod: MongodProcess, tmp_path: Path, db_name: str) -> None:
    flags = ["--write-strategy", "in_parts", "--compress-closed-buckets", "false"]
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=flags).start()
    with proxy.client() as client:
        client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        for number in range(40):
            client[db_name].ts.insert_many([{"t": NOW, "m": meta, "v": number} for meta in range(16)])
        proxy.wait_until(lambda: admin(client, "collections", database=db_name)["collections"][0]["parts"] > 0)
        done = admin(client, "close", collection=f"{db_name}.ts")
        assert (done["closed"], done["unjoined"]) == (16, 0)
        client[db_name].ts.insert_many([{"t": NOW, "m": meta, "v": 40} for meta in range(16)])
        assert client[db_name].ts.count_documents({}) == 41 * 16
    proxy.stop()
    stored = list(mongod.shared_client[db_name]["system.buckets.ts"].find())
    rows = sorted((len(each["data"]["t"]), each["control"].get("closed", False)) for each in stored)
    assert rows == [(1, False)] * 16 + [(40, True)] * 16


def test_config_shows_the_settings_in_effect_and_their_sources(mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--max-connections", "77"]).start()
    with proxy.client() as client:
        shown = admin(client, "config")
    proxy.stop()
    assert set(shown["settings"]) == set(ROWS)
    assert shown["settings"]["backend"] == mongod.uri
    assert shown["settings"]["max_connections"] == 77
    assert shown["sources"]["max_connections"] == "command line"
    assert "idle_timeout_seconds" not in shown["sources"]
    assert shown["reloadable"] == [name for name, row in ROWS.items() if row.is_reloadable]


def test_peers_shows_the_other_proxies(own_proxy: ProxyProcess, tmp_path: Path) -> None:
    with admin_client(own_proxy) as administrator:
        (tmp_path / "other").mkdir()
        other = ProxyProcess(tmp_path / "other", own_proxy.backend).start()
        try:
            with other.client() as elsewhere:
                seen = admin(elsewhere, "peers")
            shown = {each["name"]: each for each in admin(administrator, "peers")["peers"]}
            peer = shown[seen["name"]]
            assert (peer["address"], peer["version"]) == ("127.0.0.1", metadata.version("tsproxy"))
            assert peer["connections"] > 0
            own = admin(administrator, "peers")
            assert own["name"] in {each["name"] for each in seen["peers"]}
            # It changes when the other one is linked.
            own_proxy.wait_until(
                lambda: admin(administrator, "peers")["mode"] == admin(administrator, "status")["mode"]
            )
        finally:
            other.stop()
        own_proxy.wait_until(
            lambda: seen["name"] not in {each["name"] for each in admin(administrator, "peers")["peers"]}
        )


def test_slow_shows_what_took_long_without_its_values(own_proxy: ProxyProcess, db_name: str) -> None:
    with admin_client(own_proxy) as administrator, own_proxy.client() as client:
        assert admin(administrator, "slow")["commands"] == []
        client[db_name].plain.insert_many([{"v": number} for number in range(400)])
        client[db_name].other.find_one()
        join = {"from": "plain", "as": "all", "pipeline": [{"$match": {"$expr": {"$ne": ["$v", "s3cret"]}}}]}
        shown: dict[str, Any] = {"commands": []}
        took_ms, end = 0.0, time.monotonic() + 60
        # On a busy machine the insert may be slow, too.
        while not any(each["command"] == "aggregate" for each in shown["commands"]):
            assert time.monotonic() < end
            # The larger the collection, the slower the join.
            count = client[db_name].plain.estimated_document_count()
            client[db_name].plain.insert_many([{"v": number} for number in range(count)])
            started = time.monotonic()
            pipeline = [{"$limit": 50}, {"$lookup": join}, {"$project": {"joined": {"$size": "$all"}}}]
            list(client[db_name].plain.aggregate(pipeline, comment="a join"))
            took_ms = (time.monotonic() - started) * 1000
            shown = admin(administrator, "slow", minMs=100, database=db_name)
        assert shown["thresholdMs"] == 100
        assert shown["matching"] <= shown["total"]
        newest = shown["commands"][0]
        assert (newest["command"], newest["namespace"]) == ("aggregate", f"{db_name}.plain")
        assert newest["comment"] == "a join"
        assert 100 <= newest["duration_ms"] <= took_ms
        assert "s3cret" not in repr(shown)
        assert len(admin(administrator, "slow", limit=1)["commands"]) == 1
        assert admin(administrator, "slow", database="elsewhere")["commands"] == []
        assert admin(administrator, "slow", minMs=10_000_000)["matching"] == 0


def test_reload_applies_names_what_it_leaves_and_refuses_mistakes(own_proxy: ProxyProcess) -> None:
    file = Path(own_proxy.flags[3])
    with own_proxy.client() as client:
        assert admin(client, "reload") == {"changed": {}, "needRestart": [], "ignored": [], "ok": 1}
        file.write_text("max_connections = 50\nwrite_strategy = 'in_place'")
        done = admin(client, "reload")
        assert (done["changed"], done["needRestart"]) == ({"max_connections": 50}, ["write_strategy"])
        shown = admin(client, "config")
        assert (shown["settings"]["max_connections"], shown["settings"]["write_strategy"]) == (50, "auto")
        assert shown["sources"]["max_connections"] == str(file)
        file.write_text("max_connections = 60\nmax_pending_bytes = 1\nmax_conections = 4")
        with pytest.raises(OperationFailure) as raised:
            admin(client, "reload")
        assert (raised.value.code, raised.value.details is not None) == (2, True)
        assert len((raised.value.details or {})["problems"]) == 2
        assert admin(client, "config")["settings"]["max_connections"] == 50


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ({"tsproxy": "stat"}, 2, "did you mean 'status'? there are help, status"),
        ({"tsproxy": 1}, 14, "not int; there are help, status"),
        ({"tsproxy": "clients", "limits": 1}, 40415, "'limits' is not a field of 'clients'; it has limit, address"),
        ({"tsproxy": "status", "x": 1}, 40415, "it has no fields"),
        ({"tsproxy": "clients", "limit": "1"}, 14, "'limit' of 'clients' must be a whole number, not string"),
        ({"tsproxy": "clients", "limit": 1.5}, 2, "from 1 to 1000"),
        ({"tsproxy": "clients", "limit": 1001}, 2, "from 1 to 1000"),
        ({"tsproxy": "clients", "state": "asleep"}, 2, "idle, running, held"),
        ({"tsproxy": "pause", "limitSeconds": True}, 14, "must be a number, not bool"),
        ({"tsproxy": "resume", "force": 1}, 14, "must be a bool, not int"),
        ({"tsproxy": "kill"}, 40414, "'kill' requires the field 'connection'"),
        ({"tsproxy": "status", "autocommit": False}, 263, "multi-document transaction"),
        ({"tsproxy": "status", "apiVersion": "1", "apiStrict": True}, 323, "not in API Version 1"),
        ({"tsproxy": "status", "comment": "x" * 70_000}, 2, "must not exceed 65536 bytes"),
    ],
    ids=str,
)
def test_mistakes_are_named(client: Client, command: dict[str, Any], code: int, words: str) -> None:
    found, text = refusal(client, command)
    assert (found, words in text) == (code, True), text


def test_admin_commands_are_for_the_admin_database(client: Client, db_name: str) -> None:
    assert refusal(client, {"tsproxy": "status"}, db_name) == (
        13,
        "tsproxy may only be run against the admin database.",
    )
    assert admin(client, "status", comment="why", maxTimeMS=1000)["ok"] == 1


@pytest.mark.parametrize("through", ["listener", "port"])
def test_drain_disconnects_clients_and_leaves_the_administrator(
    own_proxy: ProxyProcess, db_name: str, through: str
) -> None:
    administrator = admin_client(own_proxy) if through == "listener" else own_proxy.client(appname="administrator")
    slow = {"find": "c", "filter": {"$where": "sleep(1000) || true"}, "$db": db_name}
    with administrator, own_proxy.client(serverSelectionTimeoutMS=500) as client, WireClient(own_proxy.port) as busy:
        client[db_name].create_collection("ts", timeseries={"timeField": "t"})
        client[db_name].c.insert_one({"_id": 1})
        busy.socket.sendall(op_msg(slow))
        own_proxy.wait_until(lambda: admin(administrator, "status")["running"] == 1)
        drained = admin(administrator, "drain")
        assert (drained["state"], drained["running"], drained["uncommitted"]) == ("draining", 0, 0)
        assert len(busy.receive()) > 20  # it was let finish
        assert busy.is_closed()
        with pytest.raises(ConnectionFailure):
            client[db_name].c.find_one()
        assert own_proxy.status("/readyz") == (503, "not ready: the proxy is draining\n")
        status = admin(administrator, "status")
        assert (status["state"], status["ready"], status["whyNotReady"]) == (
            "draining",
            False,
            "the proxy is draining",
        )
        assert own_proxy.running
        assert {each.get("application") for each in admin(administrator, "clients")["clients"]} <= {
            None,
            "administrator",
        }
        assert admin(administrator, "resume")["was"] == "draining"
        with own_proxy.client() as again:
            assert again[db_name].c.find_one() == {"_id": 1}
        assert own_proxy.status("/readyz")[0] == 200


def test_draining_ends_commands_after_the_grace_period(own_proxy: ProxyProcess, db_name: str) -> None:
    Path(own_proxy.flags[3]).write_text("shutdown_grace_seconds = 0.5")
    with admin_client(own_proxy) as administrator, WireClient(own_proxy.port) as busy:
        assert admin(administrator, "reload")["changed"] == {"shutdown_grace_seconds": 0.5}
        with own_proxy.client() as client:
            client[db_name].c.insert_one({"_id": 1})
        busy.socket.sendall(op_msg({"find": "c", "filter": {"$where": "sleep(60000)"}, "$db": db_name}))
        own_proxy.wait_until(lambda: admin(administrator, "status")["running"] == 1)
        admin(administrator, "drain")
        assert busy.is_closed()
        own_proxy.wait_until(lambda: admin(administrator, "status")["running"] == 0)
        assert admin(administrator, "status")["state"] == "draining"


def test_listener_for_admin_commands_takes_nothing_else(own_proxy: ProxyProcess, db_name: str) -> None:
    """Also when all connections for clients are taken."""
    Path(own_proxy.flags[3]).write_text("max_connections = 1")
    with admin_client(own_proxy) as administrator, WireClient(own_proxy.port) as only:
        only.command({"ping": 1, "$db": "admin"})
        admin(administrator, "reload")
        with pytest.raises(PyMongoError), own_proxy.client(serverSelectionTimeoutMS=300) as client:
            client.admin.command("ping")
        with admin_client(own_proxy) as another:
            assert admin(another, "status")["connections"]["rejected"] >= 1
        for command in ({"find": "c"}, {"insert": "c", "documents": [{}]}, {"ping": 1}, {"shutdown": 1}):
            code, text = refusal(administrator, command)
            assert (code, "this listener is for admin commands" in text) == (13, True)
        assert administrator.admin.command("buildInfo")["ok"] == 1


def test_admin_commands_are_counted(client: Client, proxy: ProxyProcess) -> None:
    name = 'tsproxy_requests_total{command="tsproxy",outcome="ok",way="admin"}'
    before = proxy.metrics().get(name, 0)
    admin(client, "status")
    assert proxy.metrics()[name] == before + 1
    assert os.getpid() != admin(client, "status")["pid"]
