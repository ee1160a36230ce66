"""Inserts that the backend carries out itself: stored, answered and repeated as without the proxy.

Each test has proxies of its own on the server of the session, since the write strategy belongs to a proxy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import bson
import pymongo
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.wire import WireClient

START = datetime(2024, 5, 1, tzinfo=UTC)
COUNTER = "tsproxy_native_measurements_total"


@pytest.fixture(scope="module", params=["mongod", "replica_set"])
def backend(request: pytest.FixtureRequest) -> MongodProcess:
    found: MongodProcess = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def native(backend: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("native")
    process = ProxyProcess(folder, backend.uri, flags=["--write-strategy", "native"]).start()
    yield process
    process.stop()


def row(number: int, series: int = 3) -> dict[str, Any]:
    return {"_id": number, "t": START + timedelta(seconds=number), "m": number % series, "v": {"x": number / 7}}


def made(client: pymongo.MongoClient[dict[str, Any]], name: str) -> Collection[dict[str, Any]]:
    return client[name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})


def native_measurements(proxy: ProxyProcess) -> int:
    lines = proxy.status("/metrics")[1].splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith(COUNTER))))


def outcome(collection: Collection[dict[str, Any]], documents: list[dict[str, Any]], *, ordered: bool) -> Any:
    try:
        return len(collection.insert_many(documents, ordered=ordered).inserted_ids)
    except BulkWriteError as error:
        details = error.details
        return details["nInserted"], [(each["index"], each["code"]) for each in details["writeErrors"]]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("wrong", [None, {"_id": "no time", "m": 1}, {"_id": "text", "t": "noon", "m": 1}])
def test_outcomes_and_rows_are_native(
    backend: MongodProcess, native: ProxyProcess, db_name: str, wrong: dict[str, Any] | None, ordered: bool
) -> None:
    documents = [row(number) for number in range(40)]
    if wrong is not None:
        documents.insert(20, wrong)
    with native.client() as client:
        twin, through = made(backend.shared_client, db_name + "_n"), made(client, db_name + "_p")
        expected = outcome(twin, documents, ordered=ordered)
        rows = list(twin.find().sort("_id"))
        if wrong is not None:
            # Some servers count what they have not stored (W95).
            assert expected[1] == [(20, 2)]
            expected = len(rows), expected[1]
        assert outcome(through, documents, ordered=ordered) == expected
        assert list(through.find().sort("_id")) == rows


def test_single_inserts_go_natively_if_that_is_the_strategy(native: ProxyProcess, db_name: str) -> None:
    with native.client() as client:
        collection = made(client, db_name)
        # For some minutes after the start, the first insert of a session may be a retry of one that an earlier process
        # has staged, which only the catalog looks up.
        collection.insert_one(row(0))
        before = native_measurements(native)
        collection.insert_one(row(1))
        collection.insert_many([row(number) for number in range(2, 9)])
        assert native_measurements(native) == before + 8
        assert collection.count_documents({}) == 9


def test_distant_times_are_found_at_once(native: ProxyProcess, db_name: str) -> None:
    """The catalog takes them, so that reads know of them; the backend's own order of ids does not hold (Q12)."""
    with native.client() as client:
        collection = made(client, db_name)
        collection.insert_many([row(number) for number in range(20)])
        far = datetime(2200, 1, 1, tzinfo=UTC)
        collection.insert_many([row(20), {"_id": "far", "t": far, "m": 0}])
        assert [each["_id"] for each in collection.find({"t": {"$gte": far}})] == ["far"]
        assert collection.count_documents({"t": {"$lt": far}}) == 21


def insert_twice(proxy: ProxyProcess, body: dict[str, Any]) -> list[dict[str, Any]]:
    with WireClient(proxy.port) as connection:
        return [connection.command(body) for _ in range(2)]


