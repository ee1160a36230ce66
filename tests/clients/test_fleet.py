"""A fleet of writers: every measurement is found again exactly once.

1,000 devices, 100 connections, 100,000 measurements, written one by one and in batches by PyMongo's two clients and
Motor at the same time, into one collection; read back through the proxy and out of the buckets on mongod itself.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from tests.support.mongod import MongodProcess
from tests.support.parts import wait_until_joined
from tests.support.proxy import ProxyProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Motor says that it is past its end of life
    from motor.motor_asyncio import AsyncIOMotorClient

DEVICES = 1_000
CONNECTIONS = 100
MEASUREMENTS = 100_000
SINGLES_SHARE = 0.1
"""How many measurements travel alone; the rest in batches of 2 to 1,000."""
START = dt.datetime(2024, 3, 1)  # noqa: DTZ001 -- clients read times back without a zone
SECONDS_APART = 10

Document = dict[str, Any]


def measurements(seed: int) -> list[Document]:
    """Each device reports every ten seconds; each report has a number of its own."""
    chance = random.Random(seed)
    rounds = MEASUREMENTS // DEVICES
    return [
        {
            "_id": number * DEVICES + device,
            "t": START + dt.timedelta(seconds=number * SECONDS_APART, milliseconds=chance.randrange(1000)),
            "device": {"id": device, "site": f"site-{device % 17}"},
            "celsius": round(chance.gauss(15, 8), 2),
            "ok": chance.random() < 0.99,
        }
        for number in range(rounds)
        for device in range(DEVICES)
    ]


def shares(documents: list[Document], seed: int) -> list[list[list[Document]]]:
    """For each connection its inserts, in order; a device stays with one connection, as devices do."""
    chance = random.Random(seed)
    queues: list[list[Document]] = [[] for _ in range(CONNECTIONS)]
    for document in documents:
        queues[document["device"]["id"] % CONNECTIONS].append(document)
    return [list(cut(queue, chance)) for queue in queues]


def cut(queue: list[Document], chance: random.Random) -> Iterator[list[Document]]:
    singles = int(len(queue) * SINGLES_SHARE)
    at = 0
    while at < len(queue):
        size = 1 if singles and chance.random() < 0.9 else chance.randint(2, 1_000)
        singles -= size == 1
        yield queue[at : at + size]
        at += size


async def write_async(client: Any, name: str, inserts: list[list[Document]]) -> None:
    points = client[name].points
    for documents in inserts:
        if len(documents) == 1:
            await points.insert_one(documents[0])
        else:
            await points.insert_many(documents, ordered=len(documents) % 2 == 0)


def write_sync(client: pymongo.MongoClient[Document], name: str, inserts: list[list[Document]]) -> None:
    points = client[name].points
    for documents in inserts:
        if len(documents) == 1:
            points.insert_one(documents[0])
        else:
            points.insert_many(documents, ordered=len(documents) % 2 == 0)


async def write_all(proxy: ProxyProcess, name: str, work: list[list[list[Document]]]) -> None:
    """A third of the connections by each client; the sync one from threads."""
    third = len(work) // 3
    with_sync, with_async, with_motor = work[:third], work[third : 2 * third], work[2 * third :]
    sync = proxy.client(maxPoolSize=len(with_sync))
    threads = [threading.Thread(target=write_sync, args=(sync, name, inserts)) for inserts in with_sync]
    for thread in threads:
        thread.start()
    motor: Any = AsyncIOMotorClient(proxy.uri, maxPoolSize=len(with_motor))
    async with pymongo.AsyncMongoClient[Document](proxy.uri, maxPoolSize=len(with_async)) as client:
        await asyncio.gather(
            *(write_async(client, name, inserts) for inserts in with_async),
            *(write_async(motor, name, inserts) for inserts in with_motor),
        )
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    motor.close()
    sync.close()


def rows_of(bucket: Document) -> Iterator[Document]:
    """The measurements of an uncompressed bucket document, read by its documented form (W3)."""
    columns = bucket["data"]
    for row in columns["t"]:
        measurement = {name: column[row] for name, column in columns.items() if row in column}
        yield {**measurement, "device": bucket["meta"]}


@pytest.mark.timeout(420)
async def test_every_measurement_is_found_exactly_once(
    proxy: ProxyProcess, mongod: MongodProcess, db_name: str
) -> None:
    documents = measurements(seed=1)
    expected = {document["_id"]: document for document in documents}
    with proxy.client() as client:
        client[db_name].create_collection("points", timeseries={"timeField": "t", "metaField": "device"})
    before = proxy.metrics()
    await write_all(proxy, db_name, shares(documents, seed=2))
    after = proxy.metrics()

    with proxy.client() as client:
        points = client[db_name].points
        found = 0
        for document in points.find():
            assert document == expected[document["_id"]]
            found += 1
        assert found == len(expected) == points.count_documents({})
        groups = points.aggregate([{"$group": {"_id": "$device.id", "n": {"$sum": 1}}}])
        assert {group["_id"]: group["n"] for group in groups} == dict.fromkeys(range(DEVICES), MEASUREMENTS // DEVICES)

    stored = mongod.shared_client[db_name]["system.buckets.points"]
    await asyncio.to_thread(wait_until_joined, stored)
    ids: Counter[int] = Counter()
    buckets = 0
    for bucket in stored.find():
        buckets += 1
        for row in rows_of(bucket):
            assert row == expected[row["_id"]]
            ids[row["_id"]] += 1
    assert len(ids) == len(expected)
    assert max(ids.values()) == 1
    assert buckets < 2 * DEVICES  # a device's half hour fits into one bucket; batches may meet its edge
    commands = after["tsproxy_commit_commands_total"] - before["tsproxy_commit_commands_total"]
    assert commands < MEASUREMENTS / 20
