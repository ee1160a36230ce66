"""Many kills, stops and cuts of proxies and of their mongod, with all proxies in the drivers' connection string.

Meanwhile some measurements are deleted, meta values change, and readers through any of the proxies see every
acknowledged measurement once and whole, and none that was deleted.

``TSPROXY_TEST_SCALE`` multiplies the number of faults.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from tests.support.fleet import Fleet, start_again
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

FAULTS = 12 * int(os.environ.get("TSPROXY_TEST_SCALE", "1"))
SOME = 400
STOP_SECONDS = (0.3, 1.1, 2.5, 5.0)
KINDS = ("kill", "kill", "kill", "restart", "stop", "cut", "cut replies", "mongod")


@pytest.fixture(
    params=[(2, "buckets", "auto"), (2, "native", "auto"), (4, "buckets", "auto"), (3, "buckets", "in_parts")],
    ids=lambda each: " ".join(map(str, each)),
)
def proxies(request: pytest.FixtureRequest, tmp_path: Path, backend: MongodProcess) -> Iterator[list[ProxyProcess]]:
    count, access, strategy = request.param
    flags = ["--timeseries-access", access, "--write-strategy", strategy]
    started = [ProxyProcess(tmp_path / f"proxy{number}", backend.uri, flags=flags) for number in range(count)]
    try:
        for each in started:
            each.start()
        yield started
    finally:
        for each in started:
            each.stop()


@pytest.mark.timeout(60 + 30 * FAULTS)
async def test_nothing_is_lost_or_doubled(
    proxies: list[ProxyProcess], backend: MongodProcess, database: str, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(int(os.environ.get("TSPROXY_TEST_SEED", "1")))
    done: Counter[str] = Counter()
    with ExitStack() as stack:
        links = [stack.enter_context(Link(each.port)) for each in proxies]
        hosts = ",".join(f"127.0.0.1:{link.port}" for link in links)
        fleet = Fleet(f"mongodb://{hosts}/", database, writers=24, erasers=2, movers=1, seed=chance.randrange(1000))

        reads: list[int] = []

        async def events() -> None:
            await fleet.until(SOME)
            reading = [asyncio.create_task(read(f"mongodb://{hosts}/", database, fleet, reads)) for _ in range(3)]
            for _ in range(FAULTS):
                kind, place = chance.choice(KINDS), chance.randrange(len(proxies))
                done[kind] += 1
                await fault(kind, proxies[place], links[place], backend, chance)
                await fleet.until(chance.randrange(SOME))
            for each in reading:
                each.cancel()
            ended = await asyncio.gather(*reading, return_exceptions=True)
            assert [error for error in ended if not isinstance(error, asyncio.CancelledError)] == []

        await fleet.run_during(events)
    numbers = Counter[str]()
    for each in proxies:
        numbers.update({name: int(value) for name, value in each.metrics().items() if name.startswith("tsproxy_peer_")})
    assert len(reads) > FAULTS
    print(
        dict(done),
        len(reads),
        len(fleet.books.acknowledged),
        len(fleet.books.deleted),
        dict(fleet.books.errors),
        dict(numbers),
        f"{fleet.books.longest_seconds:.1f} s",
    )
    with backend.client() as client:
        fleet.check(client)


async def read(uri: str, database: str, fleet: Fleet, reads: list[int]) -> None:
    """Scan until it is cancelled; scans that a fault ended do not count."""
    async with AsyncMongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=15_000) as client:
        while True:
            promise = fleet.books.promise()
            try:
                found = [each async for each in client[database].c.find({}, batch_size=300)]
            except PyMongoError:
                continue
            fleet.books.check_read(found, promise)
            reads.append(len(found))
            # Scans that follow one another without a pause leave no moment for joins.
            await asyncio.sleep(0.5)


async def fault(kind: str, proxy: ProxyProcess, link: Link, backend: MongodProcess, chance: random.Random) -> None:
    match kind:
        case "kill":
            proxy.kill()
            await asyncio.sleep(chance.choice((0, 0.2, 2.0)))
            await start_again(proxy)
        case "restart":
            await asyncio.to_thread(proxy.stop)
            await start_again(proxy)
        case "stop":
            proxy.pause()
            await asyncio.sleep(chance.choice(STOP_SECONDS))
            proxy.resume()
        case "cut":
            link.cut_all()
        case "cut replies":
            link.cut_before_replies(chance.randrange(1, 5))
        case "mongod":
            backend.kill()
            await start_again(backend)
