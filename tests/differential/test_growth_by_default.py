"""How buckets grow when nobody says how: in parts, where no reader can meet a join.

Each test has a server of its own, since the session's servers have several proxies in front of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION

START = datetime(2024, 1, 1, tzinfo=UTC)
SERIES = 24
DEADLINE_SECONDS = 30.0
GAUGE = "tsproxy_grows_in_parts"
UNJOINED = "tsproxy_unjoined_parts"
CHOSEN = server(MONGOD_VERSION)


@pytest.fixture(
    scope="module", params=[None, "rs0"] if CHOSEN.runs_alone else ["rs0"], ids=lambda each: each or "standalone"
)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongodProcess]:
    directory = tmp_path_factory.mktemp("alone")
    process = MongodProcess(directory, binary=CHOSEN.binary, environment=CHOSEN.environment, replica_set=request.param)
    try:
        yield process.start()
    finally:
        process.remove()


@pytest.fixture
def proxy(tmp_path: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    process = ProxyProcess(tmp_path / "proxy", backend.uri, flags=["--write-strategy", "auto"])
    try:
        yield process.start()
    finally:
        process.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


def collection_of(client: pymongo.MongoClient[dict[str, Any]], name: str) -> Collection[dict[str, Any]]:
    return client[name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})


WRITERS = 4
LOAD = range(160)
"""So many rounds in short order are a load; what few write is stored as natively."""


def write(collection: Collection[dict[str, Any]], rounds: range) -> None:
    """A row for each series, again and again; the commands are small, so that they go through the catalog."""
    for second in rounds:
        rows = [{"t": START + timedelta(seconds=second), "m": each, "v": second} for each in range(SERIES)]
        for first in range(0, SERIES, 8):
            collection.insert_many(rows[first : first + 8])


def load(collection: Collection[dict[str, Any]], rounds: range) -> None:
    """As ``write``, by several clients at once: on a slow machine one of them is no load."""

    def write_some(first: int) -> None:
        for second in rounds:
            moment = START + timedelta(seconds=second)
            collection.insert_many(
                [{"t": moment, "m": each, "v": second} for each in range(first, SERIES, WRITERS)], ordered=False
            )

    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(write_some, first) for first in range(WRITERS)]:
            done.result()


def test_buckets_grow_in_parts_and_are_joined(backend: MongodProcess, proxy: ProxyProcess) -> None:
    name = "joined"
    assert proxy.metrics()[GAUGE] == 1
    with proxy.client() as client:
        collection = collection_of(client, name)
        load(collection, LOAD)
        buckets = backend.shared_client[name]["system.buckets.x"]
        assert buckets.count_documents({}) > SERIES
        until(lambda: buckets.count_documents({}) == SERIES)
        assert collection.count_documents({}) == len(LOAD) * SERIES


def test_what_few_write_is_stored_as_natively(backend: MongodProcess, proxy: ProxyProcess) -> None:
    """One bucket for each series at all times, by single rows and by batches (W62)."""
    native = backend.shared_client.few.create_collection("native", timeseries={"timeField": "t", "metaField": "m"})
    with proxy.client() as client:
        collection = collection_of(client, "few")
        for target in (collection, native):
            write(target, range(10))
            for second in range(10, 60):
                target.insert_one({"t": START + timedelta(seconds=second), "m": 0, "v": second})
    counted = [backend.shared_client.few[f"system.buckets.{name}"].count_documents({}) for name in ("x", "native")]
    assert counted == [SERIES, SERIES]


@pytest.mark.parametrize("way", ["view", "buckets"])
def test_a_cursor_past_the_proxy_meets_no_join(backend: MongodProcess, proxy: ProxyProcess, way: str) -> None:
    """A native reader sees each row once, however long it takes; rows that it keeps apart are joined after it."""
    name = f"past_{way}"
    direct = backend.shared_client[name]
    with proxy.client() as client:
        collection = collection_of(client, name)
        load(collection, LOAD)
        native = direct["x" if way == "view" else "system.buckets.x"]
        cursor = native.find({}, batch_size=2)
        found = [next(cursor)]
        load(collection, range(len(LOAD), 2 * len(LOAD)))
        until(lambda: proxy.metrics()["tsproxy_joins_put_off_total"] > 1)
        documents = direct["system.buckets.x"].count_documents({})
        assert documents > SERIES
        found += list(cursor)
        seen = [(each["m"], each["v"]) for each in found] if way == "view" else [each["_id"] for each in found]
        assert len(set(seen)) == len(seen)
        if way == "view":
            assert set(seen) >= {(series, second) for series in range(SERIES) for second in LOAD}
        until(lambda: direct["system.buckets.x"].count_documents({}) == SERIES)
        assert collection.count_documents({}) == 2 * len(LOAD) * SERIES


def test_nothing_is_in_parts_while_another_proxy_is_there(
    backend: MongodProcess, proxy: ProxyProcess, tmp_path: Path
) -> None:
    """Each process knows its own readers only; with one left it goes on in parts."""
    other = ProxyProcess(tmp_path / "other", backend.uri, flags=["--write-strategy", "auto"])
    try:
        other.start()
        assert other.metrics()[GAUGE] == 0, "from the start"
        until(lambda: proxy.metrics()[GAUGE] == 0)
        with proxy.client() as client:
            write(collection_of(client, "company"), LOAD)
            assert backend.shared_client.company["system.buckets.x"].count_documents({}) == SERIES
    finally:
        other.stop()
    until(lambda: proxy.metrics()[GAUGE] == 1)
