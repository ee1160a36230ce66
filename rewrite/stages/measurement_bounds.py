"""Derives bounds on buckets from a condition on measurements (Q13, Q14, Q16)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from rewrite.stages.scope import Scope

_SCALARS = (bool, int, float, Int64, Decimal128, ObjectId, Binary, bytes, Timestamp, datetime, DatetimeMS)


def conjunction(predicates: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The conjunction of predicates: one document if their keys differ, otherwise ``$and``; ``None`` for none."""
    if not predicates:
        return None
    joined: dict[str, Any] = {}
    for predicate in predicates:
        if joined.keys() & predicate.keys():
            return {"$and": predicates}
        joined |= predicate
    return joined


def measurement_predicate(path: str, operand: Any, scope: Scope) -> dict[str, Any] | None:
    """A predicate that is true for every bucket with a row whose ``path`` matches ``operand``; ``None`` if unknown."""
    if not is_plain_path(path) or path.split(".", maxsplit=1)[0] == scope.time_field:
        return None
    operators: Mapping[str, Any] = operand if _is_operators(operand) else {"$eq": operand}
    bounds = [bound for name, value in operators.items() if (bound := _bound(path, name, value, scope)) is not None]
    return conjunction([_guard_mixed(path, bound, scope) for bound in bounds])


def _bound(path: str, operator: str, value: Any, scope: Scope) -> dict[str, Any] | None:
    """The bound of one operator (Q13), with comparisons across types as the backend makes them."""
    low, high = f"control.min.{path}", f"control.max.{path}"
    if operator == "$in":
        if not isinstance(value, list) or not value or not all(_is_pushable(v, scope) for v in value):
            return None
        return {"$or": [_bound(path, "$eq", v, scope) for v in value]}
    if operator == "$exists":
        return {low: {"$exists": True}, high: {"$exists": True}} if value is True else None
    if not _is_pushable(value, scope):
        return None
    match operator:
        case "$gt":
            return {high: {"$_internalExprGt": value}}
        case "$gte":
            return {high: {"$_internalExprGte": value}}
        case "$lt":
            return {low: {"$_internalExprLt": value}}
        case "$lte":
            return {low: {"$_internalExprLte": value}}
        case "$eq":
            return {low: {"$_internalExprLte": value}, high: {"$_internalExprGte": value}}
        case _:
            return None


def _guard_mixed(path: str, bound: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """A bound, or true for buckets in which an object on the path has other types, or the path hidden arrays (Q16)."""
    prefixes = path.split(".")
    parents = [".".join(prefixes[:n]) for n in range(1, len(prefixes))]
    mixed = [{"$expr": {"$ne": [{"$type": f"$control.min.{p}"}, {"$type": f"$control.max.{p}"}]}} for p in parents]
    if scope.mixed_types:
        mixed.append({"$expr": _may_hide_arrays(path)})
    return {"$or": [bound, *mixed]} if mixed else bound


_ABOVE_ARRAYS = Binary(b"")
"""The least value of the type that is compared as greater than every array."""


def _may_hide_arrays(path: str) -> dict[str, Any]:
    """Whether the values at ``path`` may be arrays and others: a summary does not cover the elements of such arrays."""
    return {"$and": [{"$lt": [f"$control.min.{path}", _ABOVE_ARRAYS]}, {"$gte": [f"$control.max.{path}", []]}]}


LONGEST_PATH = 255
"""Maximum length of a path in bounds, which repeat it several times, and for each value of ``$in``."""


def is_plain_path(path: str) -> bool:
    """Whether a path can be used below ``control.min`` and ``control.max``."""
    return len(path) <= LONGEST_PATH and all(
        part and not part.startswith("$") and "\0" not in part for part in path.split(".")
    )


def _is_operators(operand: Any) -> bool:
    return isinstance(operand, dict) and any(str(key).startswith("$") for key in operand)


def _is_pushable(value: Any, scope: Scope) -> bool:
    """Whether a bound on this value is correct (Q14)."""
    if isinstance(value, str):
        return scope.compares_like_buckets and type(value) is str
    return isinstance(value, _SCALARS)
