"""``pause`` where clients have logged in: logins wait for the backend, and drivers retry what lost its login."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import ObjectId

from tests.support.access import PASSWORD, ROOT_PASSWORD, GuardedMongod
from tests.support.proxy import ProxyProcess, started
from tests.support.steady_load import SteadyLoad

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture
def own_proxy(guarded_set: GuardedMongod, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy of this test, in front of a replica set with access control."""
    with started(ProxyProcess(tmp_path, guarded_set.account_uri, flags=["--roles-refresh-seconds", "1"])) as proxy:
        yield proxy


def administrator(proxy: ProxyProcess) -> Client:
    return pymongo.MongoClient(proxy.uri, username="root", password=ROOT_PASSWORD, serverSelectionTimeoutMS=20_000)


def test_backend_is_restarted_without_an_error(guarded_set: GuardedMongod, own_proxy: ProxyProcess) -> None:
    database = f"load_{ObjectId()}"
    guarded_set.create_user(database, "writer", ["readWrite", "dbAdmin"])

    def connect() -> Client:
        return pymongo.MongoClient(
            own_proxy.uri, username="writer", password=PASSWORD, authSource=database, serverSelectionTimeoutMS=30_000
        )

    with administrator(own_proxy) as root, SteadyLoad(connect, database) as load:
        own_proxy.wait_until(load.goes_on())
        assert root.admin.command({"tsproxy": "pause"})["running"] == 0
        own_proxy.wait_until(lambda: root.admin.command({"tsproxy": "status"})["held"] == 7)
        guarded_set.stop()
        # What the backend has last said of this administrator counts while it is down.
        assert root.admin.command({"tsproxy": "status"})["state"] == "paused"
        guarded_set.start()
        own_proxy.wait_until(lambda: root.admin.command({"tsproxy": "status"})["backend"]["answers"])
        assert root.admin.command({"tsproxy": "resume"})["was"] == "paused"
        own_proxy.wait_until(load.goes_on())
        load.stop()
        assert load.errors == []
    stored = sorted(row["v"] for row in guarded_set.shared_client[database].ts.find())
    assert stored == sorted(load.written)


def test_logins_wait_for_the_backend(guarded_set: GuardedMongod, own_proxy: ProxyProcess) -> None:
    """While clients are paused: a login at once if the backend answers, otherwise when it does."""
    with administrator(own_proxy) as root:
        root.admin.command({"tsproxy": "pause"})
        with administrator(own_proxy) as second:
            assert second.admin.command({"tsproxy": "status"})["state"] == "paused"
        guarded_set.stop()
        states: list[str] = []

        def ask() -> None:
            with administrator(own_proxy) as late:
                states.append(late.admin.command({"tsproxy": "status"})["state"])

        waiting = threading.Thread(target=ask)
        waiting.start()
        waiting.join(1.0)
        assert waiting.is_alive()
        guarded_set.start()
        waiting.join()
        assert states == ["paused"]
        root.admin.command({"tsproxy": "resume"})
