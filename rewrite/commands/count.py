"""``count`` of measurements (Q1, C26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.namespaces import VirtualCollection
from rewrite.commands.reading import (
    aggregate_of_buckets,
    asks_for_text,
    cursor_reply_fields,
    on_buckets,
    reads_buckets,
    step_or_guess,
    whole_number,
)
from rewrite.plan import Document, PassThrough, Plan, Request, Single
from rewrite.stages.draft import Stage

_UNDERSTOOD = {"count", "query", "limit", "skip", "hint", "collation", "readConcern", "maxTimeMS", "comment"}


def rewrite_count(request: Request) -> Plan:
    """An aggregate on the buckets whose one row becomes ``n``."""
    if request.target is None or not reads_buckets(request) or request.in_transaction:
        return PassThrough()
    body, target = request.body, request.target
    stages = _stages_of(body)
    if stages is None:
        return PassThrough()
    step, otherwise = step_or_guess(request, stages, target, lambda made: aggregate_of_buckets(body, made, target))
    return Single(step, reshape=count_reply, otherwise=otherwise)


def translate_count(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> dict[str, Any] | None:
    """The ``aggregate`` that answers this ``count``."""
    stages = _stages_of(body)
    return None if stages is None else on_buckets(body, stages, target, request)


def _stages_of(body: Mapping[str, Any]) -> list[Stage] | None:
    """The stages on the measurements that count; ``None`` for what only the backend answers."""
    read_concern = body.get("readConcern")
    if not body.keys() <= _UNDERSTOOD or (isinstance(read_concern, dict) and "snapshot" in read_concern.values()):
        return None
    query = body.get("query") or {}
    skip, limit = whole_number(body.get("skip", 0)), whole_number(body.get("limit", 0))
    if (
        not isinstance(query, dict)
        or asks_for_text(query)
        or skip is None
        or limit is None
        or ("limit" in body and not limit)
    ):
        return None  # a limit of 0, which a plain collection takes for none, is refused on views
    stages: list[Stage] = []
    if query:
        stages.append({"$match": query})
    if skip:
        stages.append({"$skip": skip})
    if limit:
        stages.append({"$limit": limit})
    return [*stages, {"$count": "count"}]


def count_reply(reply: Document) -> Document:
    """``{n, ok}`` with ``ok`` as an int32, as on views (C26); without a row, ``n`` is 0."""
    rows = reply["cursor"]["firstBatch"]
    return {"n": rows[0]["count"] if rows else 0, "ok": 1, **cursor_reply_fields(reply)}
