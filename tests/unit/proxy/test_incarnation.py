"""Inserts of buckets that went into another incarnation are taken back (W72), on a real server of any version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson import ObjectId, encode
from bson.datetime_ms import DatetimeMS

from catalog.namespaces import VirtualCollection
from catalog.ports import Acknowledgement, Applied, BulkOutcome, Rejected, Unknown
from proxy.incarnation import UUID_MISMATCH, IncarnationWatch
from proxy.namespace_registry import virtual_collections
from proxy.service import ServiceConnection, ServicePool
from tests.support.mongod import MongodProcess

TM = {"timeField": "t", "metaField": "m"}
NOON = DatetimeMS(1_700_000_000_000)
STORED = Applied(1, {}, Acknowledgement())


@pytest.fixture
async def watch(mongod: MongodProcess) -> AsyncIterator[IncarnationWatch]:
    async def primary(timeout_seconds: float | None) -> tuple[str, int]:
        return "127.0.0.1", mongod.port

    async def authenticate(connection: ServiceConnection) -> None:
        pass

    pool = ServicePool(primary, authenticate, None, 5.0)
    yield IncarnationWatch(pool)
    pool.close()


def bucket() -> dict[str, Any]:
    ends = {"t": NOON}
    return {"_id": ObjectId(), "control": {"version": 1, "min": ends, "max": ends}, "data": {"t": {"0": NOON}}}


def made(database: Any) -> VirtualCollection:
    """The collection ``x``, made anew."""
    database.command({"create": "x", "timeseries": TM})
    entries = database.command({"listCollections": 1})["cursor"]["firstBatch"]
    for entry in entries:
        entry["info"] = {**entry["info"], "uuid": bytes(entry["info"].get("uuid", b""))}
    return virtual_collections(database.name, entries)["x"]


async def judged(watch: IncarnationWatch, collection: VirtualCollection, document: dict[str, Any]) -> BulkOutcome:
    deadline_seconds = asyncio.get_running_loop().time() + 5
    return await watch.judge(collection, [encode(document)], STORED, deadline_seconds)


async def test_what_went_where_it_was_meant_to_go_stays(
    watch: IncarnationWatch, mongod: MongodProcess, db_name: str
) -> None:
    database = mongod.shared_client[db_name]
    collection, document = made(database), bucket()
    database["system.buckets.x"].insert_one(document)
    assert await judged(watch, collection, document) is STORED
    assert database["system.buckets.x"].count_documents({}) == 1


@pytest.mark.parametrize("others", [0, 1])
async def test_plain_collection_that_the_insert_made_goes_if_it_holds_nothing_else(
    others: int, watch: IncarnationWatch, mongod: MongodProcess, db_name: str
) -> None:
    database = mongod.shared_client[db_name]
    collection, document = made(database), bucket()
    database.drop_collection("x")
    database["system.buckets.x"].insert_many([document, *(bucket() for _ in range(others))])
    outcome = await judged(watch, collection, document)
    assert isinstance(outcome, Rejected)
    assert outcome.error.code == UUID_MISMATCH
    assert database["system.buckets.x"].count_documents({}) == others
    assert len(database.command({"listCollections": 1})["cursor"]["firstBatch"]) == others + 1  # and system.views


async def test_collection_that_was_made_again_keeps_what_is_its_own(
    watch: IncarnationWatch, mongod: MongodProcess, db_name: str
) -> None:
    database = mongod.shared_client[db_name]
    collection, ours, its_own = made(database), bucket(), bucket()
    database.drop_collection("x")
    made(database)
    database["system.buckets.x"].insert_many([ours, its_own])
    assert isinstance(await judged(watch, collection, ours), Rejected)
    assert [each["_id"] for each in database["system.buckets.x"].find()] == [its_own["_id"]]


async def test_collection_that_is_gone_took_the_bucket_along(
    watch: IncarnationWatch, mongod: MongodProcess, db_name: str
) -> None:
    database = mongod.shared_client[db_name]
    collection = made(database)
    database.drop_collection("x")
    assert isinstance(await judged(watch, collection, bucket()), Rejected)


async def test_without_an_answer_the_outcome_is_unknown(mongod: MongodProcess, db_name: str) -> None:
    async def nowhere(timeout_seconds: float | None) -> tuple[str, int]:
        return "127.0.0.1", 1

    async def authenticate(connection: ServiceConnection) -> None:
        pass

    pool = ServicePool(nowhere, authenticate, None, 1.0)
    collection = made(mongod.shared_client[db_name])
    deadline_seconds = asyncio.get_running_loop().time() + 0.2
    outcome = await IncarnationWatch(pool).judge(collection, [encode(bucket())], STORED, deadline_seconds)
    pool.close()
    assert isinstance(outcome, Unknown)
