"""How buckets grow when nobody says how: in parts, where no reader can meet a join.

Each test has a server of its own, since the session's servers have several proxies in front of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from tests.support.eventually import wait_until
from tests.support.fleet_in_parts import in_parts
from tests.support.mongod import MongodProcess
from tests.support.own_server import ALONE_OR_SET, kind_of, own_server
from tests.support.proxy import ProxyProcess, started

START = datetime(2024, 1, 1, tzinfo=UTC)
SERIES = 24
GAUGE = "tsproxy_grows_in_parts"
UNJOINED = "tsproxy_unjoined_parts"


@pytest.fixture(scope="module", params=ALONE_OR_SET, ids=kind_of)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongodProcess]:
    directory = tmp_path_factory.mktemp("alone")
    with own_server(directory, request.param) as process:
        yield process


@pytest.fixture
def proxy(tmp_path: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(tmp_path / "proxy", backend.uri, flags=["--write-strategy", "auto"])) as process:
        yield process


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
        wait_until(lambda: buckets.count_documents({}) == SERIES)
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


def test_rows_of_very_many_fields_are_in_parts_without_load(backend: MongodProcess, proxy: ProxyProcess) -> None:
    """An append to their bucket is slow. In the end they are one bucket, and at every moment what was written."""
    buckets = backend.shared_client.wide["system.buckets.x"]
    rows = [
        {
            "_id": second,
            "t": START + timedelta(seconds=second),
            "m": 0,
            **{f"f{each}": each + second for each in range(400)},
        }
        for second in range(6)
    ]
    expected = [{key: row[key] for key in row if key != "t"} for row in rows]

    def without_time(collection: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(collection.find({}, {"t": 0}, sort=[("_id", 1)]))

    with proxy.client() as client:
        collection = collection_of(client, "wide")
        for row in rows:
            collection.insert_one(dict(row))
            assert without_time(collection) == expected[: row["_id"] + 1]
        assert buckets.count_documents({}) > 1
        wait_until(lambda: buckets.count_documents({}) == 1)
        assert without_time(collection) == without_time(backend.shared_client.wide.x) == expected
        times = [row["t"].replace(tzinfo=None) for row in rows]
        assert [each["t"] for each in collection.find({}, {"t": 1}, sort=[("_id", 1)])] == times


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
        wait_until(lambda: proxy.metrics()["tsproxy_joins_put_off_total"] > 1)
        documents = direct["system.buckets.x"].count_documents({})
        assert documents > SERIES
        found += list(cursor)
        seen = [(each["m"], each["v"]) for each in found] if way == "view" else [each["_id"] for each in found]
        assert len(set(seen)) == len(seen)
        if way == "view":
            assert set(seen) >= {(series, second) for series in range(SERIES) for second in LOAD}
        # On a busy machine, a series may have gone on in another bucket meanwhile.
        wait_until(lambda: not in_parts(backend.shared_client, name, "x"))
        assert collection.count_documents({}) == 2 * len(LOAD) * SERIES


@pytest.fixture
def other(tmp_path: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    process = ProxyProcess(tmp_path / "other", backend.uri, flags=["--write-strategy", "auto"])
    try:
        yield process
    finally:
        process.stop()


def test_nothing_is_in_parts_while_another_proxy_does_not_keep_readers_waiting(
    backend: MongodProcess, proxy: ProxyProcess, other: ProxyProcess
) -> None:
    """Each process knows its own readers only; with one left it goes on in parts."""
    # Without parts, a process does not count its readers.
    other.flags = ("--write-strategy", "in_place")
    other.start()
    wait_until(lambda: proxy.metrics()[GAUGE] == 0)
    with proxy.client() as client:
        write(collection_of(client, "company"), LOAD)
        assert backend.shared_client.company["system.buckets.x"].count_documents({}) == SERIES
    other.stop()
    wait_until(lambda: proxy.metrics()[GAUGE] == 1)


def test_two_proxies_that_can_ask_one_another_grow_in_parts(proxy: ProxyProcess, other: ProxyProcess) -> None:
    other.start()
    wait_until(lambda: all(each.metrics()["tsproxy_peers_linked"] == 1 for each in (proxy, other)))
    wait_until(lambda: all(each.metrics()[GAUGE] == 1 for each in (proxy, other)))


def test_readers_of_two_proxies_that_grow_in_parts_meet_no_join(
    backend: MongodProcess, proxy: ProxyProcess, other: ProxyProcess
) -> None:
    """Both write the same series; readers through both see each acknowledged row once, at every moment."""
    proxy.stop()
    for each in (proxy, other):
        # With fewer rounds than make a load, too.
        each.flags = ("--write-strategy", "in_parts")
        each.start()
    wait_until(lambda: all(each.metrics()["tsproxy_peers_linked"] == 1 for each in (proxy, other)))
    with proxy.client() as one, other.client() as two:
        collections = [collection_of(one, "two"), two.two.x]
        reading = Reading(collections)
        with ThreadPoolExecutor(3) as threads:
            readers = [threads.submit(reading.read, each) for each in (*collections, collections[0])]
            reading.write()
            scans = [each.result() for each in readers]
        assert min(scans) > 0
        wait_until(lambda: all(each.metrics()[UNJOINED] == 0 for each in (proxy, other)))
        assert one.two.x.count_documents({}) == sum(reading.acknowledged)
        buckets = backend.shared_client.two["system.buckets.x"].count_documents({})
    assert buckets <= 4 * SERIES
    for each in (proxy, other):
        metrics = each.metrics()
        assert metrics["tsproxy_peer_holds_total"] > metrics["tsproxy_peer_holds_refused_total"]
        assert metrics["tsproxy_peer_held_for_others_total"] > 0
        assert metrics["tsproxy_joined_parts_total"] > 0


class Reading:
    """Writers through each of several proxies, and readers that know what was acknowledged before they began."""

    def __init__(self, collections: list[Collection[dict[str, Any]]]) -> None:
        self._collections = collections
        self._writers = [each for each in collections for _ in range(WRITERS)]
        self.acknowledged = [0] * len(self._writers)
        """By writer: its rows are numbered."""
        self._are_done = threading.Event()

    def write(self) -> None:
        """All writers, to their end."""
        try:
            with ThreadPoolExecutor(len(self._writers)) as threads:
                for done in [threads.submit(self._write_some, number) for number in range(len(self._writers))]:
                    done.result()
        finally:
            self._are_done.set()

    def _write_some(self, writer: int) -> None:
        for second in range(3 * len(LOAD)):
            moment, first = START + timedelta(seconds=second), self.acknowledged[writer]
            rows = [{"t": moment, "m": (first + each) % SERIES, "w": writer, "v": first + each} for each in range(3)]
            self._writers[writer].insert_many(rows, ordered=False)
            self.acknowledged[writer] = first + len(rows)

    def read(self, collection: Collection[dict[str, Any]]) -> int:
        """Scan until the writers have ended; returns the number of scans."""
        scans = 0
        while not self._are_done.is_set():
            before = list(self.acknowledged)
            cursor = collection.find({}, {"_id": 0, "w": 1, "v": 1}, batch_size=500)
            found = Counter((each["w"], each["v"]) for each in cursor)
            assert not [row for row, count in found.items() if count > 1], "rows are seen twice"
            missing = [(w, v) for w, end in enumerate(before) for v in range(end) if (w, v) not in found]
            assert not missing, f"{len(missing)} rows are not seen"
            scans += 1
            # Cursors that follow one another without a pause leave no moment for joins.
            self._are_done.wait(0.2)
        return scans
