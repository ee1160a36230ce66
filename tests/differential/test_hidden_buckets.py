"""``hide_bucket_collections``: listCollections without what belongs to time series."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started


@pytest.fixture(scope="module")
def hiding(server_directory: Path, mongod: MongodProcess) -> Iterator[ProxyProcess]:
    with started(
        ProxyProcess(server_directory / "hiding", mongod.uri, flags=["--hide-bucket-collections", "true"])
    ) as process:
        yield process


@pytest.fixture
def listed(mongod: MongodProcess, db_name: str) -> str:
    database = mongod.shared_client[db_name]
    for index in range(5):
        database.create_collection(f"series{index}", timeseries={"timeField": "t"})
        database.create_collection(f"plain{index}")
    database.create_collection("seen", viewOn="plain0", pipeline=[])
    database.create_collection("system_buckets_x")
    return db_name


def without_buckets(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        entry
        for entry in entries
        if not entry["name"].startswith("system.buckets.") and entry["name"] != "system.views"
    ]


def entries(client: pymongo.MongoClient[dict[str, Any]], database: str, **options: Any) -> list[dict[str, Any]]:
    reply = client[database].command({"listCollections": 1, **options})
    found, cursor = list(reply["cursor"]["firstBatch"]), reply["cursor"]
    while cursor["id"]:
        more = {"getMore": cursor["id"], "collection": cursor["ns"].partition(".")[2]}
        if "batchSize" in options.get("cursor", {}):
            more["batchSize"] = options["cursor"]["batchSize"]
        cursor = client[database].command(more)["cursor"]
        found += cursor["nextBatch"]
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nameOnly": True},
        {"nameOnly": True, "authorizedCollections": True},
        {"cursor": {"batchSize": 2}},
        {"cursor": {"batchSize": 0}, "nameOnly": True},
        {"filter": {"type": "timeseries"}},
        {"filter": {"$or": [{"name": "plain1"}, {"name": {"$regex": "^s"}}]}, "cursor": {"batchSize": 3}},
        {"filter": {"name": "system.views"}},
        {"filter": {"name": "plain1"}},
        {"filter": {"options.timeseries.timeField": "t"}, "comment": "c"},
        {"filter": {}},
    ],
)
def test_all_others_are_listed_as_by_the_server(
    mongod: MongodProcess, hiding: ProxyProcess, listed: str, options: dict[str, Any]
) -> None:
    native = entries(mongod.shared_client, listed, **options)
    with hiding.client() as client:
        assert entries(client, listed, **options) == without_buckets(native)
        assert entries(client, listed, **options) == without_buckets(native)


def test_names_that_drivers_list(mongod: MongodProcess, hiding: ProxyProcess, proxy: ProxyProcess, listed: str) -> None:
    expected = {f"{kind}{index}" for kind in ("series", "plain") for index in range(5)} | {"seen", "system_buckets_x"}
    with hiding.client() as client:
        assert set(client[listed].list_collection_names()) == expected
    with proxy.client() as client:
        assert {"system.views", "system.buckets.series0"} <= set(client[listed].list_collection_names())


def test_refusals_are_the_servers(mongod: MongodProcess, hiding: ProxyProcess, listed: str) -> None:
    for options in ({"filter": 5}, {"filter": {"$and": []}}, {"filter": {"name": {"$nonsense": 1}}}):
        refusals = []
        with hiding.client() as client:
            for each in (client, mongod.shared_client):
                with pytest.raises(OperationFailure) as refused:
                    each[listed].command({"listCollections": 1, **options})
                refusals.append((refused.value.code, refused.value.details["errmsg"]))  # type: ignore[index]
        assert refusals[0] == refusals[1]


def test_measurements_are_written_and_read_as_ever(mongod: MongodProcess, hiding: ProxyProcess, listed: str) -> None:
    row = {"_id": 1, "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "v": 1}
    with hiding.client(tz_aware=True) as client:
        client[listed].series0.insert_one(row)
        assert list(client[listed].series0.find()) == [row]
        client[listed].drop_collection("series0")
        assert "series0" not in client[listed].list_collection_names()
