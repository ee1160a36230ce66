"""Buckets that went to another incarnation of a collection are taken back, on a real server (W72, H7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo.database import Database

from catalog.errors import UUID_MISMATCH, CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.ports import Acknowledgement, Applied, BulkOutcome, Rejected, Unknown
from proxy.backend.collection_uuid_check import CollectionUuidCheck
from proxy.backend.service import ServicePool
from tests.support.mongod import MongodProcess

START = ObjectId("665000000000000000000001")
TIME = {"t": START.generation_time}
BUCKET = {"_id": START, "control": {"version": 1, "min": TIME, "max": TIME}, "meta": 1, "data": {"t": {"0": TIME["t"]}}}
APPLIED = Applied(1, {}, Acknowledgement())


class Watched:
    """A time-series collection that was known, and the watch over it."""

    def __init__(self, mongod: MongodProcess, name: str) -> None:
        self.mongod = mongod
        self.database: Database[Any] = mongod.shared_client[name]
        self.create()
        self.known = VirtualCollection(
            Namespace(name, "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60), self.uuid()
        )

    def create(self) -> None:
        self.database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})

    def uuid(self) -> bytes:
        return bytes(self.listing()["system.buckets.x"]["info"]["uuid"])

    def listing(self) -> Mapping[str, Any]:
        return {entry["name"]: entry for entry in self.database.list_collections() if entry["name"] != "system.views"}

    def store_unchecked(self) -> None:
        """As the insert of an earlier incarnation would arrive."""
        body = {"insert": "system.buckets.x", "documents": [BUCKET], "bypassDocumentValidation": True}
        assert self.database.command(body)["n"] == 1

    def judge(self, outcome: BulkOutcome, port: int | None = None, patience_seconds: float = 10.0) -> BulkOutcome:
        async def primary(timeout_seconds: float) -> tuple[str, int]:
            return "127.0.0.1", port or self.mongod.port

        async def ask() -> BulkOutcome:
            pool = ServicePool(primary, None, None, 5.0)
            try:
                deadline = asyncio.get_running_loop().time() + patience_seconds
                return await CollectionUuidCheck(pool).judge(self.known, [bson.encode(BUCKET)], outcome, deadline)
            finally:
                pool.close()

        return asyncio.run(ask())


@pytest.fixture
def watched(mongod: MongodProcess, db_name: str) -> Watched:
    return Watched(mongod, db_name)


def is_mismatch(outcome: BulkOutcome) -> bool:
    return isinstance(outcome, Rejected) and outcome.error.code == UUID_MISMATCH


def test_what_went_where_it_was_meant_to_go_stays(watched: Watched) -> None:
    watched.store_unchecked()
    assert watched.judge(APPLIED) is APPLIED
    assert watched.database["system.buckets.x"].count_documents({}) == 1


def test_the_plain_collection_that_an_insert_made_is_gone_again(watched: Watched) -> None:
    watched.database.drop_collection("x")
    watched.store_unchecked()
    assert is_mismatch(watched.judge(APPLIED))
    assert watched.listing() == {}


def test_rows_that_others_put_into_such_a_collection_stay(watched: Watched) -> None:
    watched.database.drop_collection("x")
    watched.store_unchecked()
    watched.database["system.buckets.x"].insert_one({"_id": 1})
    assert is_mismatch(watched.judge(APPLIED))
    assert list(watched.database["system.buckets.x"].find()) == [{"_id": 1}]


def test_buckets_leave_the_next_incarnation(watched: Watched) -> None:
    watched.database.drop_collection("x")
    watched.create()
    watched.store_unchecked()
    assert is_mismatch(watched.judge(APPLIED))
    assert watched.database["system.buckets.x"].count_documents({}) == 0
    assert "x" in watched.listing()


def test_nothing_is_left_of_a_dropped_collection(watched: Watched) -> None:
    watched.database.drop_collection("x")
    assert is_mismatch(watched.judge(APPLIED))


def test_without_an_answer_the_outcome_is_unknown(watched: Watched) -> None:
    assert isinstance(watched.judge(APPLIED, port=1, patience_seconds=0.05), Unknown)


def test_only_what_was_applied_is_looked_after() -> None:
    refused = Rejected(CommandError(13, "not authorized"))
    collection = VirtualCollection(Namespace("d", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
    watch = CollectionUuidCheck(None)  # type: ignore[arg-type]
    assert asyncio.run(watch.judge(collection, [], refused, 0.0)) is refused
    assert asyncio.run(watch.judge(collection, [], APPLIED, 0.0)) is APPLIED
