"""``find`` on measurements (Q1, Q3, Q4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.namespaces import VirtualCollection
from rewrite.commands.reading import (
    COMMON_OPTIONS,
    asks_for_text,
    of_this_collection,
    on_buckets,
    reads_buckets,
    whole_number,
)
from rewrite.plan import Cursor, Document, PassThrough, Plan, Request, Step
from rewrite.stages.draft import Stage

_UNDERSTOOD = {
    "find", "filter", "projection", "sort", "skip", "limit", "batchSize", "singleBatch", "hint", "collation",
    "oplogReplay", *COMMON_OPTIONS,
}  # fmt: skip
_FLAGS_NOT_ON_VIEWS = {"tailable", "awaitData", "noCursorTimeout", "allowPartialResults", "returnKey", "showRecordId"}
_BOUNDS_NOT_ON_VIEWS = {"min", "max"}
_OF_AN_AGGREGATE = "Invalid $project :: caused by :: "


def rewrite_find(request: Request) -> Plan:
    """An aggregate on the buckets, or the view if an option is not supported."""
    if request.target is None or not reads_buckets(request):
        return PassThrough()
    body = translate_find(request.body, request.target, request)
    if body is None:
        return PassThrough()
    step = Step(request.namespace.database, of_this_collection(body, request.target, request))
    return Cursor(step, request.namespace, reshape_error=_worded_as_by_find)


def _worded_as_by_find(reply: Document) -> Document:
    """The error without what an aggregate says in front of what is wrong with a projection (Q4)."""
    said = reply.get("errmsg")
    return {**reply, "errmsg": said.removeprefix(_OF_AN_AGGREGATE)} if isinstance(said, str) else reply


def translate_find(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> dict[str, Any] | None:
    """The ``aggregate`` that answers this ``find``."""
    if not _is_understood(body):
        return None
    stages: list[Stage] = []
    hint = None
    if body.get("filter"):
        stages.append({"$match": body["filter"]})
    sort = body.get("sort") or {}
    if "$natural" in sort:
        if len(sort) != 1 or body.get("hint"):
            return None
        hint = sort
    elif sort:
        stages.append({"$sort": sort})
    if whole_number(body.get("skip", 0)):
        stages.append({"$skip": whole_number(body["skip"])})
    if whole_number(body.get("limit", 0)):
        stages.append({"$limit": whole_number(body["limit"])})
    if body.get("projection"):
        stages.append({"$project": body["projection"]})
    return on_buckets(body, stages, target, request, batch_size=body.get("batchSize"), hint=hint)


def _is_understood(body: Mapping[str, Any]) -> bool:
    for name, value in body.items():
        if name in _FLAGS_NOT_ON_VIEWS:
            if value is not False:
                return False
        elif name in _BOUNDS_NOT_ON_VIEWS:
            if value != {}:
                return False
        elif name not in _UNDERSTOOD:
            return False
    if any(not isinstance(body.get(name, {}), dict) for name in ("filter", "projection", "sort")):
        return False
    if asks_for_text(body.get("filter", {})):
        return False
    if any(whole_number(body.get(name, 0)) is None for name in ("skip", "limit", "batchSize")):
        return False
    if any(_is_for_find_only(path, value) for path, value in body.get("projection", {}).items()):
        return False
    single_batch = body.get("singleBatch", False)
    return single_batch is False or (single_batch is True and whole_number(body.get("limit", 0)) == 1)


def _is_for_find_only(path: str, value: Any) -> bool:
    """Projections that no aggregation has; the backend words their refusal (Q4)."""
    return path.endswith(".$") or (isinstance(value, dict) and "$elemMatch" in value)
