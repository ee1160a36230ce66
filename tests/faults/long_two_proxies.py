"""Many kills, stops and cuts of proxies and of their mongod, with all proxies in the drivers' connection string.

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

import pytest

from tests.support.fleet import Fleet, start_again
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

FAULTS = 12 * int(os.environ.get("TSPROXY_TEST_SCALE", "1"))
SOME = 400
STOP_SECONDS = (0.3, 1.1, 2.5, 5.0)
KINDS = ("kill", "kill", "kill", "restart", "stop", "cut", "cut replies", "mongod")


@pytest.fixture(params=[(2, "buckets"), (2, "native"), (4, "buckets")], ids=lambda each: f"{each[0]} {each[1]}")
def proxies(request: pytest.FixtureRequest, tmp_path: Path, backend: MongodProcess) -> Iterator[list[ProxyProcess]]:
    count, access = request.param
    flags = ["--timeseries-access", access]
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
        fleet = Fleet(f"mongodb://{hosts}/", database, writers=24, seed=chance.randrange(1000))

        async def events() -> None:
            await fleet.until(SOME)
            for _ in range(FAULTS):
                kind, place = chance.choice(KINDS), chance.randrange(len(proxies))
                done[kind] += 1
                await fault(kind, proxies[place], links[place], backend, chance)
                await fleet.until(chance.randrange(SOME))

        await fleet.run_during(events)
    numbers = Counter[str]()
    for each in proxies:
        numbers.update({name: int(value) for name, value in each.metrics().items() if name.startswith("tsproxy_peer_")})
    print(dict(done), len(fleet.acknowledged), dict(fleet.errors), dict(numbers), f"{fleet.longest_seconds:.1f} s")
    with backend.client() as client:
        fleet.check(client)


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
