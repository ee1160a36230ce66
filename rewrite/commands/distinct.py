"""``distinct`` values of measurements (Q1, C26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.bson.raw import element, iter_positions
from catalog.namespaces import VirtualCollection
from rewrite.commands.distinct_on_view import ValueStages, distinct_on_view, guess_on_view
from rewrite.commands.reading import asks_for_text, of_this_collection, on_buckets, reads_buckets
from rewrite.plan import PassThrough, Plan, Request, Single, Step
from rewrite.stages.distinct import VALUE, values_stage
from rewrite.stages.draft import Stage

MOST_PARTS = 100
"""Maximum depth of a key's path; servers support 200 levels."""

_UNDERSTOOD = {"distinct", "key", "query", "collation", "readConcern", "maxTimeMS", "comment"}


def rewrite_distinct(request: Request) -> Plan:
    """An aggregate whose one row becomes ``values``: on the buckets, or on the view if that is faster than it alone."""
    if request.target is None:
        return PassThrough()
    body = translate_distinct(request.body, request.target, request)
    if body is not None:
        if reads_buckets(request):
            body = of_this_collection(body, request.target, request)
        return Single(Step(request.namespace.database, body), reshape_raw=distinct_reply)
    if reads_buckets(request) or not _is_understood(request.body):
        return PassThrough()
    plans = guess_on_view(request.body, _collecting(request), request.target, request)
    if plans is None:
        return PassThrough()
    guess, otherwise = (Step(request.namespace.database, plan) for plan in plans)
    return Single(guess, reshape_raw=distinct_reply, otherwise=lambda: otherwise)


def translate_distinct(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> dict[str, Any] | None:
    """The ``aggregate`` that answers this ``distinct``; values inside arrays count one by one.

    For clients that may not read the buckets, it is one on the view.
    """
    if not _is_understood(body):
        return None
    key, query = body["key"], body.get("query") or {}
    if not reads_buckets(request):
        return distinct_on_view(body, _collecting(request), target, request)
    stages: list[Stage] = [{"$match": query}] if query else []
    return on_buckets(body, [*stages, *_collecting(request)(key)], target, request)


def _collecting(request: Request) -> ValueStages:
    return values_by_path if request.profile.version >= (6, 0, 0) else values_by_unwinding


def _is_understood(body: Mapping[str, Any]) -> bool:
    key, query = body.get("key"), body.get("query") or {}
    if not body.keys() <= _UNDERSTOOD or not isinstance(key, str) or not isinstance(query, dict):
        return False
    return bool(key) and key[0] != "$" and "\0" not in key and key.count(".") < MOST_PARTS and not asks_for_text(query)


def values_by_path(key: str) -> list[Stage]:
    """The distinct values if the server can split a path (from 6.0)."""
    return [
        values_stage(key),
        {"$unwind": {"path": f"${VALUE}", "preserveNullAndEmptyArrays": True}},
        {"$group": {"_id": None, "distinct": {"$addToSet": f"${VALUE}"}}},
    ]


def values_by_unwinding(key: str) -> list[Stage]:
    """The distinct values for 5.0: unwind each array on the path, and descend only into objects."""
    parts = key.split(".")
    prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    stages: list[Stage] = [
        {"$unwind": {"path": f"${prefix}", "preserveNullAndEmptyArrays": True}} for prefix in prefixes
    ]
    objects = [{"$eq": [{"$type": f"${prefix}"}, "object"]} for prefix in prefixes[:-1]]
    if objects:
        stages.append({"$match": {"$expr": {"$and": objects}}})
    return [*stages, {"$group": {"_id": None, "distinct": {"$addToSet": f"${key}"}}}]


_EMPTY = b"\x05\0\0\0\0"
_HEAD = b"\x04values\0"
_OK = element(b"ok", b"\x10\x01\0\0\0")


def distinct_reply(reply: bytes) -> bytes:
    """``{values, ok}`` with ``ok`` an int32, as on views (C26); the values are the stored ones to the byte.

    They may be many, so they are copied once.
    """
    others = [_OK]
    values = memoryview(_EMPTY)
    for kind, name, start, end in iter_positions(reply):
        if name == b"cursor":
            values = _values(reply, _field(reply, start, end, b"firstBatch")) or values
        elif name != b"ok":
            others.append(reply[kind:end])
    size = 4 + len(_HEAD) + len(values) + sum(map(len, others)) + 1
    return b"".join((size.to_bytes(4, "little"), _HEAD, values, *others, b"\0"))


def _values(reply: bytes, batch: tuple[int, int]) -> memoryview | None:
    for _, _, start, end in iter_positions(reply, *batch):
        first, last = _field(reply, start, end, b"distinct")
        return memoryview(reply)[first:last]
    return None


def _field(raw: bytes, start: int, end: int, wanted: bytes) -> tuple[int, int]:
    """Where the value of a field of the document at these positions is; raises ``KeyError``."""
    for _, name, first, last in iter_positions(raw, start, end):
        if name == wanted:
            return first, last
    raise KeyError(wanted)
