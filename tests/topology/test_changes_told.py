"""What one proxy changes, another one knows when the client has its reply, without listing collections again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bson import DatetimeMS
from pymongo.database import Database

from proxy.peers.changes import PATIENCE_SECONDS
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started

START = datetime(2024, 5, 18, tzinfo=UTC)
HOUR = timedelta(hours=1)
BEFORE = datetime(1980, 1, 1, tzinfo=UTC)
ROUNDS = 20
NEVER = ("--namespace-refresh-seconds", "3600")

Documents = Database[dict[str, Any]]


@pytest.fixture(scope="module")
def proxies(server_directory: Path, replica_set: MongodProcess) -> Iterator[list[ProxyProcess]]:
    """Two that never look by themselves for what others have changed."""
    with ExitStack() as stack:
        both = [
            stack.enter_context(started(ProxyProcess(server_directory / f"told_{each}", replica_set.uri, flags=NEVER)))
            for each in range(2)
        ]
        for proxy in both:
            proxy.wait_until(partial(_is_linked, proxy))
        yield both


def _is_linked(proxy: ProxyProcess) -> bool:
    found = proxy.metrics()
    return found.get("tsproxy_peers", 0) >= 1 and found["tsproxy_peers"] == found["tsproxy_peers_linked"]


@pytest.fixture
def here(proxies: list[ProxyProcess], db_name: str) -> Iterator[Documents]:
    with proxies[0].client() as client:
        yield client[db_name]


@pytest.fixture
def there(proxies: list[ProxyProcess], db_name: str) -> Iterator[Documents]:
    """The database at the other proxy, which lists its collections once."""
    with proxies[1].client() as client:
        yield client[db_name]


def create(here: Documents, there: Documents, prefix: str, **options: Any) -> list[str]:
    """Names of collections that both proxies know."""
    names = [f"{prefix}{number}" for number in range(ROUNDS)]
    for name in names:
        here.create_collection(name, **options)
    assert all(there[name].find_one({"t": START}) is None for name in names)
    return names


def native_inserts(replica_set: MongodProcess, database: Documents, name: str) -> int:
    """How many measurements the server has bucketed itself."""
    found = replica_set.shared_client[database.name].command("collStats", name)["timeseries"]
    return int(found.get("numMeasurementsCommitted", 0))


def test_a_new_collection_is_one_everywhere(here: Documents, there: Documents, replica_set: MongodProcess) -> None:
    create(here, there, "old", timeseries={"timeField": "t"})
    for number in range(ROUNDS):
        name = f"new{number}"
        here.create_collection(name, timeseries={"timeField": "t", "metaField": "m"})
        there[name].insert_one({"t": START, "m": number})
        assert native_inserts(replica_set, there, name) == 0, name


def test_a_collection_that_was_made_again_has_its_new_fields(here: Documents, there: Documents) -> None:
    here.create_collection("again", timeseries={"timeField": "t", "metaField": "n"})
    for number in range(ROUNDS):
        assert there.again.count_documents({"t": {"$lt": START}}) == 0
        meta = ("m", "n")[number % 2]
        here.drop_collection("again")
        here.create_collection("again", timeseries={"timeField": "t", "metaField": meta})
        here.again.insert_many([{"t": START, meta: 1, "v": 1}, {"t": START, meta: 2, "v": 2}])
        assert [each["v"] for each in there.again.find({meta: 2})] == [2]
        (bucket,) = there["system.buckets.again"].find({"meta": 2})
        assert "v" in bucket["data"]
        assert meta not in bucket["data"]


def test_a_coarser_granularity_holds_for_readers_everywhere(here: Documents, there: Documents) -> None:
    """C40: the other proxy would look for the start of a bucket in the hour before the wanted time."""
    for name in create(here, there, "coarse", timeseries={"timeField": "t", "granularity": "seconds"}):
        here.command("collMod", name, timeseries={"granularity": "minutes"})
        here[name].insert_one({"t": START})
        here[name].insert_one({"t": START + 20 * HOUR})
        found = there[name].count_documents({"t": {"$gte": START + 19 * HOUR, "$lt": START + 21 * HOUR}})
        assert found == 1, name


@pytest.mark.parametrize("is_one_bucket", [True, False])
def test_a_distant_time_is_found_everywhere(here: Documents, there: Documents, *, is_one_bucket: bool) -> None:
    """Q12: the id of its bucket is that of another time. Also if it is inserted natively (with a collation)."""
    options = {} if is_one_bucket else {"collation": {"locale": "en"}}
    for name in create(here, there, "distant", timeseries={"timeField": "t"}, **options):
        assert there[name].count_documents({"t": {"$lt": BEFORE}}) == 0
        here[name].insert_one({"t": DatetimeMS(-1_000_000_000_000)})
        assert there[name].count_documents({"t": {"$lt": BEFORE}}) == 1, name


def test_a_dropped_database_is_gone_everywhere(here: Documents, there: Documents) -> None:
    for number in range(5):
        here.create_collection("x", timeseries={"timeField": "t"})
        there.x.insert_one({"t": START})
        assert there.x.count_documents({}) == 1
        here.client.drop_database(here.name)
        there.x.insert_one({"v": number})
        assert [each["v"] for each in here.x.find()] == [number]
        here.drop_collection("x")


def test_a_proxy_that_hangs_is_waited_for_once(proxies: list[ProxyProcess], here: Documents, there: Documents) -> None:
    names = create(here, there, "held", timeseries={"timeField": "t", "granularity": "seconds"})
    proxies[1].pause()
    try:
        waits = [seconds_to_coarsen(here, name) for name in names]
    finally:
        proxies[1].resume()
    assert sum(waits) < PATIENCE_SECONDS + 4, "later ones do not wait"
    for proxy in proxies:
        proxy.wait_until(partial(_is_linked, proxy))
    # It knows what it was told meanwhile, or that it may have missed something.
    for name in names:
        here[name].insert_many([{"t": START}, {"t": START + 20 * HOUR}])
        assert there[name].count_documents({"t": {"$gte": START + 19 * HOUR, "$lt": START + 21 * HOUR}}) == 1


def seconds_to_coarsen(database: Documents, name: str) -> float:
    """How long ``collMod`` takes."""
    since = time.monotonic()
    database.command("collMod", name, timeseries={"granularity": "minutes"})
    return time.monotonic() - since


def test_changes_are_told_where_there_is_nothing_else_to_ask(
    tmp_path: Path, mongod: MongodProcess, db_name: str
) -> None:
    """On a standalone that grows buckets in place, nobody retries inserts or joins parts."""
    flags = (*NEVER, "--write-strategy", "in_place")
    with ExitStack() as stack:
        proxies = [
            stack.enter_context(started(ProxyProcess(tmp_path / str(each), mongod.uri, flags=flags)))
            for each in range(2)
        ]
        here, there = (stack.enter_context(proxy.client())[db_name] for proxy in proxies)
        for proxy in proxies:
            proxy.wait_until(partial(_is_linked, proxy), 10)
        test_a_coarser_granularity_holds_for_readers_everywhere(here, there)
