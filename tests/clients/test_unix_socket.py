"""A proxy beside its mongod reaches it over the mongod's Unix socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest

from tests.support.access import ACCOUNT_PASSWORD, PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[tuple[GuardedMongod, ProxyProcess]]:
    """A mongod with access control, and a proxy that knows its socket only."""
    chosen = server(MONGOD_VERSION)
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        arguments = ["--auth", "--unixSocketPrefix", folder]
        mongod = GuardedMongod(
            tmp_path / "mongod", binary=chosen.binary, environment=chosen.environment, arguments=arguments
        )
        try:
            mongod.start()
            mongod.create_accounts()
            host = quote_plus(f"{folder}/mongodb-{mongod.port}.sock")
            account = f"mongodb://tsproxy:{quote_plus(ACCOUNT_PASSWORD)}@{host}/?authSource=admin"
            proxy = ProxyProcess(tmp_path / "proxy", account)
            try:
                yield mongod, proxy.start()
            finally:
                proxy.stop()
        finally:
            mongod.remove()


def test_everything_goes_over_the_socket(beside: tuple[GuardedMongod, ProxyProcess]) -> None:
    """What the account does, what clients do under their own names, and what is relayed."""
    mongod, proxy = beside
    mongod.create_user("app", "writer", ["readWrite"])
    with proxy.client(username="writer", password=PASSWORD, authSource="app") as client:
        client.app.plain.insert_one({"a": 1})
        assert client.app.plain.find_one({}, {"_id": 0}) == {"a": 1}
        series = client.app.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        series.insert_many([{"t": datetime(2024, 1, 1, tzinfo=UTC), "m": each} for each in range(20)])
        assert series.count_documents({}) == 20
        assert len(list(series.find(batch_size=3))) == 20
    assert mongod.shared_client.app.ts.count_documents({}) == 20


def test_two_proxies_that_use_the_socket_find_one_another(tmp_path: Path) -> None:
    """The server shows no host of their connections: it is this machine."""
    chosen = server(MONGOD_VERSION)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as started:
        mongod = MongodProcess(
            tmp_path / "mongod",
            binary=chosen.binary,
            environment=chosen.environment,
            arguments=["--unixSocketPrefix", folder],
        )
        started.callback(mongod.remove)
        mongod.start()
        backend = f"mongodb://{quote_plus(f'{folder}/mongodb-{mongod.port}.sock')}/"
        proxies = [ProxyProcess(tmp_path / name, backend) for name in ("first", "second")]
        for proxy in proxies:
            started.callback(proxy.stop)
            proxy.start()
        for proxy in proxies:
            with proxy.client() as client:
                proxy.wait_until(lambda client=client: peers(client) == [(True, "127.0.0.1")])


def peers(client: pymongo.MongoClient[dict[str, Any]]) -> list[tuple[bool, str]]:
    """Whether each other proxy is linked, and where the server sees it."""
    shown = client.admin.command({"tsproxy": "peers"})["peers"]
    return [(each["linked"] and each["linksBack"], each["address"]) for each in shown]
