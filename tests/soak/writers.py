"""Clients that write generated rows in every way a driver has, and tell the ledger what they were told."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pymongo
from bson import ObjectId
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient
from pymongo.errors import BulkWriteError, PyMongoError, WriteError
from pymongo.write_concern import WriteConcern

from tests.soak.ledger import Ledger, key_of
from tests.support.generated_rows import Row, Template, document, element, row, text
from tests.support.raw_rows import elements

START_MS = 1_714_521_600_000
SINGLE_ROWS = 200
ID_OF_ITS_OWN = b"\x07_id\0"
RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
MOST_BATCH_BYTES = 8_000_000
BUSY_METAS = 4


@dataclass
class Target:
    """One collection: its kinds of rows, its metas as clients send them, and what was told."""

    name: str
    options: dict[str, Any]
    templates: list[Template]
    metas: list[bytes]
    ledger: Ledger
    private: dict[int, list[bytes]]
    """Metas that one writer alone uses, deletes and changes."""


@dataclass
class Tally:
    """What the writers did."""

    inserts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    deletes: int = 0
    deleted: int = 0
    single_deletes: int = 0
    taken: int = 0
    updates: int = 0
    wrong: list[str] = field(default_factory=list)


class Writer:
    """One writer with a chance and a clock of its own."""

    def __init__(self, number: int, seed: str, targets: Sequence[Target], tally: Tally, *, equal_ids: bool) -> None:
        self.number = number
        self.chance = random.Random(f"{seed} {number}")
        self.targets = targets
        self.tally = tally
        self._equal_ids = equal_ids
        self._now_ms = {target.name: START_MS + number * 1000 for target in targets}
        self._tags = [number * 1000 + each for each in range(8)]
        self.single: deque[tuple[Target, int, Row]] = deque(maxlen=SINGLE_ROWS)
        """Acknowledged rows that no other one equals, with their tags."""

    def batch(self, target: Target, most: int) -> tuple[bytes, int, list[Row]]:
        """Rows of one meta and tag."""
        chance = self.chance
        private = chance.random() < 0.2
        metas = target.private[self.number] if private else target.metas
        # A few series get most rows, so that buckets get full, are joined and compressed.
        place = chance.randrange(len(metas) if chance.random() < 0.3 else min(BUSY_METAS, len(metas)))
        meta, tag = metas[place], chance.choice(self._tags)
        # As a rule a series keeps its form, else there would be few full buckets.
        kind = (
            target.templates[place % len(target.templates)]
            if chance.random() < 0.9
            else chance.choice(target.templates)
        )
        count, size = chance.choice((1, 1, 5, 20, 100, 300)), 0
        rows: list[Row] = []
        while len(rows) < min(count, most) and size < MOST_BATCH_BYTES:
            if rows and chance.random() < 0.01:
                # The same row again, to the last byte.
                rows.append(rows[-1])
                continue
            made = row(chance, kind, self._time(target), meta, tag, self._identity())
            rows.append(made)
            size += len(made.raw)
        return meta, tag, rows

    def _time(self, target: Target) -> int:
        chance = self.chance
        self._now_ms[target.name] += chance.choice((0, 1, 10, 1000, 1000, 20_000))
        kind = chance.random()
        if kind < 0.85:
            return self._now_ms[target.name]
        if kind < 0.98:
            return self._now_ms[target.name] - chance.choice((500, 30_000, 3_600_000, 50_000_000))
        return chance.choice(
            (-1, 0, -86_400_000 * 365 * 20, 2**31 * 1000 + 5, 2**32 * 1000 - 10_000, START_MS + 10**10)
        )

    def _identity(self) -> bytes:
        kind = self.chance.random() if self._equal_ids else 1.0
        if kind < 0.03:
            return element("_id", (2, text("device-1")))
        if kind < 0.04:
            return element("_id", (1, b"\0\0\0\0\0\0\xf8\x7f"))
        if kind < 0.05:
            return element("_id", (3, document(element("d", (0x10, b"\1\0\0\0")))))
        return element("_id", (7, ObjectId().binary))

    def settle(
        self, target: Target, meta: bytes, tag: int, rows: list[Row], error: Exception | None, *, ordered: bool
    ) -> None:
        """Tell the ledger what an insert came to."""
        self.tally.inserts += 1
        sure: list[Row] = rows if error is None else []
        if isinstance(error, BulkWriteError):
            details = error.details
            failed = {entry["index"] for entry in details["writeErrors"]}
            self.tally.refused.update(f"{entry['code']} {entry['errmsg'][:60]}" for entry in details["writeErrors"])
            stop = min(failed, default=len(rows)) if ordered else len(rows)
            if not details["writeConcernErrors"]:
                sure = [each for index, each in enumerate(rows) if index not in failed and index < stop]
        elif isinstance(error, WriteError):
            self.tally.refused[f"{error.code} {str(error)[:60]}"] += 1
        elif error is not None:
            self.tally.errors[type(error).__name__] += 1
        # The same row may be there twice.
        left, by_place = Counter(map(id, sure)), []
        for each in rows:
            if left[id(each)] > 0:
                left[id(each)] -= 1
            else:
                by_place.append(each)
        target.ledger.wrote(meta, tag, sure, by_place)
        for each in sure:
            # An ObjectId is of one row; its bytes may be those of another one of the same document.
            if each.raw.count(ID_OF_ITS_OWN) == 1 and Counter(map(id, rows))[id(each)] == 1:
                self.single.append((target, tag, each))
                break


class Threaded(threading.Thread):
    """A writer with a synchronous client: batches, deletes, changes of meta."""

    def __init__(self, writer: Writer, uri: str, database: str, concern: WriteConcern, options: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._writer = writer
        self._database = database
        self._concern = concern
        self._client: pymongo.MongoClient[Any] = pymongo.MongoClient(uri, **options)
        self._over = threading.Event()
        self._failures = 0
        self.is_quiet = False
        """Whether to write nothing for now."""

    def end(self) -> None:
        self._over.set()

    def run(self) -> None:
        try:
            with self._client:
                while not self._over.is_set():
                    if self.is_quiet:
                        self._over.wait(0.05)
                    else:
                        self._step()
        except Exception as error:  # noqa: BLE001 - the soak tells it at the end of the chapter
            self._writer.tally.wrong.append(f"a writer failed: {error!r}")

    def _step(self) -> None:
        writer = self._writer
        target = writer.chance.choice(writer.targets)
        collection = self._client[self._database].get_collection(target.name, write_concern=self._concern)
        kind = writer.chance.random()
        if kind < 0.006:
            self._delete_tag(target, collection)
        elif kind < 0.012:
            self._delete_meta(target, collection)
        elif kind < 0.042:
            self._change_meta(target, collection)
        elif kind < 0.08:
            self._remove_row(by_taking=kind < 0.06)
        else:
            self._insert(target, collection)

    def _insert(self, target: Target, collection: Any) -> None:
        writer = self._writer
        meta, tag, rows = writer.batch(target, 300)
        ordered = writer.chance.random() < 0.5
        error: Exception | None = None
        try:
            if len(rows) == 1:
                collection.insert_one(RawBSONDocument(rows[0].raw))
            else:
                collection.insert_many([RawBSONDocument(each.raw) for each in rows], ordered=ordered)
        except PyMongoError as failed:
            error = failed
            if not isinstance(failed, BulkWriteError):
                self._over.wait(0.05)
        writer.settle(target, meta, tag, rows, error, ordered=ordered)

    def _insist(self, work: Any) -> Any:
        """Again and again, as what is done here may be done twice."""
        self._failures = 0
        while True:
            try:
                return work()
            except PyMongoError as error:
                self._failures += 1
                self._writer.tally.errors[type(error).__name__] += 1
                time.sleep(0.05)

    def _delete_tag(self, target: Target, collection: Any) -> None:
        tag = self._writer.number * 1000 + self._writer.chance.randrange(8)
        self._insist(lambda: collection.delete_many({"tag": tag}))
        self._writer.tally.deletes += 1
        self._writer.tally.deleted += target.ledger.deleted(tag=tag)

    def _delete_meta(self, target: Target, collection: Any) -> None:
        meta = self._writer.chance.choice(target.private[self._writer.number])
        value = RawBSONDocument(document(meta))
        self._insist(lambda: collection.delete_many(value))
        self._writer.tally.deletes += 1
        self._writer.tally.deleted += target.ledger.deleted(meta=meta)

    def _remove_row(self, *, by_taking: bool) -> None:
        """One row by its id, with ``deleteOne`` or ``findAndModify``; what is done twice finds nothing then."""
        writer = self._writer
        if not writer.single:
            return
        place = writer.chance.randrange(len(writer.single))
        target, tag, row = writer.single[place]
        del writer.single[place]
        collection = self._client[self._database].get_collection(target.name, RAW, write_concern=self._concern)
        query = RawBSONDocument(document(*(each for name, each in elements(row.raw) if name in (b"_id", b"t"))))
        if by_taking:
            found = self._insist(lambda: collection.find_one_and_delete(query))
            count = int(found is not None)
            if found is not None and key_of(bytes(found.raw))[1] != row.digest:
                writer.tally.wrong.append(f"findAndModify returned another row: {row.raw.hex()} {found.raw.hex()}")
            writer.tally.taken += count
        else:
            count = self._insist(lambda: collection.delete_one(query)).deleted_count
            writer.tally.single_deletes += count
        was_there = target.ledger.deleted_row(tag, row.digest)
        if count != was_there and not (was_there and self._failures):
            writer.tally.wrong.append(f"{count} rows removed of {int(was_there)}: {row.raw.hex()}")

    def _change_meta(self, target: Target, collection: Any) -> None:
        if "metaField" not in target.options:
            return
        old, new = self._writer.chance.sample(target.private[self._writer.number], 2)
        query = RawBSONDocument(document(old))
        change = {"$set": RawBSONDocument(document(new))}
        self._insist(lambda: collection.update_many(query, change))
        self._writer.tally.updates += 1
        target.ledger.moved(old, new)


class Crowd(threading.Thread):
    """Many small clients on one event loop that insert a row at a time."""

    def __init__(self, writers: Sequence[Writer], uri: str, database: str, concern: WriteConcern) -> None:
        super().__init__(daemon=True)
        self._writers = writers
        self._uri = uri
        self._database = database
        self._concern = concern
        self._over = False
        self.is_quiet = False

    def end(self) -> None:
        self._over = True

    def run(self) -> None:
        try:
            asyncio.run(self._all())
        except Exception as error:  # noqa: BLE001
            self._writers[0].tally.wrong.append(f"the crowd failed: {error!r}")

    async def _all(self) -> None:
        options: dict[str, Any] = {"serverSelectionTimeoutMS": 8000, "socketTimeoutMS": 20_000, "compressors": "zlib"}
        async with AsyncMongoClient[Any](self._uri, **options) as client:
            await asyncio.gather(*(self._write(client, writer) for writer in self._writers))

    async def _write(self, client: AsyncMongoClient[Any], writer: Writer) -> None:
        while not self._over:
            if self.is_quiet:
                await asyncio.sleep(0.05)
                continue
            target = writer.chance.choice(writer.targets)
            collection = client[self._database].get_collection(target.name, write_concern=self._concern)
            meta, tag, rows = writer.batch(target, 1)
            error: Exception | None = None
            try:
                await collection.insert_one(RawBSONDocument(rows[0].raw))
            except PyMongoError as failed:
                error = failed
                await asyncio.sleep(0.05)
            writer.settle(target, meta, tag, rows, error, ordered=True)
