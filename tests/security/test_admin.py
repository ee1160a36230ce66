"""Who may use admin commands: the backend's roles decide, and without access control the address."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import ObjectId

from proxy.admin.table import COMMANDS, Right
from tests.support.access import PASSWORD, GuardedMongod, errors_of
from tests.support.mongod import MongodProcess
from tests.support.ports import free_port, own_address
from tests.support.proxy import ProxyProcess, started
from tests.support.wire import WireClient

UNAUTHORIZED = 13
NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)

USERS: Mapping[str, tuple[list[Any], set[Right]]] = {
    "reader": (["read"], set()),
    "writer": (["readWrite"], set()),
    "administrator": (["dbAdmin"], set()),
    "monitor": ([{"role": "clusterMonitor", "db": "admin"}], {Right.READ}),
    "host_manager": ([{"role": "hostManager", "db": "admin"}], {Right.CHANGE}),
    "cluster_administrator": ([{"role": "clusterAdmin", "db": "admin"}], {Right.READ, Right.CHANGE}),
    "superuser": ([{"role": "root", "db": "admin"}], {Right.READ, Right.CHANGE}),
    "nothing": ([], set()),
}

FIELDS: Mapping[str, Mapping[str, Any]] = {
    "buckets": {"collection": "{db}.ts"},
    "close": {"collection": "{db}.ts"},
    "kill": {"connection": 2**40},
    "pause": {"waitSeconds": 0},
    "drain": {"waitSeconds": 0},
}
LAST = ("pause", "resume", "drain", "resume")


@pytest.fixture(scope="module")
def database(guarded: GuardedMongod) -> Iterator[str]:
    name = f"administered_{ObjectId()}"
    guarded.shared_client[name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    for user, (roles, _) in USERS.items():
        guarded.create_user(name, user, roles)
    yield name
    guarded.shared_client[name].command("dropAllUsersFromDatabase")
    guarded.shared_client.drop_database(name)


@pytest.fixture(scope="module")
def own_proxy(guarded: GuardedMongod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy that these tests may pause and drain."""
    with started(
        ProxyProcess(tmp_path_factory.mktemp("admin"), guarded.account_uri, flags=["--roles-refresh-seconds", "1"])
    ) as proxy:
        yield proxy


def connect(proxy: ProxyProcess, user: str, database: str) -> pymongo.MongoClient[dict[str, Any]]:
    login = f"{user}:{PASSWORD}@" if user else ""
    return pymongo.MongoClient(f"mongodb://{login}{proxy.address}/{database}?directConnection=true")


def admin_command(name: str, database: str) -> dict[str, Any]:
    fields = {
        field: value.format(db=database) if isinstance(value, str) else value
        for field, value in FIELDS.get(name, {}).items()
    }
    return {"tsproxy": name, **fields}


@pytest.mark.parametrize("user", USERS)
def test_roles_of_the_backend_decide(user: str, own_proxy: ProxyProcess, database: str) -> None:
    rights = USERS[user][1] | {Right.ANYONE}
    with connect(own_proxy, user, database) as client:
        for name in (*(each for each in COMMANDS if each not in LAST), *LAST):
            reply = errors_of(client, "admin", admin_command(name, database))
            if COMMANDS[name].right not in rights:
                assert isinstance(reply, tuple), name
                assert reply[:2] == (UNAUTHORIZED, "Unauthorized")
                assert all(action in reply[2] for action in COMMANDS[name].right.actions)
            elif name == "kill":
                assert reply[0] == 2  # no such connection
            else:
                assert isinstance(reply, dict), (name, reply)
                assert reply["ok"] == 1
                assert name != "peers" or "whyUnknown" not in reply, "the least role shows what has the same account"
        assert client.admin.command("ping")["ok"] == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_who_has_not_logged_in_is_refused(name: str, own_proxy: ProxyProcess, database: str) -> None:
    with connect(own_proxy, "", database) as client:
        reply = errors_of(client, "admin", admin_command(name, database))
        assert reply == (UNAUTHORIZED, "Unauthorized", "command tsproxy requires authentication")


