"""A collection in parts on a real server, and the store that joins them while others write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from bson import ObjectId, decode
from pymongo.collection import Collection

from catalog.background.replacing import Differs
from catalog.kernel.compression import compressed
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import IdRange, id_of, join
from catalog.ports import PreparedJoin, Span
from proxy.backend.parts.part_store import PartStore
from proxy.backend.service import ServicePool
from tests.support.mongod import MongodProcess

START = datetime(2024, 1, 1, tzinfo=UTC)
OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)

Ids = Sequence[ObjectId]
Others = Callable[[Collection[Any], Ids], object]


def part_id(segment: int, place: int, counter: int) -> ObjectId:
    """The id of a part of a bucket that begins at ``START``."""
    suffix = segment.to_bytes(2, "big") + place.to_bytes(3, "big") + counter.to_bytes(3, "big")
    return ObjectId(int(START.timestamp()).to_bytes(4, "big") + suffix)


TOGETHER = [part_id(1, 500, counter) for counter in range(3)]
APART = [part_id(segment, 500, counter) for segment, counter in ((1, 0), (2, 4), (2, 5))]
"""Three parts of one bucket, in one segment and in two."""


def part(number: int, rows: int = 1, meta: object = "a", **more: object) -> dict[str, Any]:
    """The rows of a bucket's part with this number, as a bucket without an id."""
    times = [START + timedelta(seconds=10 * number + row) for row in range(rows)]
    least = {"t": START, "v": number, **more}
    return {
        "control": {"version": 1, "min": least, "max": {**least, "t": times[-1]}, "closed": True},
        "meta": meta,
        "data": {
            "t": {str(row): time for row, time in enumerate(times)},
            **{name: {str(row): value for row in range(rows)} for name, value in {"v": number, **more}.items()},
        },
    }


def three_parts(ids: Ids, **fields: Any) -> list[dict[str, Any]]:
    return [{"_id": each, **part(number, **fields)} for number, each in enumerate(ids)]


NINE = [part_id(1, 500 + each // 3, each % 3) for each in range(9)]
"""Parts of three buckets."""


def nine_parts() -> list[dict[str, Any]]:
    return [{**part(number % 3, meta=number // 3), "_id": NINE[number]} for number in range(9)]


def packed(joined: bytes) -> bytes:
    """Its compressed form."""
    smaller = compressed(joined, b"t")
    assert smaller is not None
    return smaller


def differing(joined: bytes) -> bytes:
    """It is found to be wrong."""
    raise Differs("a bucket that does not hold its parts")


class ListeningPool:
    """A ``ServicePool`` that keeps the commands that were sent."""

    def __init__(self, server: MongodProcess) -> None:
        async def primary(_: float) -> tuple[str, int]:
            return "127.0.0.1", server.port

        self._pool = ServicePool(primary, None, None, 5.0)
        self.close = self._pool.close
        self.forget_primary = self._pool.forget_primary
        self.sent: list[dict[str, Any]] = []

    async def request(
        self, body: bytes, deadline_seconds: float, identifier: str = "", documents: Sequence[bytes] = ()
    ) -> bytes:
        self.sent.append({**decode(body), **({identifier: list(documents)} if identifier else {})})
        return await self._pool.request(body, deadline_seconds, identifier, documents)

    def statements(self, command: str, name: str) -> list[Any]:
        """Of all commands of this kind the statements, which they have in the field ``name``."""
        return [each for body in self.sent if command in body for each in body[name]]


class Case:
    """A collection in parts; ``ids``: those of the parts of the one bucket that is joined while others write."""

    def __init__(self, server: MongodProcess, database: str, *, sealed: bool, alone: bool, ids: Ids = TOGETHER) -> None:
        client = server.shared_client
        client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        (entry,) = client[database].list_collections(filter={"name": "system.buckets.c"})
        uuid = entry["info"]["uuid"]
        self.collection = VirtualCollection(Namespace(database, "c"), OPTIONS, bytes(uuid))
        self.buckets = client[database]["system.buckets.c"]
        self.pool = ListeningPool(server)
        self.ids = ids
        self.sealed = sealed
        """Whether the server has no transactions, so that parts are closed."""
        self.is_alone = alone
        self.parts = PartStore(cast(Any, self.pool), transactions=not sealed, alone=lambda: self.is_alone)
        self.direct_writes = self.parts.direct_writes

    def store(self, *documents: dict[str, Any]) -> None:
        """Store these parts, as they are."""
        self.buckets.insert_many(list(documents), bypass_document_validation=True)

    async def joined_while(self, others: Others, parts: Sequence[dict[str, Any]], *, late: bool = False) -> int | None:
        """Join while ``others`` write: after the parts were read, or if ``late``, after the join was prepared."""
        if parts:
            self.store(*({"_id": each, **one} for each, one in zip(self.ids, parts, strict=True)))

        def merge(documents: Sequence[bytes]) -> bytes:
            if not late:
                others(self.buckets, self.ids)
            return join(documents, id_of(documents[-1]), b"t", b"m")

        span = Span(ranges_of(self.ids), merge, [self.ids[0].binary])
        prepared = await self.parts.prepare_join(self.collection, [span], 1e9)
        if late:
            others(self.buckets, self.ids)
        await prepared.commit()
        return counts_of(prepared)[0]

    async def prepared(
        self, buckets: Sequence[Ids], made: Callable[[bytes], bytes] = lambda joined: joined
    ) -> PreparedJoin:
        """Joins of the parts with these ids, bucket by bucket; ``made``: what becomes of each joined document."""

        def merge(documents: Sequence[bytes]) -> bytes:
            return made(join(documents, id_of(documents[-1]), b"t", b"m"))

        spans = [Span(ranges_of(ids), merge, [ids[0].binary]) for ids in buckets]
        return await self.parts.prepare_join(self.collection, spans, 1e9)

    async def joined_side_by_side(
        self, buckets: Sequence[Ids], made: Callable[[bytes], bytes] = lambda joined: joined
    ) -> Sequence[int | None]:
        """As ``prepared``, and committed at once."""
        prepared = await self.prepared(buckets, made)
        await prepared.commit()
        return counts_of(prepared)

    def rows(self) -> list[Any]:
        """What every reader sees."""
        view = self.buckets.database["c"]
        return [(each["m"], each["v"]) for each in view.find({}, sort=[("v", 1)])]

    def left(self) -> list[ObjectId]:
        """The ids of the stored documents."""
        return [each["_id"] for each in self.buckets.find({}, {"_id": 1}, sort=[("_id", 1)])]

    def raw(self, ids: Ids) -> list[bytes]:
        """These documents as they are stored."""
        return [bytes(next(self.buckets.find_raw_batches({"_id": each}))) for each in ids]


def counts_of(prepared: PreparedJoin) -> list[int | None]:
    """How many documents of each bucket were found."""
    return [found and found.documents for found in prepared.found]


def ranges_of(ids: Ids) -> list[IdRange]:
    """Neighbours in one segment are a range."""
    ranges: list[IdRange] = []
    for each in (one.binary for one in ids):
        if ranges and ranges[-1].last_id[:9] == each[:9]:
            ranges[-1] = ranges[-1].up_to(each)
        else:
            ranges.append(IdRange(each, each, 1))
    return ranges
