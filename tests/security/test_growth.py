"""Growth in parts needs more than the least role on a standalone; that is found out before there are any parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from bson import ObjectId

from tests.support.access import PASSWORD, GuardedMongod, least_role
from tests.support.proxy import ProxyProcess

WARNING = "buckets grow in place: the account of the backend may not join parts"
GAUGE = "tsproxy_grows_in_parts"
APPLY_OPS = {"resource": {"cluster": True}, "actions": ["applyOps"]}


@pytest.fixture(scope="module")
def joiner_uri(guarded: GuardedMongod) -> Iterator[str]:
    """An account with the least role and applyOps."""
    admin = guarded.shared_client.admin
    admin.command("createRole", "joiner", privileges=[APPLY_OPS], roles=[least_role()["createRole"]])
    guarded.create_user("admin", "joiner", ["joiner"])
    yield guarded.uri_of("joiner", PASSWORD, "admin")
    admin.command("dropUser", "joiner")
    admin.command("dropRole", "joiner")


def in_parts(folder: Path, account: str) -> ProxyProcess:
    return ProxyProcess(folder, account, flags=["--bucket-growth", "in_parts"])


def test_account_that_may_not_join_grows_buckets_in_place(guarded: GuardedMongod, tmp_path: Path) -> None:
    before = guarded.shared_client.list_database_names()
    proxy = in_parts(tmp_path, guarded.account_uri).start()
    try:
        assert proxy.log.count(WARNING) == 1
        assert "applyOps" in proxy.log
        assert proxy.metrics()[GAUGE] == 0
        assert guarded.shared_client.list_database_names() == before, "asking leaves nothing behind"
    finally:
        proxy.stop()


def test_account_that_may_join_grows_buckets_in_parts(guarded: GuardedMongod, joiner_uri: str, tmp_path: Path) -> None:
    proxy = in_parts(tmp_path, joiner_uri).start()
    try:
        assert WARNING not in proxy.log
        assert proxy.metrics()[GAUGE] == 1
    finally:
        proxy.stop()


def test_right_that_is_lost_later_ends_growth_in_parts(guarded: GuardedMongod, joiner_uri: str, tmp_path: Path) -> None:
    """What was told at the start may change: the first join that is refused tells."""
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
                rows = [{"t": start + dt.timedelta(seconds=second), "m": device} for device in range(20)]
                client[database].ts.insert_many(rows)
        proxy.wait_until(lambda: WARNING in proxy.log)
        assert proxy.metrics()[GAUGE] == 0
        assert series.count_documents({}) == 80
    finally:
        proxy.stop()
        admin.command("grantPrivilegesToRole", "joiner", privileges=[APPLY_OPS])
        guarded.shared_client[database].command("dropAllUsersFromDatabase")
        guarded.shared_client.drop_database(database)
