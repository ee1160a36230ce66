"""Implements the catalog's port ``BucketStore``: bucket documents in ``<db>.system.buckets.<coll>``."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.bson.raw import fields_of
from catalog.errors import INTERNAL_ERROR, CommandError
from catalog.kernel import Measurement
from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import PLACE_AT, PREFIX_BYTES, SEGMENT_AT
from proxy.backend.bucket_writes import BucketWrites
from proxy.backend.covering import MAX_SECONDS, covering_query
from proxy.backend.driver_calls import DriverCalls, DriverClient
from proxy.backend.parts.part_store import PartStore
from proxy.backend.row_search import RowSearch
from proxy.backend.service import ServicePool
from proxy.backend.write_concern_waits import WriteConcernWaits
from proxy.request.ports import Readers

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)

_INT64 = struct.Struct("<q").unpack_from


_ID_AS_TEXT: Final = {"$toString": "$_id"}
_START: Final = {"$substrBytes": [_ID_AS_TEXT, 0, 2 * SEGMENT_AT]}
_PLACE: Final = {"$substrBytes": [_ID_AS_TEXT, 2 * PLACE_AT, 2 * (PREFIX_BYTES - PLACE_AT)]}
"""The start and the place in the id of a bucket or part (``catalog.parts``), as hexadecimal digits."""


class MongoBucketStore:
    """``catalog.ports.BucketStore`` on a MongoDB server."""

    def __init__(
        self,
        pool: ServicePool,
        calls: DriverCalls,
        resolve: Callable[[VirtualCollection], Awaitable[VirtualCollection | None]],
        *,
        sends_uuid: bool,
        max_count: int,
        parts: PartStore,
        rows: RowSearch,
        waits: WriteConcernWaits | None = None,
        readers: Readers | None = None,
        closed: Callable[[Namespace], None] = lambda namespace: None,
    ) -> None:
        """``sends_uuid``: the backend supports ``collectionUUID`` (6.0).

        ``waits``: for replica sets. ``readers`` registers this object's own reads of buckets, if parts are joined.
        ``closed`` is called with a bucket namespace that the server refuses as such.
        """
        writes = BucketWrites(pool, sends_uuid=sends_uuid, begins=rows.writes, waits=waits, closed=closed)
        self.begin, self.insert, self.update = writes.begin, writes.insert, writes.update
        self.prepare_join, self.direct_writes = parts.prepare_join, parts.direct_writes
        self._readers = readers
        self._rows = rows
        self._calls = calls
        self._resolve = resolve
        self._max_count = max_count

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        query = {"_id": {"$in": [ObjectId(each) for each in bucket_ids]}}
        found = await self._find(collection, query, deadline_seconds)
        # Only the id is decoded: rows may contain values that the driver cannot decode.
        raw = [bytes(document.raw) for document in found]
        return {fields_of(each)[b"_id"][1:]: each for each in raw}

    async def stored_until_ms(self, collection: VirtualCollection, deadline_seconds: float) -> int:
        found = await self._find(
            collection, {}, deadline_seconds, projection={"control": 1}, sort=[("_id", -1)], limit=1
        )
        if not found:
            return -(1 << 63)
        inner = bytes(found[0].raw)
        try:
            for name in (b"control", b"min"):
                inner = fields_of(inner)[name][1:]
            start_ms: int = _INT64(fields_of(inner)[collection.options.time_field.encode()], 1)[0]
        except (KeyError, struct.error):
            # The collection was replaced by one with another time field, or somebody else has stored this.
            raise CommandError(INTERNAL_ERROR, "the latest bucket has no start") from None
        return start_ms

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        query = reopening_query(collection, wanted, self._max_count)
        return [bytes(document.raw) for document in await self._find(collection, query, deadline_seconds)]

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        since_seconds = since_ms // 1000
        if not 0 <= since_seconds <= MAX_SECONDS:
            return ()
        return await self._grouped(collection, ObjectId(since_seconds.to_bytes(4, "big") + bytes(8)), deadline_seconds)

    async def _grouped(
        self, collection: VirtualCollection, since: ObjectId, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        pipeline: list[dict[str, Any]] = [
            {"$match": {"_id": {"$gte": since}, "control.version": 1}},
            {"$group": {"_id": [_START, _PLACE, "$meta"], "ids": {"$push": "$_id"}}},
            {"$match": {"ids.1": {"$exists": True}}},
            # The meta value may be one that the driver cannot decode.
            {"$project": {"_id": 0}},
        ]
        left_seconds = max(deadline_seconds - asyncio.get_running_loop().time(), 0.05)

        async def request(client: DriverClient) -> list[dict[str, Any]]:
            buckets = client[collection.buckets.database][collection.buckets.collection]
            return await (await buckets.aggregate(pipeline, allowDiskUse=True)).to_list()

        found = await self._calls.ask(request, left_seconds, holds_data=True)
        return [sorted(identity.binary for identity in each["ids"]) for each in found]

    async def fetch_family(
        self, collection: VirtualCollection, bucket_id: bytes, prefixes: Sequence[bytes], deadline_seconds: float
    ) -> Sequence[bytes]:
        width = 12 - PREFIX_BYTES
        family: list[bytes] = []
        if not prefixes:
            start, place = bucket_id[:SEGMENT_AT], bucket_id[PLACE_AT:PREFIX_BYTES].hex()
            ids = {"$gte": ObjectId(start + bytes(8)), "$lte": ObjectId(start + b"\xff" * 8)}
            query = {"_id": ids, "$expr": {"$eq": [_PLACE, place]}}
            return [bytes(document.raw) for document in await self._find(collection, query, deadline_seconds)]
        # One by one, because a server scans everything between several ranges of a clustered collection. Rows are moved
        # to documents of later segments only, so a join meanwhile hides none.
        for prefix in prefixes:
            ids = {"$gte": ObjectId(prefix + bytes(width)), "$lte": ObjectId(prefix + b"\xff" * width)}
            family += [bytes(document.raw) for document in await self._find(collection, {"_id": ids}, deadline_seconds)]
        return family

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        # In this order: joins wait for what is registered as a reader.
        async with self._rows.turn(collection, deadline_seconds), self._reading(collection):
            return await self._rows.stored(collection, measurements, deadline_seconds)

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        async with self._rows.turn(collection, deadline_seconds), self._reading(collection):
            return await self._rows.earlier(
                collection, measurements, window_seconds, deadline_seconds, until_now=until_now
            )

    async def resolve(self, collection: VirtualCollection) -> VirtualCollection | None:
        return await self._resolve(collection)

    async def _find(
        self, collection: VirtualCollection, query: Mapping[str, Any], deadline_seconds: float, **options: Any
    ) -> list[RawBSONDocument]:
        async with self._reading(collection):
            return await self._found(collection, query, deadline_seconds, options)

    @asynccontextmanager
    async def _reading(self, collection: VirtualCollection) -> AsyncIterator[None]:
        """Register as a reader, so that the catalog's own reads find every row while parts are joined."""
        if self._readers is None:
            yield
            return
        reader = self._readers.of_rewritten(collection.namespace)
        assert reader is not None
        await reader.admitted()
        reader.enter()
        try:
            yield
        finally:
            reader.leave(b"")

    async def _found(
        self,
        collection: VirtualCollection,
        query: Mapping[str, Any],
        deadline_seconds: float,
        options: Mapping[str, Any],
    ) -> list[RawBSONDocument]:
        def request(client: DriverClient) -> Awaitable[list[RawBSONDocument]]:
            buckets = client[collection.buckets.database].get_collection(
                collection.buckets.collection, codec_options=RAW
            )
            return buckets.find(query, **options).to_list()

        left_seconds = max(deadline_seconds - asyncio.get_running_loop().time(), 0.05)
        return await self._calls.ask(request, left_seconds, holds_data=True)


def reopening_query(
    collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], max_count: int
) -> dict[str, Any]:
    """The query for buckets that may accept one of ``wanted`` (meta element, time in ms) (W50)."""
    query = {"control.version": 1, "control.closed": {"$ne": True}, **covering_query(collection, wanted)}
    field = collection.options.time_field
    if field and "." not in field and not field.startswith("$"):
        query[f"data.{field}.{max_count - 1}"] = {"$exists": False}
    return query
