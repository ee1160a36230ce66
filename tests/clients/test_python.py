"""PyMongo's sync and async clients and Motor through the proxy."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pymongo
import pytest
from pymongo.errors import CollectionInvalid, OperationFailure, WriteError

from tests.support.proxy import ProxyProcess

with warnings.catch_warnings():
    # Motor is past its end of life and says so; people still have it.
    warnings.simplefilter("ignore", DeprecationWarning)
    from motor.motor_asyncio import AsyncIOMotorClient

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 -- clients read times back without a zone
OPTIONS = {"timeField": "t", "metaField": "device"}
USERS = {"name": {"$not": {"$regex": "^system[.]"}}}


def row(index: int) -> dict[str, Any]:
    return {"t": START + dt.timedelta(seconds=index), "device": {"id": index % 3}, "value": index}


def test_sync_client_does_the_basics(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client:
        db = client[db_name]
        points = db.create_collection("points", timeseries=OPTIONS)
        assert points.insert_one(row(0)).acknowledged
        assert len(points.insert_many([row(index) for index in range(1, 100)]).inserted_ids) == 99
        drained = list(points.find({}, batch_size=7).sort("t", 1))
        assert [document["value"] for document in drained] == list(range(100))
        assert all(set(document) == {"t", "device", "_id", "value"} for document in drained)
        groups = points.aggregate([{"$group": {"_id": "$device.id", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
        assert list(groups) == [{"_id": 0, "n": 34}, {"_id": 1, "n": 33}, {"_id": 2, "n": 33}]
        assert points.count_documents({"value": {"$gte": 90}}) == 10
        assert points.estimated_document_count() == 100
        assert sorted(points.distinct("device.id")) == [0, 1, 2]
        assert db.list_collection_names(filter={"type": "timeseries"}) == ["points"]
        points.drop()
        assert db.list_collection_names(filter=USERS) == []


def test_explicit_sessions_insert_through_the_catalog(proxy_rs: ProxyProcess, db_name: str) -> None:
    """PyMongo sends the time of the session's latest operation with their inserts, as a read concern."""

    def committed() -> float:
        lines = proxy_rs.status("/metrics")[1].splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("tsproxy_batch_measurements_sum")))

    with proxy_rs.client() as client, client.start_session() as session:
        points = client[db_name].create_collection("points", timeseries=OPTIONS)
        before = committed()
        for index in range(5):
            points.insert_one(row(index), session=session)
            assert points.count_documents({}, session=session) == index + 1
        assert committed() == before + 5


def test_errors_reach_the_sync_client_as_the_servers_own(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client:
        db = client[db_name]
        points = db.create_collection("points", timeseries=OPTIONS)
        with pytest.raises(WriteError) as refused:
            points.insert_one({"value": 1})
        assert refused.value.code == 2  # W96
        with pytest.raises(CollectionInvalid):
            db.create_collection("points", timeseries=OPTIONS)
        with pytest.raises(OperationFailure) as again:
            db.command("create", "points", timeseries=OPTIONS)
        assert again.value.code == 48  # C6


@pytest.fixture(params=["pymongo", "motor"])
async def async_client(request: pytest.FixtureRequest, proxy: ProxyProcess) -> AsyncIterator[Any]:
    """Both speak the same words; only Motor's ``close`` is not awaited."""
    if request.param == "pymongo":
        async with pymongo.AsyncMongoClient[dict[str, Any]](proxy.uri) as client:
            yield client
    else:
        motor: Any = AsyncIOMotorClient(proxy.uri)
        yield motor
        motor.close()


async def test_async_client_does_the_basics(async_client: Any, db_name: str) -> None:
    db = async_client[db_name]
    points = await db.create_collection("points", timeseries=OPTIONS)
    assert (await points.insert_one(row(0))).acknowledged
    assert len((await points.insert_many([row(index) for index in range(1, 100)])).inserted_ids) == 99
    drained = await points.find({}, batch_size=7).sort("t", 1).to_list(None)
    assert [document["value"] for document in drained] == list(range(100))
    pipeline = [{"$group": {"_id": "$device.id", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    cursor = points.aggregate(pipeline)
    cursor = await cursor if hasattr(cursor, "__await__") else cursor
    groups = await cursor.to_list(None)
    assert groups == [{"_id": 0, "n": 34}, {"_id": 1, "n": 33}, {"_id": 2, "n": 33}]
    assert await points.count_documents({"value": {"$gte": 90}}) == 10
    assert sorted(await points.distinct("device.id")) == [0, 1, 2]
    assert await db.list_collection_names(filter={"type": "timeseries"}) == ["points"]
    await points.drop()
    assert await db.list_collection_names(filter=USERS) == []


def test_ordinary_collections_are_the_backends_own(proxy: ProxyProcess, mongod: Any, db_name: str) -> None:
    with proxy.client() as client:
        client[db_name].plain.insert_many([{"_id": number} for number in range(10)])
        assert client[db_name].plain.update_many({"_id": {"$lt": 5}}, {"$set": {"x": 1}}).modified_count == 5
    assert mongod.shared_client[db_name].plain.count_documents({"x": 1}) == 5
