"""``pause`` and ``resume``: clients wait while the backend is restarted, and see no error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import bson
import pymongo
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from pymongo.errors import OperationFailure

from tests.support.mongod import MongodProcess
from tests.support.node import mongosh_json
from tests.support.proxy import ProxyProcess
from tests.support.steady_load import SteadyLoad
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION
from tests.support.wire import WireClient, op_msg

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(params=[None, "rs0"], ids=["standalone", "replica_set"])
def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MongodProcess, ProxyProcess]]:
    """A mongod that the test may restart, and a proxy in front of it."""
    chosen = server(MONGOD_VERSION)
    mongod = MongodProcess(
        tmp_path / "mongod", binary=chosen.binary, environment=chosen.environment, replica_set=request.param
    ).start()
    proxy = ProxyProcess(tmp_path / "proxy", mongod.uri).start()
    try:
        yield mongod, proxy
    finally:
        proxy.stop()
        mongod.remove()


def admin(client: Client, name: str, **fields: Any) -> dict[str, Any]:
    return client.admin.command({"tsproxy": name, **fields})


def test_backend_is_restarted_without_an_error(restartable: tuple[MongodProcess, ProxyProcess]) -> None:
    mongod, proxy = restartable
    with proxy.client() as client, SteadyLoad(proxy.client, "load") as load:
        for _ in range(2):
            proxy.wait_until(load.goes_on())
            paused = admin(client, "pause")
            assert (paused["state"], paused["running"], paused["uncommitted"]) == ("paused", 0, 0)
            proxy.wait_until(lambda: admin(client, "status")["held"] == 7)
            mongod.stop()
            status = admin(client, "status")
            assert (status["state"], status["held"]) == ("paused", 7)
            before = len(load.written)
            mongod.start()
            assert len(load.written) == before
            resumed = admin(client, "resume")
            assert (resumed["was"], resumed["started"]) == ("paused", 7)
        proxy.wait_until(load.goes_on())
        load.stop()
        assert load.errors == []
    stored = sorted(row["v"] for row in mongod.shared_client.load.ts.find())
    assert stored == sorted(load.written)
    assert proxy.metrics()["tsproxy_invariant_violations_total"] == 0


def test_commands_are_held_no_longer_than_the_limit(proxy_rs: ProxyProcess, db_name: str) -> None:
    """The error is one that drivers retry; the pause goes on."""
    insert = {"insert": "c", "documents": [{"_id": 2}], "lsid": {"id": Binary(uuid4().bytes, 4)}, "txnNumber": Int64(1)}
    with proxy_rs.client(retryReads=False) as client, WireClient(proxy_rs.port) as wire:
        client[db_name].c.insert_one({"_id": 1})
        admin(client, "pause", limitSeconds=0.5)
        try:
            began = time.monotonic()
            with pytest.raises(OperationFailure) as raised:
                client[db_name].c.find_one()
            assert 0.4 < time.monotonic() - began < 10
            assert raised.value.code == 6
            assert "paused" in str(raised.value)
            assert wire.command({**insert, "$db": db_name})["errorLabels"] == ["RetryableWriteError"]
            assert admin(client, "status")["state"] == "paused"
        finally:
            admin(client, "resume")
        assert wire.command({**insert, "$db": db_name})["n"] == 1


def test_held_commands_of_every_form_are_executed_in_their_order(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client, WireClient(proxy.port) as wire:
        admin(client, "pause")
        try:
            large = {"insert": "c", "documents": [{"_id": 0, "text": "x" * 1_000_000}], "$db": db_name}
            wire.socket.sendall(op_msg(large, 1))
            wire.socket.sendall(op_msg({"insert": "c", "documents": [{"_id": 1}], "$db": db_name}, 2, flags=2))
            wire.socket.sendall(op_msg({"count": "c", "$db": db_name}, 3))
            proxy.wait_until(lambda: admin(client, "status")["held"] == 1)
            (shown,) = admin(client, "clients", state="held")["clients"]
            assert (shown["command"], shown["ns"]) == ("insert", f"{db_name}.c")
        finally:
            admin(client, "resume")
        answers = [bson.decode(wire.receive()[21:]) for _ in range(2)]
        assert [answer["n"] for answer in answers] == [1, 2]


def test_client_that_disconnects_is_not_waited_for(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client:
        admin(client, "pause")
        try:
            with WireClient(proxy.port) as wire:
                insert = {"insert": "c", "documents": [{"_id": 1}], "$db": db_name}
                wire.socket.sendall(op_msg(insert))
                proxy.wait_until(lambda: admin(client, "status")["held"] == 1)
            proxy.wait_until(lambda: admin(client, "status")["held"] == 0)
        finally:
            admin(client, "resume")
        assert client[db_name].c.find_one() is None


def test_pause_waits_for_running_commands(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client, WireClient(proxy.port) as wire:
        client[db_name].c.insert_one({"_id": 1})
        slow = {"find": "c", "filter": {"$where": "sleep(1500) || true"}, "$db": db_name}
        wire.socket.sendall(op_msg(slow))
        proxy.wait_until(lambda: admin(client, "status")["running"] == 1)
        try:
            assert admin(client, "pause", waitSeconds=0)["running"] == 1
            assert admin(client, "pause")["running"] == 0
        finally:
            admin(client, "resume")
        assert bson.decode(wire.receive()[21:])["ok"] == 1


def test_resume_needs_the_backend_unless_it_is_forced(restartable: tuple[MongodProcess, ProxyProcess]) -> None:
    """An administrator who connects meanwhile is served, too, by a driver and by mongosh."""
    mongod, proxy = restartable
    with proxy.client() as client:
        client.app.c.insert_one({"_id": 1})
        admin(client, "pause")
        mongod.stop()
        with proxy.client() as late, pytest.raises(OperationFailure, match="force: true"):
            admin(late, "resume")
        shown = mongosh_json(proxy.uri, 'show(db.adminCommand({tsproxy: "status"}))')
        assert (shown["state"], shown["ok"]) == ("paused", 1)
        assert admin(client, "resume", force=True)["was"] == "paused"
        mongod.start()
        proxy.wait_until(lambda: admin(client, "status")["backend"]["answers"])
        assert client.app.c.find_one() == {"_id": 1}


def test_pause_and_drain_exclude_each_other(proxy: ProxyProcess) -> None:
    with proxy.client() as client:
        admin(client, "pause")
        try:
            with pytest.raises(OperationFailure) as raised:
                admin(client, "drain")
            assert raised.value.code == 117
        finally:
            assert admin(client, "resume")["was"] == "paused"
        assert admin(client, "resume")["was"] == "serving"
