"""``Timestamp(0, 0)``, in whose place servers put the current time: in measurements it stays (W37)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Int64, Timestamp
from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started

EMPTY = Timestamp(0, 0)
NOON = 1_700_000_040_000
DEADLINE_SECONDS = 30.0
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["mongod", "replica_set"])
def backend(request: pytest.FixtureRequest) -> MongodProcess:
    server: MongodProcess = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module", params=["in_place", "in_parts"])
def grown_proxy(
    request: pytest.FixtureRequest, server_directory: Path, backend: MongodProcess
) -> Iterator[ProxyProcess]:
    directory = server_directory / f"proxy_{request.param}_{backend.port}"
    with started(ProxyProcess(directory, backend.uri, flags=["--write-strategy", request.param])) as server:
        yield server


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"_id": number, "t": DatetimeMS(NOON + number * 100), **fields}


def one_by_one(database: Database[Any], rows: Rows) -> None:
    for each in rows:
        database["c"].insert_one(each)


def in_a_batch(database: Database[Any], rows: Rows) -> None:
    database["c"].insert_many(rows)


KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "meta": lambda n: row(n, m=EMPTY, v=n),
    "meta, beside others": lambda n: row(n, m=(EMPTY, Timestamp(0, 1), Timestamp(1, 0), "a")[n % 4], v=n),
    "in meta": lambda n: row(n, m={"a": EMPTY, "b": [EMPTY]}, v=n),
    "in an array that is meta": lambda n: row(n, m=[EMPTY], v=n),
    "field": lambda n: row(n, m="a", v=n, x=EMPTY, y={"z": EMPTY}, w=[EMPTY]),
    "all": lambda n: row(n, m=EMPTY, v=n, x=EMPTY),
    "_id": lambda n: {**row(n, m="a", v=n), "_id": EMPTY},
}


def state(native: Database[Any]) -> tuple[Rows, list[Any]]:
    """Every row, and the meta values of the buckets, as the server has them."""
    rows = list(native["c"].find({}, sort=[("v", 1)]))
    return rows, sorted(repr(each.get("meta")) for each in native["system.buckets.c"].find({}))


@pytest.mark.parametrize("insert", [one_by_one, in_a_batch])
@pytest.mark.parametrize("kind", KINDS)
def test_w37_what_is_inserted_is_stored_as_natively(
    grown_proxy: ProxyProcess,
    backend: MongodProcess,
    db_name: str,
    kind: str,
    insert: Callable[[Database[Any], Rows], None],
) -> None:
    native, behind = (backend.shared_client[f"{db_name}_{name}"] for name in ("native", "behind"))
    with grown_proxy.client() as client:
        virtual = client[behind.name]
        native.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        virtual.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        for database in (native, virtual):
            insert(database, [KINDS[kind](n) for n in range(12)])
        assert list(virtual["c"].find({}, sort=[("v", 1)])) == state(native)[0]
        assert state(behind)[0] == state(native)[0]
        assert set(state(behind)[1]) == set(state(native)[1])
    for database in (native, behind):
        database.client.drop_database(database.name)


@pytest.mark.parametrize("ordered", [True, False])
def test_w37_rows_keep_it_joined_repacked_and_updated(
    grown_proxy: ProxyProcess, backend: MongodProcess, db_name: str, ordered: bool
) -> None:
    """Natively an unordered insert stores the current time instead; through the proxy it is what the client sent."""
    behind = backend.shared_client[db_name]

    def pairs() -> list[Any]:
        return [(each["m"], each["v"]) for each in state(behind)[0]]

    with grown_proxy.client() as client:
        c = client[db_name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        rows = [row(n, m=EMPTY if n % 3 else "a", v=n) for n in range(60)]
        c.insert_many(rows[:30], ordered=ordered)
        for each in rows[30:]:
            c.insert_one(each)
        until_one_bucket_each(behind)
        assert pairs() == [(each["m"], each["v"]) for each in rows]
        assert c.delete_many({"v": {"$in": [1, 2, 3]}}).deleted_count == 3
        assert c.delete_one({"v": 4}).deleted_count == 1
        assert pairs() == [(each["m"], each["v"]) for each in (rows[0], *rows[5:])]
        assert c.update_many({"m": "a"}, {"$set": {"m": EMPTY}}).modified_count >= 1
        assert pairs() == [(EMPTY, each["v"]) for each in (rows[0], *rows[5:])]
        assert c.delete_many({"m": EMPTY, "v": {"$lt": 10}}).deleted_count == 6
        assert [each["v"] for each in c.find({"m": EMPTY}, sort=[("v", 1)])] == list(range(10, 60))


def test_w37_full_buckets_are_compressed_with_it(
    grown_proxy: ProxyProcess, backend: MongodProcess, db_name: str, mongod_version: tuple[int, ...]
) -> None:
    """Before 6.0 no bucket is compressed."""
    buckets = backend.shared_client[db_name]["system.buckets.c"]
    with grown_proxy.client() as client:
        c = client[db_name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        c.insert_many([row(n, m=EMPTY, v=Int64(n)) for n in range(1100)])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while mongod_version >= (6,) and not buckets.count_documents({"control.version": 2}):
            assert time.monotonic() < deadline, "the full bucket was not compressed in time"
            time.sleep(0.1)
        assert {repr(each["meta"]) for each in buckets.find({}, {"meta": 1})} == {repr(EMPTY)}
        assert [(each["m"], each["v"]) for each in c.find({}, sort=[("v", 1)])] == [(EMPTY, n) for n in range(1100)]


def until_one_bucket_each(database: Database[Any]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while database["system.buckets.c"].count_documents({}) > 2:
        assert time.monotonic() < deadline, "the parts were not joined in time"
        time.sleep(0.1)
