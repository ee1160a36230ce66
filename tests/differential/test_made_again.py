"""A collection that is made again beside the proxy: what was planned for the old one is not done to the new one.

The proxy here does not list collections again by itself in an hour, so it finds out by the UUID that its reads name.
Before 6.0, commands name none: then it has to list them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started

START = datetime(2024, 5, 18, tzinfo=UTC)
LISTED_SECONDS = 0.05
Documents = Database[dict[str, Any]]
ROWS = [
    {"_id": 0, "t": START, "m": "m0", "k": "x", "v": 0},
    {"_id": 1, "t": START, "k": "x", "v": 1},
    {"_id": 2, "t": START + timedelta(hours=2), "m": "x", "v": 2},
]


@pytest.fixture(scope="module")
def forgetful(
    server_directory: Path, replica_set: MongodProcess, mongod_version: tuple[int, ...]
) -> Iterator[ProxyProcess]:
    flags = ("--namespace-refresh-seconds", "3600" if mongod_version >= (6, 0) else str(LISTED_SECONDS))
    with started(ProxyProcess(server_directory / "made_again", replica_set.uri, flags=flags)) as process:
        yield process


@pytest.fixture
def native(replica_set: MongodProcess, db_name: str) -> Documents:
    return replica_set.shared_client[db_name]


@pytest.fixture
def proxied(forgetful: ProxyProcess, native: Documents) -> Iterator[Documents]:
    with forgetful.client() as client:
        yield client[native.name]


def make(native: Documents, proxied: Documents, *, meta: str | None, again: str | None, **options: Any) -> None:
    """The collection ``x`` with one meta field, known to the proxy, and then with another one."""
    first = {"timeField": "t"} | ({} if meta is None else {"metaField": meta})
    native.create_collection("x", timeseries=first)
    proxied.x.insert_one({"t": START, "m": "m", "k": "k"})
    assert len(list(proxied.x.find({"k": "k"}))) == 1
    native.drop_collection("x")
    second = {"timeField": "t"} | ({} if again is None else {"metaField": again})
    native.create_collection("x", timeseries=second, **options)
    native.x.insert_many(ROWS)
    _until_listed(native)


def _until_listed(native: Documents) -> None:
    if native.client.server_info()["versionArray"] < [6, 0]:
        time.sleep(3 * LISTED_SECONDS)


READS: dict[str, Callable[[Documents], Any]] = {
    "find": lambda database: list(database.x.find({"k": "x"}, sort=[("_id", 1)])),
    "find all": lambda database: list(database.x.find({}, sort=[("_id", 1)])),
    "aggregate": lambda database: list(
        database.x.aggregate([{"$group": {"_id": "$k", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    ),
    "count": lambda database: database.x.count_documents({"m": "x"}),
    "count command": lambda database: database.command("count", "x", query={"k": "x"})["n"],
    "distinct": lambda database: sorted(database.x.distinct("m")),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("meta", "again"), [("m", "k"), ("m", None), (None, "m")])
def test_reads(native: Documents, proxied: Documents, read: str, meta: str | None, again: str | None) -> None:
    make(native, proxied, meta=meta, again=again)
    for _ in range(3):
        assert READS[read](proxied) == READS[read](native)


@pytest.mark.parametrize("read", READS)
def test_reads_of_an_ordinary_collection(native: Documents, proxied: Documents, read: str) -> None:
    make(native, proxied, meta="m", again="k")
    native.drop_collection("x")
    native.x.insert_many(ROWS)
    _until_listed(native)
    for _ in range(2):
        assert READS[read](proxied) == READS[read](native)


@pytest.mark.parametrize("read", READS)
def test_reads_of_what_is_gone(native: Documents, proxied: Documents, read: str) -> None:
    make(native, proxied, meta="m", again="k")
    native.drop_collection("x")
    _until_listed(native)
    assert READS[read](proxied) == READS[read](native)


@pytest.mark.parametrize("kind", ["many", "one", "findAndModify"])
@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ({"m": "x", "v": {"$gte": 0}}, {2}),
        ({"k": {"$exists": False}, "v": {"$gte": 0}}, {2}),
        ({"m": "none", "v": {"$gte": 0}}, set()),
        ({"k": "x", "v": {"$lt": 1}}, {0}),
    ],
)
def test_deletes(native: Documents, proxied: Documents, kind: str, query: dict[str, Any], matches: set[int]) -> None:
    """U8: natively, such deletes are refused."""
    make(native, proxied, meta="m", again="k")
    if kind == "findAndModify":
        found = proxied.x.find_one_and_delete(query)
        assert ({found["_id"]} if found else set()) == matches
    else:
        delete = proxied.x.delete_many if kind == "many" else proxied.x.delete_one
        assert delete(query).deleted_count == len(matches)
    left = {row["_id"] for row in ROWS} - matches
    assert {row["_id"] for row in native.x.find()} == left


def test_a_delete_from_an_ordinary_collection(native: Documents, proxied: Documents) -> None:
    make(native, proxied, meta="m", again="k")
    native.drop_collection("x")
    native.x.insert_many(ROWS)
    _until_listed(native)
    assert proxied.x.delete_many({"v": {"$gte": 1}}).deleted_count == 2
    assert [row["_id"] for row in native.x.find()] == [0]


def test_summaries_of_a_collection_that_has_a_collation_now(native: Documents, proxied: Documents) -> None:
    """W21: the catalog does not compare strings as the server would."""
    make(native, proxied, meta="m", again="m", collation={"locale": "en", "numericOrdering": True})
    rows = [{"t": START, "m": "s", "s": "10"}, {"t": START, "m": "s", "s": "9"}]
    with contextlib.suppress(BulkWriteError):
        proxied.x.insert_many([dict(row) for row in rows])
    if not native.x.count_documents({"m": "s"}):
        # It noticed in the middle of the insert, and refused it; the next one it knows.
        proxied.x.insert_many([dict(row) for row in rows])
    assert native.x.count_documents({"s": {"$gt": "9"}}) == 1