def test_revoked_privileges_are_gone_after_the_refresh(
    guarded: GuardedMongod, own_proxy: ProxyProcess, database: str
) -> None:
    guarded.create_user(database, "former", [{"role": "clusterMonitor", "db": "admin"}])
    with connect(own_proxy, "former", database) as client:
        assert errors_of(client, "admin", {"tsproxy": "status"})["ok"] == 1
        guarded.shared_client[database].command("updateUser", "former", roles=["read"])
        own_proxy.wait_until(lambda: isinstance(errors_of(client, "admin", {"tsproxy": "status"}), tuple))


def test_meta_values_are_for_those_who_may_read_the_collection(
    guarded: GuardedMongod, own_proxy: ProxyProcess, database: str
) -> None:
    with connect(own_proxy, "superuser", database) as client:
        client[database].ts.insert_one({"t": NOW, "m": "secret value", "v": 1})
        (shown,) = client.admin.command({"tsproxy": "buckets", "collection": f"{database}.ts"})["buckets"]
        assert shown["meta"] == "secret value"
    by_meta = {"tsproxy": "buckets", "collection": f"{database}.ts", "meta": "secret value"}
    with connect(own_proxy, "monitor", database) as client:
        (shown,) = client.admin.command({"tsproxy": "buckets", "collection": f"{database}.ts"})["buckets"]
        assert (shown["rows"], "meta" in shown) == (1, False)
        assert errors_of(client, "admin", by_meta)[0] == UNAUTHORIZED
    with connect(own_proxy, "host_manager", database) as client:
        assert errors_of(client, "admin", {**by_meta, "tsproxy": "close"})[0] == UNAUTHORIZED
        assert client.admin.command({"tsproxy": "close", "collection": f"{database}.ts"})["closed"] == 1
    assert "secret value" not in own_proxy.log


def test_passwords_are_masked(own_proxy: ProxyProcess, database: str) -> None:
    with connect(own_proxy, "superuser", database) as client:
        shown = client.admin.command({"tsproxy": "config"})
        assert shown["settings"]["backend"].startswith("mongodb://tsproxy:***@")
        assert client.admin.command({"tsproxy": "status"})["backend"]["uri"].startswith("mongodb://tsproxy:***@")


def test_changes_are_logged_with_who_made_them(own_proxy: ProxyProcess, database: str) -> None:
    with connect(own_proxy, "superuser", database) as client:
        client.admin.command({"tsproxy": "reload"})
    own_proxy.wait_until(lambda: f"users=['superuser@{database}']" in own_proxy.log)
    assert "command=reload" in own_proxy.log


def test_without_access_control_only_this_machine_is_served(mongod: MongodProcess, tmp_path: Path) -> None:
    """Unless the setting says otherwise, which takes effect with a reload."""
    file = tmp_path / "tsproxy.toml"
    file.touch()
    port = free_port()
    flags = ["--config", str(file), "--listen", f"0.0.0.0:{port}"]
    proxy = ProxyProcess(tmp_path, mongod.uri, port=port, flags=flags).start()
    with WireClient(proxy.port) as near, WireClient(proxy.port, host=own_address()) as far:
        status = {"tsproxy": "status", "$db": "admin"}
        assert near.command(status)["ok"] == 1
        refused = far.command(status)
        assert refused["code"] == UNAUTHORIZED
        assert "admin_without_login" in refused["errmsg"]
        assert far.command({"tsproxy": "help", "$db": "admin"})["code"] == UNAUTHORIZED
        file.write_text("admin_without_login = 'anywhere'")
        assert near.command({"tsproxy": "reload", "$db": "admin"})["changed"] == {"admin_without_login": "anywhere"}
        assert far.command(status)["ok"] == 1
    proxy.stop()
