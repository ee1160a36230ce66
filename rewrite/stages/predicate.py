"""What a ``$match`` on measurements says about whole buckets (Q10–Q16).

``split`` gives a predicate that every bucket with a matching measurement satisfies, and what is left to ask
of the measurements themselves. Only predicates on the meta field leave the residue, since they are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from rewrite.stages.meta_paths import rename_path, rename_predicate
from rewrite.stages.scope import Scope
from rewrite.stages.time_bounds import EVER, Interval, time_predicate

_SCALARS = (bool, int, float, Int64, Decimal128, ObjectId, Binary, bytes, Timestamp, datetime, DatetimeMS)


@dataclass(frozen=True, slots=True)
class Split:
    """``bucket``: necessary for a bucket (``None``: nothing known); ``residual``: still to be asked of rows.

    ``interval`` is what the predicate's conjunction says of the time field.
    """

    bucket: dict[str, Any] | None
    residual: dict[str, Any] | None
    interval: Interval


def split(predicate: Mapping[str, Any], scope: Scope) -> Split:
    """Split a ``$match``; meta predicates that are exact leave the residue."""
    bucket: list[dict[str, Any]] = []
    residual: dict[str, Any] = {}
    interval = EVER
    for key, operand in predicate.items():
        if key == "$and" and isinstance(operand, list) and operand and all(isinstance(a, dict) for a in operand):
            parts = [split(arm, scope) for arm in operand]
            bucket += [part.bucket for part in parts if part.bucket]
            left = [part.residual for part in parts if part.residual]
            if left:
                residual[key] = left
            for part in parts:
                interval = interval.intersect(part.interval)
            continue
        moved = rename_predicate({key: operand}, scope)
        if moved is not None:
            bucket.append(moved)
            continue
        residual[key] = operand
        if key == scope.time_field:
            interval = interval.intersect(Interval.of(operand))
        necessary = _necessary(key, operand, scope)
        if necessary is not None:
            bucket.append(necessary)
    return Split(conjunction(bucket), residual or None, interval)


def conjunction(predicates: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The predicates joined: in one document where their keys differ, else by ``$and``."""
    if not predicates:
        return None
    joined: dict[str, Any] = {}
    for predicate in predicates:
        if joined.keys() & predicate.keys():
            return {"$and": predicates}
        joined |= predicate
    return joined


def _necessary(key: str, operand: Any, scope: Scope) -> dict[str, Any] | None:
    if key == "$or":
        return _necessary_any(operand, scope)
    if key == "$expr":
        return None
    if key.startswith("$"):
        return None
    if key == scope.time_field:
        return time_predicate(operand, scope)
    if rename_path(key, scope) is not None:
        return None
    return _measurement_predicate(key, operand, scope)


def _necessary_any(arms: Any, scope: Scope) -> dict[str, Any] | None:
    """A disjunction is pushed only when each arm says something of the bucket."""
    if not isinstance(arms, list) or not arms:
        return None
    pushed = []
    for arm in arms:
        part = split(arm, scope).bucket if isinstance(arm, dict) else None
        if part is None:
            return None
        pushed.append(part)
    return {"$or": pushed}


def _measurement_predicate(path: str, operand: Any, scope: Scope) -> dict[str, Any] | None:
    if not _is_plain_path(path) or path.split(".", maxsplit=1)[0] == scope.time_field:
        return None
    operators: Mapping[str, Any] = operand if _is_operators(operand) else {"$eq": operand}
    bounds = [bound for name, value in operators.items() if (bound := _bound(path, name, value, scope)) is not None]
    return conjunction([_guard_mixed(path, bound) for bound in bounds])


def _bound(path: str, operator: str, value: Any, scope: Scope) -> dict[str, Any] | None:
    """One row of the table of Q13, in the backend's own cross-type comparisons."""
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


def _guard_mixed(path: str, bound: dict[str, Any]) -> dict[str, Any]:
    """Below an object, a bound counts only where the object never was anything else (Q16)."""
    prefixes = path.split(".")
    parents = [".".join(prefixes[:n]) for n in range(1, len(prefixes))]
    if not parents:
        return bound
    mixed = [{"$expr": {"$ne": [{"$type": f"$control.min.{p}"}, {"$type": f"$control.max.{p}"}]}} for p in parents]
    return {"$or": [bound, *mixed]}


def _is_plain_path(path: str) -> bool:
    return all(part and not part.startswith("$") and "\0" not in part for part in path.split("."))


def _is_operators(operand: Any) -> bool:
    return isinstance(operand, dict) and any(str(key).startswith("$") for key in operand)


def _is_pushable(value: Any, scope: Scope) -> bool:
    """Q14."""
    if isinstance(value, str):
        return scope.compares_like_buckets and type(value) is str
    return isinstance(value, _SCALARS)
