"""Many kills, stops and cuts of several proxies and of their mongod.

On a replica set, drivers have all proxies in their connection string.

Meanwhile some measurements are deleted, and on standalones meta values change. Readers through any of the proxies see
every acknowledged measurement once and whole, and none that was deleted.

``TSPROXY_TEST_SCALE`` is the number of rounds, each with processes and a collection of its own: scans of everything
that has ever been written would take longer and longer.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from tests.support.books import Books, measurement_of, new_id
from tests.support.fleet import SERIES, Fleet, start_again
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION

FAULTS = 12
ROUNDS = int(os.environ.get("TSPROXY_TEST_SCALE", "1"))
SEED = int(os.environ.get("TSPROXY_TEST_SEED", "1"))
SOME = 400
STOP_SECONDS = (0.3, 1.1, 2.5, 5.0)
KINDS = ("kill", "kill", "kill", "restart", "stop", "cut", "cut replies", "mongod")


class Several:
    """Some proxies in front of one backend, and the clients of all of them."""

    def __init__(self, proxies: list[ProxyProcess], backend: MongodProcess, database: str, seed: int) -> None:
        """A driver takes several servers only if they are no standalones; so with these, each proxy has its clients."""
        self.proxies = proxies
        self.backend = backend
        self.database = database
        self.seed = seed
        self._stack = ExitStack()
        self.links = [self._stack.enter_context(Link(each.port)) for each in proxies]
        hosts = [f"127.0.0.1:{link.port}" for link in self.links]
        self.uris = [f"mongodb://{each}/" for each in ([",".join(hosts)] if backend.replica_set else hosts)]
        writers = 24 // len(self.uris)
        # What a killed proxy has written is looked up under the meta value that a retry has.
        movers = 0 if backend.replica_set else 1
        self.fleets = [
            Fleet(uri, database, writers=writers, erasers=2, movers=movers, seed=seed + number)
            for number, uri in enumerate(self.uris)
        ]
        self.is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def books(self) -> Books:
        """Of all clients."""
        return Books.of_all(each.books for each in self.fleets)

    async def run_during(self, events: Callable[[], Awaitable[None]]) -> None:
        """Write through all of them until ``events`` is over."""
        for fleet in self.fleets:
            events = partial(fleet.run_during, events)
        await events()

    async def until(self, count: int) -> None:
        """Wait until each has got so many more measurements."""
        await asyncio.gather(*(fleet.until(count // len(self.fleets)) for fleet in self.fleets))

    async def read(self, uri: str, reads: list[int]) -> None:
        """Scan until ``is_over``; scans that a fault ended do not count."""
        async with AsyncMongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=15_000) as client:
            # A driver may turn a cancellation into an error of its own, so that alone does not end this.
            while not self.is_over:
                promise = self.books.promise()
                try:
                    found = [each async for each in client[self.database].c.find({}, batch_size=300)]
                except PyMongoError:
                    continue
                self.books.check_read(found, promise)
                reads.append(len(found))
                # Scans that follow one another without a pause leave no moment for joins.
                await asyncio.sleep(0.5)

    def check(self) -> None:
        """Of what was written until now, and of what each proxy writes now, while nobody changes meta values."""
        latest = [measurement_of(new_id(series)) for series in range(SERIES) for _ in self.proxies]
        for number, proxy in enumerate(self.proxies):
            with proxy.client() as client:
                client[self.database].c.insert_many(latest[number :: len(self.proxies)])
        books = self.books
        books.acknowledged.update(each["_id"] for each in latest)
        # Not straight from the backend: such a read may meet a join.
        with self.proxies[0].client() as client:
            books.check(client, self.database)
            rows = client[self.database].c.find({"_id": {"$in": [each["_id"] for each in latest]}}, {"m": 1})
            assert {each["_id"]: each["m"] for each in rows} == {each["_id"]: each["m"] for each in latest}


ON_A_SET = [(2, "buckets", "auto"), (2, "native", "auto"), (4, "buckets", "auto"), (3, "buckets", "in_parts")]
ALONE = [(2, "buckets", "auto"), (3, "buckets", "in_parts")] if server(MONGOD_VERSION).runs_alone else []


@pytest.fixture(
    params=[
        (kind, *each, SEED + number)
        for number in range(ROUNDS)
        for kind, cases in (("backend", ON_A_SET), ("standalone", ALONE))
        for each in cases
    ],
    ids=lambda each: " ".join(map(str, each)),
)
def several(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Several]:
    kind, count, access, strategy, seed = request.param
    behind, database = request.getfixturevalue(kind), f"faults_{ObjectId()}"
    with behind.client() as client:
        client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    flags = ["--timeseries-access", access, "--write-strategy", strategy]
    started = [ProxyProcess(tmp_path / f"proxy{number}", behind.uri, flags=flags) for number in range(count)]
    try:
        for each in started:
            each.start()
        with Several(started, behind, database, seed) as together:
            yield together
    finally:
        for each in started:
            each.stop()


@pytest.mark.timeout(60 + 30 * FAULTS)
async def test_nothing_is_lost_or_doubled(several: Several) -> None:
    chance = random.Random(several.seed)
    done: Counter[str] = Counter()
    reads: list[int] = []

    async def events() -> None:
        await several.until(SOME)
        uris = [several.uris[number % len(several.uris)] for number in range(3)]
        reading = [asyncio.create_task(several.read(uri, reads)) for uri in uris]
        for _ in range(FAULTS):
            kind, place = chance.choice(KINDS), chance.randrange(len(several.proxies))
            done[kind] += 1
            await fault(kind, several.proxies[place], several.links[place], several.backend, chance)
            await several.until(chance.randrange(SOME))
        several.is_over = True
        for each in reading:
            each.cancel()
        ended = await asyncio.gather(*reading, return_exceptions=True)
        assert [error for error in ended if error and not isinstance(error, asyncio.CancelledError)] == []

    await several.run_during(events)
    books, numbers = several.books, Counter[str]()
    for each in several.proxies:
        numbers.update({name: int(value) for name, value in each.metrics().items() if name.startswith("tsproxy_peer_")})
    print(
        dict(done),
        len(reads),
        len(books.acknowledged),
        len(books.deleted),
        dict(books.errors),
        dict(numbers),
        f"{books.longest_seconds:.1f} s",
    )
    several.check()
    assert len(reads) > FAULTS


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