def test_retried_insert_is_stored_once(replica_set: MongodProcess, tmp_path: Path, db_name: str) -> None:
    """The backend records its statements, and gets the retry, also when the way of other inserts has changed."""
    proxy = ProxyProcess(tmp_path / "proxy", replica_set.uri, flags=["--write-strategy", "native"]).start()
    try:
        with proxy.client() as client:
            collection = made(client, db_name)
            body = {
                "insert": "x",
                "documents": [row(number) for number in range(30)],
                "lsid": {"id": bson.Binary(uuid4().bytes, 4)},
                "txnNumber": bson.Int64(4),
                "$db": db_name,
            }
            first = {**body, "txnNumber": bson.Int64(3), "documents": [row(-1)]}
            assert insert_twice(proxy, first)[1]["n"] == 1
            before = native_measurements(proxy)
            assert [reply["n"] for reply in insert_twice(proxy, body)] == [30, 30]
            assert native_measurements(proxy) == before + 30 + 30
            assert collection.count_documents({}) == 31
    finally:
        proxy.stop()


def test_w102_a_part_of_a_relayed_insert_is_relayed_too(
    replica_set: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    """The part alone is too small to be."""
    proxy = ProxyProcess(tmp_path / "proxy", replica_set.uri, flags=["--write-strategy", "auto"]).start()
    try:
        with proxy.client() as client, WireClient(proxy.port) as wire:
            collection = made(client, db_name)
            session, sent, end = {"lsid": {"id": bson.Binary(uuid4().bytes, 4)}}, 0, time.monotonic() + 60
            while native_measurements(proxy) == 0:
                assert time.monotonic() < end, "none was relayed"
                rows = [row(number, 20) for number in range(500 * sent, 500 * (sent + 1))]
                sent += 1
                fields = {**session, "txnNumber": bson.Int64(sent), "$db": db_name}
                assert wire.command({"insert": "x", "documents": rows, **fields})["n"] == 500
                for part in (slice(0, 1), slice(7, 12)):
                    numbers = {"stmtIds": list(range(500))[part]}
                    again = wire.command({"insert": "x", "documents": rows[part], **numbers, **fields})
                    assert again["n"] == len(rows[part])
            assert collection.count_documents({}) == 500 * sent
    finally:
        proxy.stop()


def test_large_batches_find_the_faster_way(tmp_path: Path, db_name: str) -> None:
    """Whichever it is on this machine: both ways are tried, and every row is stored once, with its values."""
    server = MongodProcess(tmp_path / "mongod").start()
    proxy = ProxyProcess(tmp_path / "proxy", server.uri, flags=["--write-strategy", "auto"]).start()
    try:
        with proxy.client() as client:
            collection = made(client, db_name)
            stored, end = 0, time.monotonic() + 60
            while not 0 < native_measurements(proxy) < stored:
                assert time.monotonic() < end, "only one way was tried"
                collection.insert_many([row(number, 20) for number in range(stored, stored + 500)])
                stored += 500
            for _ in range(20):
                collection.insert_many([row(number, 20) for number in range(stored, stored + 500)])
                stored += 500
            assert sorted(collection.find(), key=lambda each: each["_id"]) == [
                {**row(number, 20), "t": row(number)["t"].replace(tzinfo=None)} for number in range(stored)
            ]
    finally:
        proxy.stop()
        server.remove()


def test_w35_an_undefined_meta_value_leaves_the_collection_readable(
    backend: MongodProcess, native: ProxyProcess, db_name: str
) -> None:
    """A server stores it as it is, and can read nothing from then on; so such inserts are not left to it."""
    plain = bson.encode({"_id": 1, "t": START, "v": 1})
    body = plain[4:-1] + b"\x06m\0"
    undefined = RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")
    with native.client() as client:
        twin, through = made(backend.shared_client, db_name + "_n"), made(client, db_name + "_p")
        for series in (twin, through):
            series.database.command("insert", "x", documents=[undefined])
        with pytest.raises(OperationFailure, match="undefined"):
            list(twin.find())
        assert [(each["_id"], each["m"]) for each in through.find()] == [(1, None)]
    backend.shared_client.drop_database(db_name + "_n")
