"""Finds stored rows that equal given measurements, now or at an earlier time (W102).

The server unpacks the buckets, also compressed ones. Earlier states are read from its history: on replica sets and
clusters, a read can specify the time of its snapshot.

https://www.mongodb.com/docs/v6.0/reference/read-concern-snapshot/#read-concern-and-atclustertime
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from catalog.bson import raw
from catalog.bson.codec import decode, encode
from catalog.commit.rows import digest_of, digest_of_stored
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.namespaces import Namespace, VirtualCollection
from proxy.backend import service_retry
from proxy.backend.covering import covering_query
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LostAfterSending
from proxy.request.step_places import StepPlaces
from proxy.upstream.not_primary import NOT_PRIMARY_CODES
from rewrite.stages.draft import INHIBITS

ROWS_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 1024 * 1024
"""Maximum size of ids and meta values in one query."""

SNAPSHOT_TOO_OLD: Final = 239
SNAPSHOT_UNAVAILABLE: Final = 246
NO_HISTORY: Final = frozenset({SNAPSHOT_TOO_OLD, SNAPSHOT_UNAVAILABLE})
"""Error codes if the server no longer has the state at that time, or its catalog has changed since."""

CURSOR_NOT_FOUND: Final = 43
CURSOR_LOST: Final = NOT_PRIMARY_CODES | {CURSOR_NOT_FOUND}
_PAUSE_SECONDS: Final = 0.05

HISTORY_MS: Final = 2_000
"""How long a read of an earlier state may wait for a majority."""

MOMENTS_LIMIT: Final = 10_000
_SCALARS: Final = frozenset({raw.DOUBLE, raw.STRING, raw.OBJECT_ID, raw.BOOL, raw.DATE, raw.INT32, raw.INT64})
_TIMESTAMP: Final = 0x11


_Key = tuple[Namespace, bytes]
"""A collection by name and UUID, which take less memory than all that is known of it."""


def _key(collection: VirtualCollection) -> _Key:
    return collection.namespace, collection.uuid


class RowSearch:
    """Searches rows over service connections, on the primary."""

    def __init__(
        self, pool: ServicePool, started: Timestamp | None, places: StepPlaces, *, on_buckets: bool = True
    ) -> None:
        """``started``: the backend's time before this process wrote anything; ``None`` if it reports none.

        ``places`` limits the searches of all databases and of one. ``on_buckets``: whether buckets are read, or the
        collection itself.
        """
        self._places = places
        self._on_buckets = on_buckets
        self._pool = pool
        self._started = started
        self._before: dict[_Key, Timestamp] = {}
        """The latest known moment before this process wrote to a collection."""
        self._written: set[_Key] = set()

    def writes(self, collection: VirtualCollection) -> None:
        """Record that this process begins to write to the collection."""
        if len(self._written) < MOMENTS_LIMIT:
            self._written.add(_key(collection))

    @asynccontextmanager
    async def turn(self, collection: VirtualCollection, deadline_seconds: float) -> AsyncIterator[None]:
        """Wait until a search may begin, which ends inside the context; raises ``BackendUnavailable``.

        A search unpacks all buckets that may hold the rows, and the first statement of any session may cause one, so
        the databases take turns.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(deadline_seconds):
                    await stack.enter_async_context(self._places.place(collection.namespace.database))
            except TimeoutError:
                raise _too_late(collection) from None
            yield

    async def stored(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Counter[bytes]:
        """The number of equal rows that are stored now, by digest; raises ``CommandError``."""
        rows, at = await self._find(collection, measurements, deadline_seconds, {})
        if at is not None and _key(collection) not in self._written and len(self._before) < MOMENTS_LIMIT:
            self._before.setdefault(_key(collection), at)
        return rows

    async def earlier(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Counter[bytes]:
        """The rows that were stored in the ``window_seconds`` before this process wrote anything, or ``until_now``.

        If the server's history does not reach back to the end of this window, there are none; if it does not reach
        back to its beginning, all rows that were stored at its end count. Raises ``CommandError``.
        """
        if self._started is None:
            return await self.stored(collection, measurements, deadline_seconds)
        if until_now:
            there, now = await self._find(collection, measurements, deadline_seconds, {})
            if not there or now is None:
                return there
            window_ago = Timestamp(max(now.time - int(window_seconds), 1), 1)
            return there - await self._at(collection, measurements, window_ago, deadline_seconds)
        begun = self._before.get(_key(collection), self._started)
        long_before = Timestamp(max(self._started.time - int(window_seconds), 1), 1)
        there = await self._at(collection, measurements, begun, deadline_seconds)
        if not there:
            return there
        return there - await self._at(collection, measurements, long_before, deadline_seconds)

    async def _at(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        time: Timestamp,
        deadline_seconds: float,
    ) -> Counter[bytes]:
        concern = {"readConcern": {"level": "snapshot", "atClusterTime": time}, "maxTimeMS": HISTORY_MS}
        try:
            return (await self._find(collection, measurements, deadline_seconds, concern))[0]
        except CommandError as error:
            if error.code in NO_HISTORY:
                return Counter()
            raise

    async def _find(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        deadline_seconds: float,
        options: Mapping[str, Any],
    ) -> tuple[Counter[bytes], Timestamp | None]:
        """The number of equal rows, and the backend's time of the first query."""
        meta = collection.options.meta_field
        meta_field = None if meta is None else meta.encode()
        wanted = {digest_of(measurement) for measurement in measurements}
        rows: Counter[bytes] = Counter()
        first: Timestamp | None = None
        # Two queries may cover the same bucket, but each returns the rows of its own measurements only.
        for part in _parts(measurements):
            asked = wanted & {digest_of(measurement) for measurement in part}
            found, time = await self._find_part(
                collection, self._query_of(collection, part, options), meta_field, asked, deadline_seconds
            )
            rows += found
            first = first or time
        return rows, first

    async def _find_part(
        self,
        collection: VirtualCollection,
        query: Mapping[str, Any],
        meta_field: bytes | None,
        asked: AbstractSet[bytes],
        deadline_seconds: float,
    ) -> tuple[Counter[bytes], Timestamp | None]:
        """The rows of one query among those asked for. Starts again if the cursor is lost with the primary."""
        while True:
            rows: Counter[bytes] = Counter()
            reply = await self._request(collection, query, deadline_seconds)
            time = time_of(reply)
            self._pool.family.times.hear_raw(reply)
            try:
                while True:
                    cursor = raw.fields_of(raw.fields_of(reply)[b"cursor"], 1)
                    batch = cursor.get(b"firstBatch", cursor.get(b"nextBatch", b"\x04\x05\0\0\0\0"))
                    digests = (digest_of_stored(row, meta_field) for row in raw.documents_of(batch, 1))
                    rows.update(digest for digest in digests if digest in asked)
                    cursor_id = raw.unpack_int64(cursor[b"id"], 1)[0]
                    if not cursor_id:
                        return rows, time
                    read = collection.buckets if self._on_buckets else collection.namespace
                    more = {"getMore": Int64(cursor_id), "collection": read.collection, "$db": read.database}
                    reply = await self._request(collection, more, deadline_seconds)
            except LostAfterSending:
                pass
            except CommandError as error:
                if error.code not in CURSOR_LOST:
                    raise
            if asyncio.get_running_loop().time() >= deadline_seconds:
                raise _too_late(collection)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _request(self, collection: VirtualCollection, body: Mapping[str, Any], deadline_seconds: float) -> bytes:
        reply = await service_retry.request(self._pool, body, deadline_seconds)
        if b"cursor" not in raw.fields_of(reply):
            said = decode(reply)
            code = int(said.get("code", 1))
            raise CommandError(code, f"the stored rows of {collection.namespace} could not be read (error {code})")
        return reply

    def _query_of(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        if self._on_buckets:
            return self._query(collection, measurements, options)
        return {
            "aggregate": collection.namespace.collection,
            "pipeline": [{"$match": _times(collection, measurements)}, {"$match": _same_ids(measurements)}],
            "cursor": {"batchSize": 100_000},
            **options,
            "$db": collection.namespace.database,
        }

    @staticmethod
    def _query(
        collection: VirtualCollection, measurements: Sequence[Measurement], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        timeseries = collection.options
        unpack: dict[str, Any] = {
            "timeField": timeseries.time_field,
            "bucketMaxSpanSeconds": timeseries.max_span_seconds,
        }
        if timeseries.meta_field is not None:
            unpack["metaField"] = timeseries.meta_field
        covering = covering_query(collection, [(each.meta, each.time_ms) for each in measurements])
        field = timeseries.time_field
        if field and "." not in field and not field.startswith("$"):
            covering[f"control.max.{field}"] = {"$gte": DatetimeMS(min(each.time_ms for each in measurements))}
            covering[f"control.min.{field}"] = {"$lte": DatetimeMS(max(each.time_ms for each in measurements))}
        return {
            "aggregate": collection.buckets.collection,
            "pipeline": [
                {"$match": covering},
                {"$_internalUnpackBucket": unpack},
                # The following stages must see whole rows.
                INHIBITS,
                {"$match": _same_ids(measurements)},
            ],
            "cursor": {"batchSize": 100_000},
            **options,
            "$db": collection.buckets.database,
        }


def _too_late(collection: VirtualCollection) -> BackendUnavailable:
    return BackendUnavailable(f"the stored rows of {collection.namespace} could not be read in time")


def _times(collection: VirtualCollection, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The times between which the measurements are, and one series if they are of one."""
    field = collection.options.time_field
    if not field or "." in field or field.startswith("$"):
        return {}
    times = [each.time_ms for each in measurements]
    return {field: {"$gte": DatetimeMS(min(times)), "$lte": DatetimeMS(max(times))}}


def _parts(measurements: Sequence[Measurement]) -> Iterator[list[Measurement]]:
    """Each row once, in groups that fit into one query."""
    part: list[Measurement] = []
    size_bytes = 0
    seen: set[bytes] = set()
    # In the order of time, so that each query covers few buckets.
    for measurement in sorted(measurements, key=lambda each: each.time_ms):
        digest = digest_of(measurement)
        if digest in seen:
            continue
        seen.add(digest)
        part.append(measurement)
        size_bytes += len(measurement.meta) + len(measurement.columns.get(b"_id", b""))
        if len(part) >= ROWS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


def _same_ids(measurements: Sequence[Measurement]) -> RawBSONDocument:
    """A query that matches every row with the ``_id`` of one of these measurements, and possibly others."""
    ids = list(dict.fromkeys(each.columns.get(b"_id", b"\x0a") for each in measurements))
    if not _SCALARS.issuperset(each[0] for each in ids):
        return RawBSONDocument(encode({}))
    return RawBSONDocument(raw.document([raw.sub_document(b"_id", [raw.sub_array(b"$in", ids)])]))


def time_of(reply: bytes) -> Timestamp | None:
    """The backend's operation time in a reply; ``None`` from a standalone."""
    value = raw.fields_of(reply).get(b"operationTime", b"\0")
    if value[0] != _TIMESTAMP:
        return None
    return Timestamp(int.from_bytes(value[5:9], "little"), int.from_bytes(value[1:5], "little"))
