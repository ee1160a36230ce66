"""Writers that keep books of what they were promised, and the count of what is really stored."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymongo
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.write_concern import WriteConcern

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

START = dt.datetime(2024, 5, 17, 12, 0, tzinfo=dt.UTC)
JOURNALED = WriteConcern(w=1, j=True)
"""A server that is killed loses what it had not journaled, acknowledged or not."""


_LASTING = ThreadPoolExecutor(1, "starter")


async def start_again(process: MongodProcess | ProxyProcess) -> None:
    """Start a killed process while the fleet goes on.

    From a thread that stays: a child process is ended with the thread that started it.
    """
    await asyncio.get_running_loop().run_in_executor(_LASTING, process.start)


class Fleet:
    """Many clients that each insert a few measurements at a time."""

    def __init__(
        self,
        uri: str,
        database: str,
        *,
        writers: int = 16,
        seed: int = 1,
        write_concern: WriteConcern = JOURNALED,
        payload: str = "",
        **options: Any,
    ) -> None:
        self.acknowledged: set[ObjectId] = set()
        self.in_doubt: set[ObjectId] = set()
        self.errors: Counter[str] = Counter()
        self.longest_seconds = 0.0
        self._uri = uri
        self._database = database
        self._writers = writers
        self._chance = random.Random(seed)
        self._write_concern = write_concern
        self._payload = payload
        self._options = {"serverSelectionTimeoutMS": 15_000, **options}
        self._stopped = asyncio.Event()

    async def run_during(self, events: Callable[[], Awaitable[None]]) -> None:
        """Write until ``events`` is over."""
        async with AsyncMongoClient[dict[str, Any]](self._uri, **self._options) as client:
            collection = client[self._database].get_collection("c", write_concern=self._write_concern)
            tasks = [asyncio.create_task(self._write(collection, number)) for number in range(self._writers)]
            try:
                await events()
            finally:
                self._stopped.set()
                await asyncio.gather(*tasks)

    async def until(self, count: int, timeout_seconds: float = 60) -> None:
        """Wait until ``count`` more measurements were acknowledged."""
        goal = len(self.acknowledged) + count
        async with asyncio.timeout(timeout_seconds):
            while len(self.acknowledged) < goal:  # noqa: ASYNC110 - many writers count
                await asyncio.sleep(0.01)

    async def _write(self, collection: AsyncCollection[dict[str, Any]], number: int) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopped.is_set():
            documents = [self._measurement(number) for _ in range(self._chance.choice((1, 1, 1, 3, 8)))]
            ordered = self._chance.random() < 0.5
            began = loop.time()
            acknowledged = await self._insert(collection, documents, ordered=ordered)
            self.longest_seconds = max(self.longest_seconds, loop.time() - began)
            ids = {document["_id"] for document in documents}
            self.acknowledged |= acknowledged
            self.in_doubt |= ids - acknowledged
            await asyncio.sleep(self._chance.random() * 0.01 if acknowledged else 0.05)

    async def _insert(
        self, collection: AsyncCollection[dict[str, Any]], documents: list[dict[str, Any]], *, ordered: bool
    ) -> set[ObjectId]:
        """The ids that the server vouches for."""
        ids = [document["_id"] for document in documents]
        try:
            if len(documents) == 1:
                await collection.insert_one(documents[0])
            else:
                await collection.insert_many(documents, ordered=ordered)
        except BulkWriteError as error:
            failed = {entry["index"] for entry in error.details["writeErrors"]}
            self.errors.update(f"write error {entry['code']}" for entry in error.details["writeErrors"])
            if error.details["writeConcernErrors"]:
                self.errors["write concern"] += 1
                return set()
            stop = min(failed, default=len(ids)) if ordered else len(ids)
            return {each for index, each in enumerate(ids) if index not in failed and index < stop}
        except PyMongoError as error:
            self.errors[type(error).__name__] += 1
            return set()
        return set(ids)

    def _measurement(self, number: int) -> dict[str, Any]:
        offset = dt.timedelta(seconds=self._chance.randrange(600), milliseconds=self._chance.randrange(1000))
        if self._chance.random() < 0.05:
            offset -= dt.timedelta(hours=2)
        measurement = {"_id": ObjectId(), "t": START + offset, "m": f"s{number % 7}", "v": self._chance.random()}
        if self._payload:
            measurement["payload"] = self._payload
        return measurement

    def check(self, server: pymongo.MongoClient[dict[str, Any]]) -> None:
        """Every acknowledged measurement once, every other at most once, counted in the buckets themselves."""
        stored = stored_ids(server, self._database)
        lost = self.acknowledged - stored.keys()
        doubled = {each for each, count in stored.items() if count > 1}
        unknown = stored.keys() - self.acknowledged - self.in_doubt
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} acknowledged measurements are lost: {self.errors}"
        assert not doubled, f"{len(doubled)} measurements are stored more than once: {self.errors}"
        assert not unknown
        read = Counter(each["_id"] for each in server[self._database].c.find({}, {"_id": 1}))
        assert read == stored, "the server reads its buckets otherwise"


UNPACK = {"$_internalUnpackBucket": {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}}


def stored_ids(server: pymongo.MongoClient[dict[str, Any]], database: str) -> Counter[ObjectId]:
    """How often each ``_id`` is in the buckets; checks that rows are numbered without holes on the way (W5)."""
    buckets = server[database]["system.buckets.c"]
    counts: Counter[ObjectId] = Counter()
    for bucket in buckets.find({}):
        if bucket["control"]["version"] == 1:
            rows = list(bucket["data"]["t"])
            assert rows == [str(row) for row in range(len(rows))], "holes in a bucket"
            assert list(bucket["data"]["_id"]) == rows
            counts.update(bucket["data"]["_id"].values())
        else:
            # Compressed (W6): the server knows how to read it.
            measurements = list(buckets.aggregate([{"$match": {"_id": bucket["_id"]}}, UNPACK]))
            assert len(measurements) == bucket["control"]["count"]
            counts.update(each["_id"] for each in measurements)
    return counts
