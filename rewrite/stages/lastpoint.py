"""The latest measurement of each series: group by meta, taking the first or top row by time (Q23).

Headers say which bucket of each group holds the latest time, so only these are fetched, and of their rows
only those of that time go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rewrite.stages.dependencies import columns_read
from rewrite.stages.draft import Draft, Stage, only
from rewrite.stages.meta_paths import rename_expression, rename_path
from rewrite.stages.scope import Scope

LATEST = "__latest_time_of_bucket"
"""Rows carry their bucket's latest time under this name until they have been compared with it."""


def pick_latest_buckets(draft: Draft, scope: Scope) -> Draft:
    """Only for the latest: the earliest time in a header is rounded and cannot tell buckets apart."""
    if not draft.unpacks or not _may_pick(scope):
        return draft
    asked = _latest_asked(draft.tail, scope)
    if asked is None:
        return draft
    key, order = asked
    picked = draft.with_head(*_latest_of_each(key, order, scope), *_fetching(scope))
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


Order: TypeAlias = Mapping[str, Any]


def _latest_asked(tail: Sequence[Stage], scope: Scope) -> tuple[Any, Order] | None:
    """The group key over buckets and the order of rows, when all that is taken of a group is of its latest row."""
    names = [only(stage)[0] for stage in tail[:2]]
    is_sorted = names == ["$sort", "$group"]
    if not is_sorted and names[:1] != ["$group"]:
        return None
    sort = only(tail[0])[1] if is_sorted else None
    group = only(tail[int(is_sorted)])[1]
    if not isinstance(group, dict) or "_id" not in group or len(group) < 2:
        return None
    orders = [_order_of_latest(argument, sort, scope) for field, argument in group.items() if field != "_id"]
    known = [order for order in orders if order is not None]
    moved = rename_expression(group["_id"], scope)
    if moved is None or len(known) != len(orders):
        return None
    if not all(_is_constant_in_group(list(order)[:-1], group["_id"], scope) for order in known):
        return None
    return moved[0], known[0]


_OF_SORTED = {"$first": -1, "$firstN": -1, "$last": 1, "$lastN": 1}
_SORTING = {"$top": -1, "$topN": -1, "$bottom": 1, "$bottomN": 1}
"""Accumulators of one row or several, and the direction of time in which the latest is what they take."""


def _order_of_latest(accumulator: Any, sort: Any, scope: Scope) -> Order | None:
    """The order in which the first row, or the last, is the latest, if the accumulator takes that alone."""
    operator, argument = only(accumulator) if isinstance(accumulator, dict) else ("", None)
    if operator.endswith("N") and not (isinstance(argument, dict) and _is_one(argument.get("n"))):
        return None
    if operator in _OF_SORTED:
        order, direction = sort, _OF_SORTED[operator]
    elif operator in _SORTING and sort is None and isinstance(argument, dict):
        order, direction = argument.get("sortBy"), _SORTING[operator]
    else:
        return None
    if not isinstance(order, dict) or not order:
        return None
    last, towards = list(order.items())[-1]
    return order if last == scope.time_field and _is_number(towards) and towards == direction else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_one(value: Any) -> bool:
    return _is_number(value) and value == 1


def _is_constant_in_group(paths: list[str], key: Any, scope: Scope) -> bool:
    """Whether rows of one group agree in what is sorted before time."""
    named = {key} if isinstance(key, str) else set(key.values()) if _has_plain_values(key) else set()
    return all(rename_path(path, scope) is not None and f"${path}" in named for path in paths)


def _has_plain_values(key: Any) -> bool:
    return isinstance(key, dict) and all(isinstance(value, str) for value in key.values())


def _latest_of_each(key: Any, sort: Order, scope: Scope) -> tuple[Stage, ...]:
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
