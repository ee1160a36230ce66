"""Clients that write, delete and change measurements, and keep books of what they were promised."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymongo
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.write_concern import WriteConcern

from tests.support.books import Books, measurement_of, new_id
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

JOURNALED = WriteConcern(w=1, j=True)
"""A server that is killed loses what it had not journaled, acknowledged or not."""

SERIES = 7
DELETED = (1, 1, 5, 30)
"""So many measurements are deleted at once; one of them alone by ``deleteOne``, which drivers retry."""
PAUSE_SECONDS = 0.05
"""Between two deletes, or two changes of meta values."""

_LASTING = ThreadPoolExecutor(1, "starter")


async def start_again(process: MongodProcess | ProxyProcess) -> None:
    """Start a killed process while the fleet goes on.

    From a thread that stays: a child process is ended with the thread that started it.
    """
    await asyncio.get_running_loop().run_in_executor(_LASTING, process.start)


class Fleet:
    """Many clients that each insert a few measurements at a time.

    ``erasers`` of them delete measurements that were acknowledged; ``movers`` change the meta values of series, and
    change them back.
    """

    def __init__(
        self,
        uri: str,
        database: str,
        *,
        writers: int = 16,
        erasers: int = 0,
        movers: int = 0,
        seed: int = 1,
        write_concern: WriteConcern = JOURNALED,
        payload: bytes | str = "",
        **options: Any,
    ) -> None:
        self.books = Books(payload=payload)
        self._uri = uri
        self._database = database
        self._writers = writers
        self._erasers = erasers
        self._movers = movers
        self._chance = random.Random(seed)
        self._write_concern = write_concern
        self._options = {"serverSelectionTimeoutMS": 15_000, **options}
        self._stopped = asyncio.Event()

    async def run_during(self, events: Callable[[], Awaitable[None]]) -> None:
        """Write until ``events`` is over."""
        async with AsyncMongoClient[dict[str, Any]](self._uri, **self._options) as client:
            collection = client[self._database].get_collection("c", write_concern=self._write_concern)
            tasks = [asyncio.create_task(self._write(collection, number)) for number in range(self._writers)]
            tasks += [asyncio.create_task(self._erase(collection)) for _ in range(self._erasers)]
            tasks += [asyncio.create_task(self._move(collection)) for _ in range(self._movers)]
            try:
                await events()
            finally:
                self._stopped.set()
                await asyncio.gather(*tasks)

    async def until(self, count: int, timeout_seconds: float = 60) -> None:
        """Wait until ``count`` more measurements were acknowledged."""
        goal = len(self.books.acknowledged) + count
        async with asyncio.timeout(timeout_seconds):
            while len(self.books.acknowledged) < goal:  # noqa: ASYNC110 - many writers count
                await asyncio.sleep(0.01)

    async def _write(self, collection: AsyncCollection[dict[str, Any]], number: int) -> None:
        books, loop = self.books, asyncio.get_running_loop()
        while not self._stopped.is_set():
            count = self._chance.choice((1, 1, 1, 3, 8))
            documents = [measurement_of(new_id(number % SERIES), books.payload) for _ in range(count)]
            ordered = self._chance.random() < 0.5
            began = loop.time()
            acknowledged = await self._insert(collection, documents, ordered=ordered)
            books.longest_seconds = max(books.longest_seconds, loop.time() - began)
            ids = {document["_id"] for document in documents}
            books.acknowledged |= acknowledged
            books.in_doubt |= ids - acknowledged
            await asyncio.sleep(self._chance.random() * 0.01 if acknowledged else 0.05)

    async def _erase(self, collection: AsyncCollection[dict[str, Any]]) -> None:
        """Delete measurements of any age: of those that were written at the same moment, only some."""
        books = self.books
        while not self._stopped.is_set():
            await asyncio.sleep(PAUSE_SECONDS * self._chance.random())
            there = list(books.acknowledged - books.deleted - books.perhaps_deleted)
            if not there:
                continue
            chosen = set(self._chance.sample(there, min(self._chance.choice(DELETED), len(there))))
            books.perhaps_deleted |= chosen
            try:
                if len(chosen) == 1:
                    await collection.delete_one({"_id": next(iter(chosen))})
                else:
                    await collection.delete_many({"_id": {"$in": list(chosen)}})
            except PyMongoError as error:
                books.errors[f"delete: {_kind(error)}"] += 1
                continue
            books.deleted |= chosen
            books.perhaps_deleted -= chosen

    async def _move(self, collection: AsyncCollection[dict[str, Any]]) -> None:
        """Change the meta value of a series, so that the next measurement of it finds another bucket (U6)."""
        while not self._stopped.is_set():
            await asyncio.sleep(PAUSE_SECONDS * self._chance.random())
            series, letters = self._chance.randrange(SERIES), self._chance.choice(("st", "ts", "tu"))
            old, new = (f"{letter}{series}" for letter in letters)
            try:
                await collection.update_many({"m": old}, {"$set": {"m": new}})
            except PyMongoError as error:
                self.books.errors[f"update: {_kind(error)}"] += 1

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
            self.books.errors.update(f"write error {entry['code']}" for entry in error.details["writeErrors"])
            if error.details["writeConcernErrors"]:
                self.books.errors["write concern"] += 1
                return set()
            stop = min(failed, default=len(ids)) if ordered else len(ids)
            return {each for index, each in enumerate(ids) if index not in failed and index < stop}
        except PyMongoError as error:
            self.books.errors[_kind(error)] += 1
            return set()
        return set(ids)

    def check(self, server: pymongo.MongoClient[dict[str, Any]]) -> None:
        """Of all that was promised, after the end; see ``Books``."""
        self.books.check(server, self._database)


def _kind(error: PyMongoError) -> str:
    details = getattr(error, "details", None) or {}
    return f"{type(error).__name__} {details.get('code', '')} {details.get('errmsg', '')[:80]}".strip()
