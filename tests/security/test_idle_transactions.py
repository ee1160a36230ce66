"""Transactions that a killed or stopped proxy has left open are ended with the rights of the proxy's account."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pymongo
import pytest

from proxy.backend.current_op import MOST_IDLE_SECONDS
from proxy.peers.membership import ENDED_TRANSACTIONS, WATCH_SECONDS
from tests.support.access import PASSWORD, GuardedMongod, least_role
from tests.support.proxy import ProxyProcess, started

INPROG = {"resource": {"cluster": True}, "actions": ["inprog"]}
WRITE = {"resource": {"db": "idle", "collection": ""}, "actions": ["insert", "remove", "find"]}
MARGIN_SECONDS = 10.0


@pytest.fixture
def account(guarded_set: GuardedMongod) -> Iterator[str]:
    """The least role, and what growth in parts requires on a replica set."""
    admin = guarded_set.shared_client.admin
    admin.command("createRole", "looker", privileges=[INPROG, WRITE], roles=[least_role()["createRole"]])
    guarded_set.create_user("admin", "looker", ["looker"])
    yield guarded_set.uri_of("looker", PASSWORD, "admin")
    admin.command("dropUser", "looker")
    admin.command("dropRole", "looker")


def test_only_those_of_proxies_are_ended(guarded_set: GuardedMongod, account: str, tmp_path: Path) -> None:
    """As of a process that was stopped: its connections are there. A server would wait for a minute."""
    database = guarded_set.shared_client.idle
    for collection in (database.x, database.y):
        collection.insert_one({"_id": 1})
    with (
        pymongo.MongoClient(account, appname="tsproxy 0123456789ab") as stopped,
        pymongo.MongoClient(account, appname="an application") as application,
        stopped.start_session() as left,
        application.start_session() as used,
        started(ProxyProcess(tmp_path, account)) as proxy,
    ):
        left.start_transaction()
        stopped.idle.x.delete_one({"_id": 1}, session=left)
        used.start_transaction()
        application.idle.y.delete_one({"_id": 1}, session=used)
        time.sleep(MOST_IDLE_SECONDS + 2 * WATCH_SECONDS)
        database.command("collMod", "x", validator={}, maxTimeMS=int(MARGIN_SECONDS * 1000))
        assert database.x.find_one() == {"_id": 1}
        assert ENDED_TRANSACTIONS in proxy.log
        used.commit_transaction()
        assert database.y.find_one() is None
    for collection in (database.x, database.y):
        collection.drop()
