"""Buckets that grow in parts: every reader sees every row once at all times, and the end is what native has.

The parts are looked at directly on the backend, the rows through the proxy and on the native view.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

START = datetime(2024, 1, 1, tzinfo=UTC)
WRITERS = 24
ROWS = 90
JOINED_WITHIN_SECONDS = 3.0
"""More than a bucket without new rows is left in parts."""


@pytest.fixture(scope="module", params=["mongod", "replica_set"])
def backend(request: pytest.FixtureRequest) -> MongodProcess:
    """A standalone joins by one operation, a replica set in a transaction."""
    server: MongodProcess = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module")
def parts_proxy(server_directory: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    server = ProxyProcess(
        server_directory / f"proxy_parts_{backend.port}", backend.uri, flags=["--write-strategy", "in_parts"]
    )
    try:
        yield server.start()
    finally:
        server.stop()


def document(writer: int, row: int) -> dict[str, Any]:
    return {"t": START + timedelta(seconds=row), "m": {"device": writer}, "v": row, "s": f"{writer}-{row}"}


def test_rows_are_seen_once_while_parts_come_and_go(
    parts_proxy: ProxyProcess, backend: MongodProcess, db_name: str
) -> None:
    direct = backend.shared_client[db_name]
    with parts_proxy.client(maxPoolSize=WRITERS + 4) as client:
        database = client[db_name]
        collection = database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        acknowledged = [0] * WRITERS
        wrong: list[object] = []
        ended = threading.Event()

        def write(writer: int) -> None:
            for row in range(ROWS):
                collection.insert_one(document(writer, row))
                acknowledged[writer] = row + 1

        def read() -> None:
            while not ended.is_set():
                least = sum(acknowledged)
                seen = [each["s"] for each in collection.find({}, {"s": 1}, batch_size=200)]
                counted = collection.count_documents({})
                if len(set(seen)) != len(seen) or not least <= len(seen) <= sum(acknowledged) + WRITERS:
                    wrong.append((least, len(seen), len(set(seen))))
                if counted < least:
                    wrong.append((least, counted))

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        reader = threading.Thread(target=read)
        for thread in (*writers, reader):
            thread.start()
        for thread in writers:
            thread.join()
        ended.set()
        reader.join()
        assert not wrong
        buckets = direct["system.buckets.x"]
        wait_until(lambda: buckets.count_documents({}) == WRITERS)
        expected = sorted(f"{writer}-{row}" for writer in range(WRITERS) for row in range(ROWS))
        for through in (collection, direct["x"]):
            assert sorted(each["s"] for each in through.find()) == expected


def write_side_by_side(collection: Collection[dict[str, Any]], writers: int, rows: int) -> None:
    def write(writer: int) -> None:
        for row in range(rows):
            collection.insert_one(document(writer, row))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write_natively(collection: Collection[dict[str, Any]]) -> None:
    for row in range(ROWS):
        for writer in range(3):
            collection.insert_one(document(writer, row))


def test_joined_buckets_equal_native_ones(parts_proxy: ProxyProcess, backend: MongodProcess, db_name: str) -> None:
    direct = backend.shared_client[db_name]
    options = {"timeField": "t", "metaField": "m"}
    native = direct.create_collection("native", timeseries=options)
    write_natively(native)
    with parts_proxy.client(maxPoolSize=8) as client:
        virtual = client[db_name].create_collection("virtual", timeseries=options)
        threads = [
            threading.Thread(
                target=lambda writer=writer: [virtual.insert_one(document(writer, row)) for row in range(ROWS)]
            )
            for writer in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: direct["system.buckets.virtual"].count_documents({}) == 3)

    assert comparable(direct, "virtual") == comparable(direct, "native")


def comparable(database: Database[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The stored buckets of a collection, without what differs by chance."""
    stored = []
    for bucket in database[f"system.buckets.{name}"].find(sort=[("meta.device", pymongo.ASCENDING)]):
        del bucket["_id"]
        bucket["control"].pop("closed", None)
        for end in ("min", "max"):
            del bucket["control"][end]["_id"]
        del bucket["data"]["_id"]
        stored.append(bucket)
    return stored


