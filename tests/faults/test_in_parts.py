"""Faults while buckets grow in parts: joins under way are lost, repeated, or left to the next process (W102, W126)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from tests.faults.conftest import FLAGS
from tests.support.fleet import Fleet, start_again
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

SOME = 900
"""Measurements: more than the seven series of a fleet take in place, so that there are parts and joins."""
IN_PARTS = (*FLAGS, "--bucket-growth", "in_parts")
DEADLINE_SECONDS = 30.0


@pytest.fixture(scope="module", params=["standalone", "replica set"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongodProcess]:
    """Parts are joined by one operation, or in a transaction."""
    if request.param == "replica set":
        yield request.getfixturevalue("backend")
        return
    server = MongodProcess(tmp_path_factory.mktemp("in_parts") / "mongod")
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def name(request: pytest.FixtureRequest, either: MongodProcess) -> Iterator[str]:
    """A database with the time-series collection ``c``."""
    database = f"parts_{abs(hash(request.node.nodeid)) % 10**8}"
    with either.client() as client:
        client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    yield database
    with either.client() as client:
        client.drop_database(database)


@pytest.fixture
def parts_proxy(tmp_path: Path, either: MongodProcess) -> Iterator[ProxyProcess]:
    server = ProxyProcess(tmp_path / "proxy", either.uri, flags=IN_PARTS)
    try:
        yield server.start()
    finally:
        server.stop()


def in_parts(client: pymongo.MongoClient[dict[str, Any]], database: str) -> Counter[Any]:
    """How many buckets are stored in more than one document."""
    stored = client[database]["system.buckets.c"].find({}, {"meta": 1})
    documents = Counter((each["_id"].binary[:9], each["meta"]) for each in stored)
    return Counter({each: count for each, count in documents.items() if count > 1})


async def killed_while_in_parts(either: MongodProcess, proxy: ProxyProcess, name: str) -> Fleet:
    """A fleet that has written through a proxy that was killed with parts left, and through the next one."""
    fleet = Fleet(proxy.uri, name)

    async def events() -> None:
        await fleet.until(SOME)
        proxy.kill()
        with either.client() as client:
            assert in_parts(client, name)
        await start_again(proxy)
        await fleet.until(SOME)

    await fleet.run_during(events)
    return fleet


async def test_what_a_killed_proxy_left_is_read_and_written_on(
    either: MongodProcess, parts_proxy: ProxyProcess, name: str
) -> None:
    fleet = await killed_while_in_parts(either, parts_proxy, name)
    with either.client() as client:
        fleet.check(client)


async def test_two_proxies_write_the_same_series(either: MongodProcess, tmp_path: Path, name: str) -> None:
    """Each joins its own parts; neither takes or loses a row of the other."""
    proxies = [ProxyProcess(tmp_path / f"proxy{number}", either.uri, flags=IN_PARTS) for number in range(2)]
    try:
        fleets = [Fleet(proxy.start().uri, name, seed=seed) for seed, proxy in enumerate(proxies)]

        async def events(fleet: Fleet) -> None:
            await fleet.until(2 * SOME)

        await asyncio.gather(*(fleet.run_during(lambda fleet=fleet: events(fleet)) for fleet in fleets))
        both = fleets[0]
        both.acknowledged |= fleets[1].acknowledged
        both.in_doubt |= fleets[1].in_doubt
        assert not both.errors
        with either.client() as client:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while in_parts(client, name):  # noqa: ASYNC110 - only the backend knows
                    await asyncio.sleep(0.1)
            both.check(client)
    finally:
        for proxy in proxies:
            proxy.stop()


async def test_a_clean_stop_leaves_no_parts(either: MongodProcess, tmp_path: Path, name: str) -> None:
    proxy = ProxyProcess(tmp_path / "proxy", either.uri, flags=IN_PARTS).start()
    try:
        fleet = Fleet(proxy.uri, name)
        await fleet.run_during(lambda: fleet.until(SOME))
    finally:
        await asyncio.to_thread(proxy.stop)
    with either.client() as client:
        fleet.check(client)
        assert not in_parts(client, name)
