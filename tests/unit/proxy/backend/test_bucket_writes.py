"""Commits that are sent without a task, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import bson
import pytest
from bson.objectid import ObjectId

from catalog.errors import UUID_MISMATCH, Fenced, Withheld
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.ports import Applied, BulkOutcome, Rejected, Unknown, WriteConcern
from proxy.backend.bucket_writes import BucketWrites
from proxy.backend.fences import Fences
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LostAfterSending, OnAnswer
from proxy.backend.write_numbers import SESSIONS, WriteNumbers, session_of
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
PLAIN = WriteConcern()


class Bench:
    """Writes to the ordinary collection ``system.buckets.x`` of a time-series collection."""

    def __init__(self, server: MongodProcess, database: str, **options: Any) -> None:
        async def primary(timeout_seconds: float) -> tuple[str, int]:
            return LOOPBACK, server.port

        self.pool = ServicePool(primary, None, None, 5.0)
        self.begun: list[VirtualCollection] = []
        chosen: dict[str, Any] = {"pool": self.pool, "sends_uuid": True, "waits": None, **options}
        self.writes = BucketWrites(begins=self.begun.append, closed=lambda namespace: None, **chosen)
        self.x = VirtualCollection(Namespace(database, "x"), OPTIONS)
        self.outcomes: list[BulkOutcome] = []

    def begin(self, *statements: bytes, grows: bool = False) -> bool:
        until_seconds = asyncio.get_running_loop().time() + 10
        return self.writes.begin(self.x, statements, PLAIN, until_seconds, self.outcomes.append, grows=grows)

    async def outcome(self) -> BulkOutcome:
        async with asyncio.timeout(10):
            while not self.outcomes:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.001)
        return self.outcomes.pop()

    async def connect(self) -> None:
        await self.pool.request(bson.encode({"ping": 1, "$db": "admin"}), asyncio.get_running_loop().time() + 10)


@pytest.fixture
async def bench(mongod: MongodProcess, db_name: str) -> AsyncIterator[Bench]:
    mongod.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    bench = Bench(mongod, db_name)
    await bench.connect()
    yield bench
    bench.pool.close()


def bucket(identity: ObjectId) -> bytes:
    times = {"t": identity.generation_time}
    control = {"version": 1, "min": {"_id": 1, **times}, "max": {"_id": 1, **times}}
    data = {"t": {"0": identity.generation_time}, "_id": {"0": 1}}
    return bson.encode({"_id": identity, "control": control, "meta": "a", "data": data})


async def test_a_bucket_is_inserted_and_grown(bench: Bench, mongod: MongodProcess, db_name: str) -> None:
    """W64"""
    identity = ObjectId()
    assert bench.begin(bucket(identity))
    inserted = await bench.outcome()
    assert isinstance(inserted, Applied)
    assert (inserted.matched, inserted.errors) == (1, {})
    statement = bson.encode({"q": {"_id": identity}, "u": {"$set": {"control.closed": False}}})
    assert bench.begin(statement, grows=True)
    grown = await bench.outcome()
    assert isinstance(grown, Applied)
    assert grown.matched == 1
    stored = mongod.shared_client[db_name]["system.buckets.x"].find_one({"_id": identity})
    assert stored is not None
    assert stored["control"]["closed"] is False
    assert bench.begun == [bench.x, bench.x]


async def test_an_error_of_one_bucket_is_told(bench: Bench) -> None:
    """W66"""
    identity = ObjectId()
    assert bench.begin(bucket(identity))
    await bench.outcome()
    assert bench.begin(bucket(identity), bucket(ObjectId()))
    outcome = await bench.outcome()
    assert isinstance(outcome, Applied)
    assert outcome.matched == 1
    assert {index: error.code for index, error in outcome.errors.items()} == {0: 11000}


class LosingPool:
    """Loses each connection after a request was sent."""

    def begin(self, told: OnAnswer, *request: Any) -> bool:
        asyncio.get_running_loop().call_soon(told, LostAfterSending("connection closed"))
        return True


async def test_a_reply_that_does_not_come_leaves_the_outcome_open(mongod: MongodProcess, db_name: str) -> None:
    """W127"""
    loop = asyncio.get_running_loop()
    bench = Bench(mongod, db_name, pool=LosingPool())
    since_seconds = loop.time()
    assert bench.begin(bucket(ObjectId()))
    outcome = await bench.outcome()
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, LostAfterSending)
    assert loop.time() - since_seconds >= 0.09, "it may be sent again, so not at once"


async def test_what_needs_a_wait_is_not_begun(bench: Bench, mongod: MongodProcess, db_name: str) -> None:
    empty = bson.encode({"_id": ObjectId(), "control": {}, "meta": bson.Timestamp(0, 0)})
    assert not bench.begin(empty)
    replicated = Bench(mongod, db_name, waits=cast(Any, object()))
    checked = Bench(mongod, db_name, sends_uuid=False)
    for other in (replicated, checked):
        await other.connect()
        assert not other.begin(bucket(ObjectId()))
        other.pool.close()
    assert not replicated.begun
    assert not checked.begun


async def test_a_bucket_with_an_empty_timestamp_is_taken_back_by_its_id(
    bench: Bench, mongod: MongodProcess, db_name: str
) -> None:
    """As every bucket that went to another incarnation (W37, W72); it is sent as an update, which has no ``_id``."""
    checked = Bench(mongod, db_name, sends_uuid=False)
    earlier = replace(checked.x, uuid=bytes(16))
    empty = bson.encode({**bson.decode(bucket(ObjectId())), "meta": bson.Timestamp(0, 0)})
    outcome = await checked.writes.insert(earlier, [empty], PLAIN, asyncio.get_running_loop().time() + 10)
    checked.pool.close()
    assert isinstance(outcome, Rejected)
    assert outcome.error.code == UUID_MISMATCH
    assert mongod.shared_client[db_name]["system.buckets.x"].count_documents({}) == 0


async def test_w102_what_another_process_has_taken_over_is_not_written(
    replica_set: MongodProcess, db_name: str
) -> None:
    """The numbers of writes that have ended are free again, whatever their outcome."""
    replica_set.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    bench, fenced = Bench(replica_set, db_name), []
    numbers = bench.pool.family.numbers = WriteNumbers(b"secret", db_name)
    numbers.on_fence = lambda: fenced.append(1)
    fences = Fences(bench.pool, b"secret", lambda: [bench.x.buckets])
    until_seconds = asyncio.get_running_loop().time() + 10

    async def insert() -> BulkOutcome:
        return await bench.writes.insert(bench.x, [bucket(ObjectId())], PLAIN, until_seconds)

    assert isinstance(await insert(), Applied)
    await fences.set_up(db_name)
    outcome = await insert()
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, Fenced)
    assert fenced == [1]
    assert isinstance(await insert(), Applied)
    assert replica_set.shared_client[db_name]["system.buckets.x"].count_documents({}) == 2
    assert numbers.take().session == session_of(b"secret", db_name, 0)
    bench.pool.close()


async def test_w102_while_others_may_take_over_no_more_is_sent_than_fences_keep_out(
    replica_set: MongodProcess, db_name: str
) -> None:
    replica_set.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    bench = Bench(replica_set, db_name)
    numbers = bench.pool.family.numbers = WriteNumbers(b"secret", db_name)
    numbers.must_have_fences = lambda: True
    taken = [numbers.take() for _ in range(SESSIONS)]
    may, until_seconds = [True], asyncio.get_running_loop().time() + 10

    async def insert() -> BulkOutcome:
        return await bench.writes.insert(bench.x, [bucket(ObjectId())], PLAIN, until_seconds, lambda: may[0])

    assert isinstance(outcome := await insert(), Rejected)
    assert isinstance(outcome.error, Withheld)
    numbers.free(taken[0])
    assert isinstance(await insert(), Applied)
    may[0] = False
    assert isinstance(outcome := await insert(), Rejected)
    assert isinstance(outcome.error, Withheld)
    assert replica_set.shared_client[db_name]["system.buckets.x"].count_documents({}) == 1
    bench.pool.close()
