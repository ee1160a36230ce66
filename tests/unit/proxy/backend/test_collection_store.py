"""Inserts by public commands: errors by document, the same command twice, and waits for write concerns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import bson
import pytest
from bson.int64 import Int64

from catalog.commit.restart_dedup import NOTHING_UPDATE
from catalog.commit.rows import digest_of
from catalog.errors import Fenced
from catalog.kernel import parse_measurement
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.ports import Applied, Rejected, WriteConcern
from proxy.backend.backend import Backend
from proxy.backend.collection_store import CollectionStore, _own_message
from proxy.observe.tasks import TaskSet
from tests.support.eventually import eventually
from tests.support.mongod import MongodProcess
from tests.support.raw_wire import RawClient

NO_TIME = bson.encode({"m": 1})
MAJORITY = WriteConcern(bson.encode({"w": "majority"}))


def row(number: int) -> bytes:
    return bson.encode({"_id": bson.ObjectId(), "t": bson.DatetimeMS(1_700_000_000_000 + number), "m": number % 3})


def collection(db_name: str) -> VirtualCollection:
    return VirtualCollection(Namespace(db_name, "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))


async def connected(server: MongodProcess) -> AsyncIterator[Backend]:
    tasks = TaskSet(lambda error: None)
    backend = await Backend.connect(
        server.uri,
        server_selection_timeout_seconds=10.0,
        connect_timeout_seconds=5.0,
        refresh_seconds=60.0,
        spawn=tasks.spawn,
    )
    try:
        yield backend
    finally:
        await backend.close()
        await tasks.close()


@pytest.fixture
async def of_set(replica_set: MongodProcess, db_name: str) -> AsyncIterator[CollectionStore]:
    replica_set.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    async for backend in connected(replica_set):
        yield backend.collection_store()


@pytest.fixture
async def standalone(mongod: MongodProcess, db_name: str) -> AsyncIterator[CollectionStore]:
    mongod.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    async for backend in connected(mongod):
        yield backend.collection_store()


def soon() -> float:
    return asyncio.get_running_loop().time() + 10


async def test_w102_the_same_command_twice_is_executed_once(
    of_set: CollectionStore, replica_set: MongodProcess, db_name: str
) -> None:
    """W68, W97: also if it was ordered first, and its first error left documents out."""
    documents, number = [row(1), NO_TIME, row(2)], of_set.next_number()
    for ordered in (True, False, False):
        outcome = await of_set.insert(collection(db_name), documents, WriteConcern(), number, soon(), ordered=ordered)
        assert isinstance(outcome, Applied)
        assert ordered or outcome.matched == 2
        assert replica_set.shared_client[db_name].x.count_documents({}) == (1 if ordered else 2)
        assert {at: error.code for at, error in outcome.errors.items()} == {1: 2}
        assert "'t' must be present" in outcome.errors[1].message
    assert replica_set.shared_client[db_name].x.count_documents({}) == 2
    assert number is not None
    before = number.number
    of_set.settled(number)
    assert of_set.next_number() is number
    assert number.number == before + 1


async def test_w102_what_another_process_has_taken_over_is_not_executed(
    of_set: CollectionStore, replica_set: MongodProcess, db_name: str
) -> None:
    number = of_set.next_number()
    assert number is not None
    nothing = {"delete": "nothing", "deletes": [{"q": {"_id": 0}, "limit": 1}], "$db": db_name}
    with RawClient(replica_set.port) as client:
        assert client.run({**nothing, "lsid": number.session, "txnNumber": Int64(number.number + 9)})["ok"]
    outcome = await of_set.insert(collection(db_name), [row(1)], WriteConcern(), number, soon(), ordered=True)
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, Fenced)
    of_set.settled(number)
    again = of_set.next_number()
    outcome = await of_set.insert(collection(db_name), [row(1)], WriteConcern(), again, soon(), ordered=True)
    assert isinstance(outcome, Applied)
    assert replica_set.shared_client[db_name].x.count_documents({}) == 1


async def test_w102_a_command_that_was_killed_halfway_is_completed_under_its_number(
    of_set: CollectionStore, replica_set: MongodProcess, db_name: str
) -> None:
    """Its error says nothing of the documents that it has inserted."""
    documents, number = [row(1), row(2), row(3)], of_set.next_number()
    admin = replica_set.shared_client.admin
    admin.command("configureFailPoint", "hangDuringBatchInsert", mode={"skip": 1})
    try:
        sent = asyncio.create_task(
            of_set.insert(collection(db_name), documents, WriteConcern(), number, soon(), ordered=False)
        )
        stored = replica_set.shared_client[db_name].x.count_documents
        await eventually(lambda: stored({}) == 1)
        running = admin.aggregate([{"$currentOp": {}}, {"$match": {"command.insert": "x"}}])
        (inserting,) = [each for each in running if each["command"]["$db"] == db_name]
        admin.command("killOp", op=inserting["opid"])
    finally:
        admin.command("configureFailPoint", "hangDuringBatchInsert", mode="off")
    outcome = await sent
    assert isinstance(outcome, Rejected)
    assert outcome.error.code == 11601
    assert replica_set.shared_client[db_name].x.count_documents({}) == 1
    again = await of_set.insert(collection(db_name), documents, WriteConcern(), number, soon(), ordered=False)
    assert isinstance(again, Applied)
    assert (again.matched, replica_set.shared_client[db_name].x.count_documents({})) == (3, 3)


async def test_a_standalone_cannot_be_asked_twice(
    standalone: CollectionStore, mongod: MongodProcess, db_name: str
) -> None:
    assert standalone.next_number() is None
    standalone.settled(None)
    outcome = await standalone.insert(collection(db_name), [row(1), row(2)], WriteConcern(), None, soon(), ordered=True)
    assert isinstance(outcome, Applied)
    assert (outcome.matched, outcome.errors) == (2, {})
    assert mongod.shared_client[db_name].x.count_documents({}) == 2


async def test_w102_rows_are_found_in_the_collection_itself(standalone: CollectionStore, db_name: str) -> None:
    rows = [row(number) for number in range(5)]
    await standalone.insert(collection(db_name), rows[:3], WriteConcern(), None, soon(), ordered=True)
    measurements = [parse_measurement(each, b"t", b"m") for each in rows]
    found = await standalone.stored_rows(collection(db_name), measurements, soon())
    assert dict(found) == {digest_of(each): 1 for each in measurements[:3]}


async def test_a_write_of_nothing_waits_for_its_write_concern(of_set: CollectionStore, db_name: str) -> None:
    outcome = await of_set.update(collection(db_name), [NOTHING_UPDATE], MAJORITY, soon())
    assert isinstance(outcome, Applied)
    assert (outcome.matched, outcome.acknowledgement.is_met) == (0, True)


async def test_a_write_concern_that_the_server_refuses(of_set: CollectionStore, db_name: str) -> None:
    wrong = WriteConcern(bson.encode({"w": 60}))
    outcome = await of_set.insert(collection(db_name), [row(1)], wrong, of_set.next_number(), soon(), ordered=True)
    assert isinstance(outcome, Rejected)


def test_texts_about_a_document_are_the_servers_but_not_those_about_the_account() -> None:
    assert _own_message({"code": 2, "errmsg": "'t' must be {present}"}) == "'t' must be {present}"
    assert "lacks a privilege" in _own_message({"code": 13, "errmsg": "not authorized"})
    assert _own_message({"code": 2, "errmsg": "x" * 5000}) == "the backend refused this command with error 2"
