"""Which stored buckets may hold measurements of these series and times, as a query (W50, W102)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bson.errors import InvalidBSON
from bson.objectid import ObjectId

from catalog.bson.codec import decode
from catalog.namespaces import VirtualCollection

MAX_SECONDS: Final = 0xFFFF_FFFF
"""The latest second that the id of a bucket can tell."""


def covering_query(collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]]) -> dict[str, Any]:
    """Buckets that may hold one of ``wanted`` (meta element, time in ms), bounded by the clustered ``_id``."""
    options = collection.options
    times = [time_ms for _, time_ms in wanted]
    first_seconds = min(times) // 1000 - options.max_span_seconds
    last_seconds = max(times) // 1000
    metas = [value for meta, _ in wanted if meta and meta[0] != 0x0B for value in _decoded(meta)]
    arms: list[dict[str, Any]] = []
    if metas:
        arms.append({"meta": {"$in": metas}})
    if any(not meta for meta, _ in wanted):
        arms.append({"meta": {"$exists": False}})
    query: dict[str, Any] = {"$or": arms or [{"meta": {"$in": []}}]}
    if first_seconds >= 0 and last_seconds <= MAX_SECONDS:
        query["_id"] = {
            "$gte": ObjectId(first_seconds.to_bytes(4, "big") + bytes(8)),
            "$lte": ObjectId(last_seconds.to_bytes(4, "big") + b"\xff" * 8),
        }
    return query


def _decoded(meta: bytes) -> tuple[object, ...]:
    """The value of a meta element (type byte and value bytes); none when it has strings that are no UTF-8."""
    body = meta[:1] + b"m\0" + meta[1:] + b"\0"
    try:
        return (decode((len(body) + 4).to_bytes(4, "little") + body)["m"],)
    except InvalidBSON:
        return ()
