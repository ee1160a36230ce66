"""Collections and their open buckets as admin commands see them: the actions ``collections`` and ``buckets``.

A collection may have a million series, so they are looked at a few thousand in a turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import bson
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.bson.codec import TOLERANT
from catalog.buckets.open_bucket import Bucket, CollectionBuckets, Series
from catalog.catalog import BucketCatalog
from catalog.errors import NAMESPACE_NOT_FOUND, UNAUTHORIZED, CommandError
from catalog.kernel import parse_measurement
from catalog.namespaces import Namespace, VirtualCollection
from proxy.admin.arguments import Call
from proxy.admin.handler import Action
from proxy.admin.rights import AdminRights
from proxy.admin.table import USUAL_ENTRIES

LOOKED_AT_ONCE: Final = 2_000
"""Series that are looked at in one turn of the event loop."""
MOST_META_BYTES: Final = 4_096
"""Longer meta values are not shown."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Known(Protocol):
    """The time-series collections that the proxy has heard of (``proxy.backend.namespace_registry``)."""

    def known(self) -> Collection[VirtualCollection]:
        """Those in memory."""
        ...

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        """The collection of this name, asking the backend if needed; raises ``CommandError``."""
        ...


def buckets_of(series: Series) -> list[Bucket]:
    """The open buckets of a series: the current one first, then those that only late measurements go to."""
    return [*([series.current] if series.current is not None else []), *series.archived]


async def each_series(buckets: CollectionBuckets) -> AsyncIterator[Series]:
    """The series of a collection; other clients get their turns in between."""
    for position, series in enumerate(list(buckets.series.values())):
        if position and not position % LOOKED_AT_ONCE:
            await asyncio.sleep(0)
        yield series


class Open:
    """Finds the open buckets that a command is about."""

    def __init__(self, catalog: BucketCatalog, known: Known, rights: AdminRights) -> None:
        self._catalog = catalog
        self._known = known
        self._rights = rights

    async def collection(self, call: Call) -> CollectionBuckets | None:
        """The collection of the field ``collection``; ``None`` if nothing was written to it.

        Raises ``CommandError`` if it is no time-series collection.
        """
        namespace = call.namespace
        found = [each for each in self._catalog.collections() if each.collection.namespace == namespace]
        if found:
            return found[0]
        if await self._known.resolve(namespace) is None:
            raise CommandError(NAMESPACE_NOT_FOUND, f"'{namespace}' is not a time-series collection")
        return None

    async def shows_meta(self, call: Call) -> bool:
        """Whether the client may see meta values; raises ``CommandError`` if it asks for one and may not."""
        allowed = await self._rights.may_find(call.session, call.namespace)
        if not allowed and "meta" in call.fields:
            raise CommandError(UNAUTHORIZED, f"the field 'meta' requires find on {call.namespace}")
        return allowed

    async def series(self, call: Call, buckets: CollectionBuckets) -> AsyncIterator[Series]:
        """The series of the collection, or the one of the field ``meta``."""
        wanted = call.fields.get("meta")
        if wanted is None:
            async for each in each_series(buckets):
                yield each
        elif (found := buckets.series.get(meta_key(buckets, wanted))) is not None:
            yield found


class CatalogViews:
    """The actions that only look."""

    def __init__(self, catalog: BucketCatalog, known: Known, opened: Open) -> None:
        self._catalog = catalog
        self._known = known
        self._open = opened

    @property
    def actions(self) -> Mapping[str, Action]:
        """The actions by name."""
        return {"collections": self._collections, "buckets": self._buckets}

    async def _collections(self, call: Call) -> Mapping[str, Any]:
        database = call.fields.get("database")
        used = {each.collection.namespace: each for each in self._catalog.collections()}
        names = {*used, *(each.namespace for each in self._known.known())}
        wanted = sorted(name for name in names if database in (None, name.database))
        parts = await self._waiting_parts()
        shown = [
            {"collection": str(name), **(await _summary(used[name]) if name in used else {}), "parts": parts[name]}
            for name in wanted[: int(call.number("limit", USUAL_ENTRIES))]
        ]
        return {"collections": shown, "total": len(wanted)}

    async def _waiting_parts(self) -> Counter[Namespace]:
        """The number of parts that are not joined yet, by collection."""
        found: Counter[Namespace] = Counter()
        for position, bucket in enumerate(list(self._catalog.growth.parted)):
            if position and not position % LOOKED_AT_ONCE:
                await asyncio.sleep(0)
            if bucket.parts is not None:
                found[bucket.series.collection.collection.namespace] += bucket.parts.stored - 1
        return found

    async def _buckets(self, call: Call) -> Mapping[str, Any]:
        limit = int(call.number("limit", USUAL_ENTRIES))
        shows_meta = await self._open.shows_meta(call)
        buckets = await self._open.collection(call)
        shown: list[dict[str, Any]] = []
        total = 0
        if buckets is not None:
            async for series in self._open.series(call, buckets):
                for bucket in buckets_of(series):
                    total += 1
                    if len(shown) < limit:
                        shown.append(_described(bucket, shows_meta=shows_meta))
        return {"collection": str(call.namespace), "buckets": shown, "total": total}


async def _summary(buckets: CollectionBuckets) -> dict[str, Any]:
    opened = rows = uncommitted = size_bytes = 0
    async for series in each_series(buckets):
        for bucket in buckets_of(series):
            opened += 1
            rows += bucket.state.rows
            uncommitted += bucket.state.rows - bucket.state.committed_rows
            size_bytes += bucket.memory_bytes
    return {
        "series": len(buckets.series),
        "openBuckets": opened,
        "rows": rows,
        "uncommittedRows": uncommitted,
        "memoryBytes": size_bytes,
        "measurementsCommitted": buckets.counters.numMeasurementsCommitted,
    }


def _described(bucket: Bucket, *, shows_meta: bool) -> dict[str, Any]:
    state, series = bucket.state, bucket.series
    shown: dict[str, Any] = {"_id": ObjectId(state.bucket_id)}
    if shows_meta and series.meta:
        if len(series.meta) <= MOST_META_BYTES:
            shown["meta"] = _decoded(series.meta)
        else:
            shown["metaBytes"] = len(series.meta) - 1
    return shown | {
        "start": DatetimeMS(state.start_ms),
        "rows": state.rows,
        "committedRows": state.committed_rows,
        "sizeBytes": state.size_bytes,
        "parts": 0 if bucket.parts is None else bucket.parts.stored - 1,
        "isCurrent": series.current is bucket,
    }


def _decoded(value: bytes) -> Any:
    """A value from its type byte and its bytes."""
    document = value[:1] + b"v\0" + value[1:]
    return bson.decode((len(document) + 5).to_bytes(4, "little") + document + b"\0", TOLERANT)["v"]


def meta_key(buckets: CollectionBuckets, value: bytes) -> bytes:
    """The key of the series with this meta value (type byte, then the value), as measurements have it (W33).

    Raises ``CommandError`` if the collection has no meta field, or no measurement could have this value.
    """
    if buckets.meta_field is None:
        raise CommandError(2, f"'{buckets.collection.namespace}' has no meta field")
    fields = b"\x09" + buckets.time_field + b"\0" + bytes(8) + value[:1] + buckets.meta_field + b"\0" + value[1:]
    raw = (len(fields) + 5).to_bytes(4, "little") + fields + b"\0"
    return parse_measurement(raw, buckets.time_field, buckets.meta_field).meta
