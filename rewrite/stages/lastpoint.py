"""Finds the latest measurement of each series: ``$group`` by meta that takes the first or top row by time (Q23).

Headers show which bucket of each group has the latest time. Only these buckets are fetched, and only their rows with
that time are passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from bson.datetime_ms import DatetimeMS

from rewrite.stages.dependencies import columns_read
from rewrite.stages.draft import Draft, Stage, fails_unless, only
from rewrite.stages.meta_paths import rename_expression, rename_path
from rewrite.stages.scope import Scope

LATEST = "__latest_time_of_bucket"
"""Temporary field of rows: the latest time of their bucket."""


def pick_latest_buckets(draft: Draft, scope: Scope) -> Draft:
    """Fetch only the buckets with the latest measurement. The earliest cannot be found so: its header is rounded."""
    if not draft.unpacks or not _may_pick(scope):
        return draft
    asked = _latest_asked(draft.tail, scope)
    if asked is None:
        return draft
    key, order = asked
    columns = columns_read(draft.tail)
    if scope.time_field == LATEST or (columns is not None and LATEST in columns):
        return draft
    picked = draft.with_head(*_latest_of_each(key, order, scope), *_fetching(scope))
    include = None if columns is None else (*sorted(columns | {scope.time_field}), LATEST)
    same_time: Stage = {"$match": {"$expr": {"$eq": [f"${scope.time_field}", f"${LATEST}"]}}}
    return picked._replace(
        inhibits=True,
        guesses=scope.extended_range,
        include=include,
        computed=(LATEST,),
        tail=(same_time, {"$project": {LATEST: 0}}, *draft.tail),
    )


def _may_pick(scope: Scope) -> bool:
    """Whether headers are reliable, or can be checked, and fetching by id is fast; 5.0 scans for each id."""
    is_reliable = scope.may_guess or not scope.extended_range
    return scope.plain_names and is_reliable and scope.profile.version >= (6, 0, 0)


SortOrder: TypeAlias = Mapping[str, Any]


def _latest_asked(tail: Sequence[Stage], scope: Scope) -> tuple[Any, SortOrder] | None:
    """The group key over buckets and the order of rows, if every accumulator takes only the latest row."""
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


OF_SORTED = {"$first": -1, "$firstN": -1, "$last": 1, "$lastN": 1}
_SORTING = {"$top": -1, "$topN": -1, "$bottom": 1, "$bottomN": 1}
"""Accumulators of one or several rows, and the direction of time in which they take the latest row."""


def _order_of_latest(accumulator: Any, sort: Any, scope: Scope) -> SortOrder | None:
    """The order of rows, if the accumulator takes only the latest row."""
    operator, argument = only(accumulator) if isinstance(accumulator, dict) else ("", None)
    if operator.endswith("N") and not (isinstance(argument, dict) and _is_one(argument.get("n"))):
        return None
    if operator in OF_SORTED:
        order, direction = sort, OF_SORTED[operator]
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
    """Whether rows of one group are equal in the fields that are sorted before the time."""
    named = {key} if isinstance(key, str) else set(key.values()) if _has_plain_values(key) else set()
    return all(rename_path(path, scope) is not None and f"${path}" in named for path in paths)


def _has_plain_values(key: Any) -> bool:
    return isinstance(key, dict) and all(isinstance(value, str) for value in key.values())


_IS_AFTER_1970 = fails_unless({"$gt": ["$latest.time", DatetimeMS(0)]})
"""Fails if a latest time may be later than all rows of its bucket.

The header of a bucket before 1970 may have its start there, at 1970 at the latest (W32).
"""


def _latest_of_each(key: Any, sort: SortOrder, scope: Scope) -> tuple[Stage, ...]:
    """Stages that find the bucket with the latest time of each group.

    They sort if there may be an index on (meta path, time); without one, sorting costs twice as much as reading every
    header.
    """
    latest = f"$control.max.{scope.time_field}"
    first = next(iter(sort))
    of_each: Stage = {"$group": {"_id": key, "latest": {"$max": {"time": latest, "bucket": "$_id"}}}}
    if scope.extended_range:
        return of_each, _IS_AFTER_1970
    is_by_key = len(sort) == 2 and isinstance(key, str) and key == f"${rename_path(first, scope)}"
    if is_by_key and (scope.lastpoint_indexes is None or (first, sort[first]) in scope.lastpoint_indexes):
        # As the order does not contain the lower bound, the server can drop all other fields before it sorts.
        order: Stage = {"$sort": {key[1:]: sort[first], latest[1:]: -1}}
        return order, {"$group": {"_id": key, "latest": {"$first": {"bucket": "$_id"}}}}
    return (of_each,)


def _fetching(scope: Scope) -> tuple[Stage, ...]:
    """Stages that fetch the picked buckets by id."""
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