def test_a_bucket_of_very_many_parts_becomes_the_native_one(
    parts_proxy: ProxyProcess, backend: MongodProcess, db_name: str
) -> None:
    """A standalone joins it piece by piece; rows are seen once meanwhile."""
    direct, rows = backend.shared_client[db_name], 700
    options = {"timeField": "t", "metaField": "m"}
    native = direct.create_collection("native", timeseries=options)
    with parts_proxy.client() as client:
        virtual = client[db_name].create_collection("virtual", timeseries=options)
        virtual.insert_many(document(number, 0) for number in range(3))
        cursor = virtual.find({}, batch_size=1)
        next(cursor)
        for row in range(1, rows):
            virtual.insert_one(document(0, row))
        buckets = direct["system.buckets.virtual"]
        assert buckets.count_documents({"meta.device": 0}) == rows, "the cursor keeps them apart"
        cursor.close()
        expected = [document(0, row)["s"] for row in range(rows)]
        deadline = time.monotonic() + 60
        while buckets.count_documents({"meta.device": 0}) > 1:
            assert sorted(each["s"] for each in virtual.find({"m.device": 0})) == sorted(expected)
            assert time.monotonic() < deadline
        assert [each["s"] for each in direct["virtual"].find({"m.device": 0}, sort=[("t", 1)])] == expected
    for number in range(3):
        native.insert_one(document(number, 0))
    for row in range(1, rows):
        native.insert_one(document(0, row))
    assert comparable(direct, "virtual") == comparable(direct, "native")


def test_meta_updates_and_deletes_reach_rows_in_parts(
    parts_proxy: ProxyProcess, backend: MongodProcess, db_name: str
) -> None:
    with parts_proxy.client(maxPoolSize=32) as client:
        collection = client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        threads = [
            threading.Thread(
                target=lambda writer=writer: [collection.insert_one(document(writer, row)) for row in range(40)]
            )
            for writer in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert collection.update_many({"m.device": 3}, {"$set": {"m.site": "north"}}).modified_count == 40
        assert collection.delete_many({"m.device": 4}).deleted_count == 40
        assert collection.delete_many({"v": 7}).deleted_count == 15
        assert collection.count_documents({}) == 16 * 40 - 40 - 15
        collection.insert_one(document(3, 41))
        buckets = backend.shared_client[db_name]["system.buckets.x"]
        wait_until(lambda: buckets.count_documents({}) <= 17)
        assert collection.count_documents({}) == 16 * 40 - 40 - 15 + 1
        assert collection.count_documents({"m.site": "north"}) == 39


def test_a_cursor_keeps_parts_apart_until_it_is_closed(
    parts_proxy: ProxyProcess, backend: MongodProcess, db_name: str
) -> None:
    """Closed, not exhausted: the driver kills it."""
    with parts_proxy.client(maxPoolSize=32) as client:
        collection = client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        in_threads(16, lambda writer: [collection.insert_one(document(writer, row)) for row in range(40)])
        cursor = collection.find({}, batch_size=2)
        next(cursor)
        buckets = backend.shared_client[db_name]["system.buckets.x"]
        before = buckets.count_documents({})
        in_threads(16, lambda writer: [collection.insert_one(document(writer, row)) for row in range(40, 60)])
        written = buckets.count_documents({})
        # On a slow machine, the parts from before the cursor may have been joined before it.
        assert written > max(before, 16)
        time.sleep(JOINED_WITHIN_SECONDS)
        assert buckets.count_documents({}) == written
        cursor.close()
        wait_until(lambda: buckets.count_documents({}) == 16)


def in_threads(count: int, work: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
