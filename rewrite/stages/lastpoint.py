"""The latest measurement of each series: sort by time, then group by meta taking the first (Q23).

Headers say which bucket of each group holds the latest time, so only these are fetched, and of their rows
only those of that time go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewrite.stages.dependencies import columns_read
from rewrite.stages.draft import Draft, Stage, only
from rewrite.stages.meta_paths import rename_expression, rename_path
from rewrite.stages.scope import Scope

LATEST = "__latest_time_of_bucket"
"""Rows carry their bucket's latest time under this name until they have been compared with it."""


def pick_latest_buckets(draft: Draft, scope: Scope) -> Draft:
    """Only for the latest: the earliest time in a header is rounded and cannot tell buckets apart."""
    if len(draft.tail) < 2 or not draft.unpacks or not _may_pick(scope):
        return draft
    (sort_name, sort), (group_name, group) = only(draft.tail[0]), only(draft.tail[1])
    if sort_name != "$sort" or group_name != "$group" or not isinstance(group, dict):
        return draft
    key = _key_over_buckets(sort, group, scope) if isinstance(sort, dict) else None
    if key is None:
        return draft
    picked = draft.with_head(*_latest_of_each(key, sort, scope), *_fetching(scope))
    columns = columns_read(draft.tail)
    include = None if columns is None else (*sorted(columns | {scope.time_field}), LATEST)
    same_time: Stage = {"$match": {"$expr": {"$eq": [f"${scope.time_field}", f"${LATEST}"]}}}
    return picked._replace(
        inhibits=True,
        include=include,
        computed=(LATEST,),
        tail=(same_time, {"$project": {LATEST: 0}}, *draft.tail),
    )


def _may_pick(scope: Scope) -> bool:
    """Times before 1970 may have a header that is later than all rows (W32); 5.0 looks ids up by scanning."""
    return scope.plain_names and not scope.extended_range and scope.profile.version >= (6, 0, 0)


def _key_over_buckets(sort: Mapping[str, Any], group: Mapping[str, Any], scope: Scope) -> Any | None:
    """The group key over buckets, when the first row of each group is certainly its latest."""
    *before, (last, direction) = sort.items() if sort else [("", None)]
    wanted = {-1: "$first", 1: "$last"}.get(direction if isinstance(direction, int) else 0)
    accumulators = [argument for field, argument in group.items() if field != "_id"]
    if last != scope.time_field or wanted is None or not accumulators or "_id" not in group:
        return None
    if not all(isinstance(argument, dict) and only(argument)[0] == wanted for argument in accumulators):
        return None
    moved = rename_expression(group["_id"], scope)
    if moved is None or not _is_constant_in_group([path for path, _ in before], group["_id"], scope):
        return None
    return moved[0]


def _is_constant_in_group(paths: list[str], key: Any, scope: Scope) -> bool:
    """Whether rows of one group agree in what is sorted before time."""
    named = {key} if isinstance(key, str) else set(key.values()) if _has_plain_values(key) else set()
    return all(rename_path(path, scope) is not None and f"${path}" in named for path in paths)


def _has_plain_values(key: Any) -> bool:
    return isinstance(key, dict) and all(isinstance(value, str) for value in key.values())


def _latest_of_each(key: Any, sort: Mapping[str, Any], scope: Scope) -> tuple[Stage, ...]:
    """The bucket with the latest time of each group, by an index on (meta path, time) where there may be one.

    Without such an index sorting costs twice as much as looking at every header.
    """
    latest = f"$control.max.{scope.time_field}"
    first = next(iter(sort))
    is_by_key = len(sort) == 2 and isinstance(key, str) and key == f"${rename_path(first, scope)}"
    if is_by_key and (scope.lastpoint_indexes is None or (first, sort[first]) in scope.lastpoint_indexes):
        # Without the lower bound in it, this order lets the server shed everything else before it sorts.
        order: Stage = {"$sort": {key[1:]: sort[first], latest[1:]: -1}}
        return order, {"$group": {"_id": key, "latest": {"$first": {"bucket": "$_id"}}}}
    return ({"$group": {"_id": key, "latest": {"$max": {"time": latest, "bucket": "$_id"}}}},)


def _fetching(scope: Scope) -> tuple[Stage, ...]:
    """From what was picked to whole buckets."""
    return (
        {
            "$lookup": {
                "from": scope.buckets.collection,
                "localField": "latest.bucket",
                "foreignField": "_id",
                "as": "bucket",
            }
        },
        {"$unwind": "$bucket"},
        {"$replaceRoot": {"newRoot": "$bucket"}},
        {"$addFields": {LATEST: f"$control.max.{scope.time_field}"}},
    )
