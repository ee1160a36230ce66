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
WRITE = {"resource": {"db": "idle", "collection": "x"}, "actions": ["insert", "remove", "find"]}
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


@pytest.mark.parametrize(("name", "is_ended"), [("tsproxy 0123456789ab", True), ("an application", False)])
def test_only_those_of_proxies_are_ended(
    guarded_set: GuardedMongod, account: str, tmp_path: Path, name: str, is_ended: bool
) -> None:
    """As of a process that was stopped: its connections are there. A server would wait for a minute."""
    collection = guarded_set.shared_client.idle.x
    collection.insert_one({"_id": 1})
    with (
        pymongo.MongoClient(account, appname=name) as stopped,
        stopped.start_session() as session,
        started(ProxyProcess(tmp_path, account)) as proxy,
    ):
        session.start_transaction()
        stopped.idle.x.delete_one({"_id": 1}, session=session)
        time.sleep(MOST_IDLE_SECONDS + 2 * WATCH_SECONDS)
        began = time.monotonic()
        if is_ended:
            guarded_set.shared_client.idle.command("collMod", "x", validator={}, maxTimeMS=int(MARGIN_SECONDS * 1000))
            assert time.monotonic() - began < MARGIN_SECONDS
            assert collection.find_one() == {"_id": 1}
        else:
            session.commit_transaction()
            assert collection.find_one() is None
        assert (ENDED_TRANSACTIONS in proxy.log) == is_ended
    collection.drop()
