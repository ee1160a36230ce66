"""Builds the query for stored buckets that may contain measurements of given series and times (W50, W102)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.namespaces import VirtualCollection

MAX_SECONDS: Final = 0xFFFF_FFFF
"""The latest second that the id of a bucket can represent."""

_OBJECT, _REGEX = 0x03, 0x0B
_UNDEFINED, _NULL = b"\x06", b"\x0a"
"""Undefined is stored as null (W35)."""


def covering_query(collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]]) -> dict[str, Any]:
    """The query for buckets that may contain one of ``wanted`` (meta element, time in ms), with bounds on ``_id``."""
    options = collection.options
    times = [time_ms for _, time_ms in wanted]
    first_seconds = min(times) // 1000 - options.max_span_seconds
    last_seconds = max(times) // 1000
    metas = [_NULL if meta == _UNDEFINED else meta for meta in dict.fromkeys(meta for meta, _ in wanted) if meta]
    arms: list[RawBSONDocument | dict[str, Any]] = [_equals(meta) for meta in metas if _says_more_in_a_list(meta)]
    if listed := [meta for meta in metas if not _says_more_in_a_list(meta)]:
        arms.append(_is_one_of(listed))
    if any(not meta for meta, _ in wanted):
        arms.append({"meta": {"$exists": False}})
    query: dict[str, Any] = {"$or": arms}
    if first_seconds >= 0 and last_seconds <= MAX_SECONDS:
        query["_id"] = {
            "$gte": ObjectId(first_seconds.to_bytes(4, "big") + bytes(8)),
            "$lte": ObjectId(last_seconds.to_bytes(4, "big") + b"\xff" * 8),
        }
    return query


# Meta values stay raw: decoding would turn symbols into strings, and fails for strings that are not valid UTF-8.


def _says_more_in_a_list(meta: bytes) -> bool:
    """Whether ``$in`` would interpret the value: a regular expression, or a document that begins with ``$``."""
    return meta[0] == _REGEX or (meta[0] == _OBJECT and meta[6:7] == b"$")


def _equals(meta: bytes) -> RawBSONDocument:
    return _about_meta(meta[:1] + b"$eq\0" + meta[1:])


def _is_one_of(metas: Sequence[bytes]) -> RawBSONDocument:
    values = (meta[:1] + b"%d\0" % index + meta[1:] for index, meta in enumerate(metas))
    return _about_meta(b"\x04$in\0" + _document(b"".join(values)))


def _about_meta(condition: bytes) -> RawBSONDocument:
    return RawBSONDocument(_document(b"\x03meta\0" + _document(condition)))


def _document(elements: bytes) -> bytes:
    return (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
