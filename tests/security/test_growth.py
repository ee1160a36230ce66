"""Growth in parts needs more than the least role on a standalone; that is found out before there are any parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import ObjectId

from catalog.identity import User
from proxy.backend.current_op import CurrentOperations, process_name
from proxy.backend.service import ServicePool
from proxy.backend.service_auth import authenticator, introducing
from tests.support.access import PASSWORD, GuardedMongod, least_role
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION

IN_PLACE = "buckets grow in place"
LATER = "buckets grow in place from now on: the backend's account has lost the privilege to join parts"
GAUGE = "tsproxy_grows_in_parts"
APPLY_OPS = {"resource": {"cluster": True}, "actions": ["applyOps"]}
INPROG = {"resource": {"cluster": True}, "actions": ["inprog"]}


@pytest.fixture(scope="module")
def joiner_uri(guarded: GuardedMongod) -> Iterator[str]:
    """An account with the least role and applyOps."""
    admin = guarded.shared_client.admin
    admin.command("createRole", "joiner", privileges=[APPLY_OPS], roles=[least_role()["createRole"]])
    guarded.create_user("admin", "joiner", ["joiner"])
    yield guarded.uri_of("joiner", PASSWORD, "admin")
    admin.command("dropUser", "joiner")
    admin.command("dropRole", "joiner")


def in_parts(folder: Path, account: str, growth: str = "in_parts") -> ProxyProcess:
    # Without a warning about the limit of open files.
    return ProxyProcess(folder, account, flags=["--write-strategy", growth, "--max-connections", "100"])


@pytest.mark.parametrize("growth", ["in_parts", "auto"])
def test_account_that_may_not_join_grows_buckets_in_place(guarded: GuardedMongod, tmp_path: Path, growth: str) -> None:
    before = guarded.shared_client.list_database_names()
    proxy = in_parts(tmp_path, guarded.account_uri, growth).start()
    try:
        assert proxy.log.count(IN_PLACE) == 1
        assert "applyOps" in proxy.log
        assert ("warning" in proxy.log) == (growth == "in_parts"), "only what was asked for is missed"
        assert proxy.metrics()[GAUGE] == 0
        assert guarded.shared_client.list_database_names() == before, "asking leaves nothing behind"
    finally:
        proxy.stop()


def test_account_that_may_join_grows_buckets_in_parts(guarded: GuardedMongod, joiner_uri: str, tmp_path: Path) -> None:
    proxy = in_parts(tmp_path, joiner_uri).start()
    try:
        assert IN_PLACE not in proxy.log
        assert proxy.metrics()[GAUGE] == 1
    finally:
        proxy.stop()


def test_account_that_may_not_see_other_readers_grows_buckets_in_place_by_default(
    guarded: GuardedMongod, joiner_uri: str, tmp_path: Path
) -> None:
    """Joins that a reader past the proxy would meet are made only where somebody asked for it."""
    proxy = in_parts(tmp_path, joiner_uri, "auto").start()
    try:
        assert proxy.log.count(IN_PLACE) == 1
        assert "inprog" in proxy.log
        assert proxy.metrics()[GAUGE] == 0
    finally:
        proxy.stop()


def test_right_that_is_lost_later_ends_growth_in_parts(guarded: GuardedMongod, joiner_uri: str, tmp_path: Path) -> None:
    """What was told at the start may change: the first join that is refused tells, without any data."""
    secret = "a value of a client"
    database = f"revoked_{ObjectId()}"
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    series = guarded.shared_client[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    admin = guarded.shared_client.admin
    guarded.create_user(database, "writer", ["readWrite"])
    proxy = in_parts(tmp_path, joiner_uri).start()
    try:
        admin.command("revokePrivilegesFromRole", "joiner", privileges=[APPLY_OPS])
        with proxy.client(username="writer", password=PASSWORD, authSource=database) as client:
            for second in range(4):
                at = start + dt.timedelta(seconds=second)
                rows = [{"t": at, "m": device, "p": secret} for device in range(20)]
                client[database].ts.insert_many(rows)
        proxy.wait_until(lambda: LATER in proxy.log)
        assert proxy.metrics()[GAUGE] == 0
        assert series.count_documents({}) == 80
        assert secret not in proxy.log
    finally:
        proxy.stop()
        admin.command("grantPrivilegesToRole", "joiner", privileges=[APPLY_OPS])
        guarded.shared_client[database].command("dropAllUsersFromDatabase")
        guarded.shared_client.drop_database(database)


def test_account_that_may_join_and_ask_grows_buckets_in_parts_by_default(tmp_path: Path) -> None:
    """With a server of its own: in front of the shared one are other proxies."""
    chosen = server(MONGOD_VERSION)
    alone = GuardedMongod(
        tmp_path / "mongod", binary=chosen.binary, environment=chosen.environment, arguments=["--auth"]
    )
    try:
        alone.start()
        alone.create_accounts()
        alone.shared_client.admin.command(
            "createRole", "grower", privileges=[APPLY_OPS, INPROG], roles=[least_role()["createRole"]]
        )
        alone.create_user("admin", "grower", ["grower"])
        proxy = in_parts(tmp_path / "proxy", alone.uri_of("grower", PASSWORD, "admin"), "auto").start()
        try:
            assert IN_PLACE not in proxy.log
            assert proxy.metrics()[GAUGE] == 1
        finally:
            proxy.stop()
    finally:
        alone.remove()


async def test_a_client_that_calls_itself_a_proxy_is_none(tmp_path: Path) -> None:
    """A name is anybody's; a process of the proxy has the proxy's user at the backend."""
    chosen = server(MONGOD_VERSION)
    alone = GuardedMongod(
        tmp_path / "mongod", binary=chosen.binary, environment=chosen.environment, arguments=["--auth"]
    )
    try:
        alone.start()
        alone.create_accounts()
        alone.shared_client.admin.command("createRole", "looker", privileges=[INPROG], roles=[])
        for user, role in (("looker", "looker"), ("liar", "readWriteAnyDatabase")):
            alone.create_user("admin", user, [role])
        account, name = alone.uri_of("looker", PASSWORD, "admin"), process_name()
        backend_port = alone.port

        async def primary(_: float) -> tuple[str, int]:
            return "127.0.0.1", backend_port

        pool = ServicePool(primary, introducing(name, lambda _: None, authenticator(account)), None, 5.0)
        others = CurrentOperations(pool, name, User("looker", "admin"))
        try:
            with pymongo.MongoClient[dict[str, Any]](
                alone.uri_of("liar", PASSWORD, "admin"), appname="tsproxy 0123456789ab"
            ) as liar:
                liar.admin.command("ping")
                assert await others.count_proxies() == 0
                assert not await others.read("any", or_are_proxies=True)
                with pymongo.MongoClient[dict[str, Any]](account, appname="tsproxy 0123456789ab") as proxy:
                    proxy.admin.command("ping")
                    assert await others.count_proxies() == 1
                    assert await others.read("any", or_are_proxies=True)
        finally:
            pool.close()
    finally:
        alone.remove()


def test_a_client_of_the_proxy_does_not_bear_the_name_of_one(mongod: MongodProcess, proxy: ProxyProcess) -> None:
    """Without access control the name is all there is, so no client can have it towards the backend."""
    with proxy.client(appname="tsproxy 0123456789ab") as client:
        client.admin.command("ping")
        shown = mongod.shared_client.admin.aggregate(
            [{"$currentOp": {"idleConnections": True}}, {"$match": {"appName": {"$regex": "0123456789ab"}}}]
        )
        assert {each["appName"] for each in shown} == {"client tsproxy 0123456789ab"}
