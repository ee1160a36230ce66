"""What a ``$match`` on measurements says about whole buckets (Q10–Q16).

``split`` gives a predicate that every bucket with a matching measurement satisfies, and what is left to ask
of the measurements themselves. Only predicates on the meta field leave the residue, since they are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

    ``interval`` is what the predicate's conjunction says of the time field. ``moved`` is the whole predicate on
    ``meta``, where it is about nothing else (``rename_predicate``).
    """

    bucket: dict[str, Any] | None
    residual: dict[str, Any] | None
    interval: Interval
    moved: dict[str, Any] | None = None


def split(predicate: Mapping[str, Any], scope: Scope) -> Split:
    """Split a ``$match``; meta predicates that are exact leave the residue. Each part is looked at once."""
    parts = _Parts()
    for key, operand in predicate.items():
        if key in _LOGICAL and isinstance(operand, list) and operand and all(isinstance(arm, dict) for arm in operand):
            parts.combine(key, operand, [split(arm, scope) for arm in operand])
            continue
        moved = rename_predicate({key: operand}, scope)
        if moved is not None:
            parts.buckets.append(moved)
            parts.move(moved)
            continue
        parts.moved = None
        parts.residual[key] = operand
        if key == scope.time_field:
            parts.interval = parts.interval.intersect(Interval.of(operand))
        necessary = _necessary(key, operand, scope)
        if necessary is not None:
            parts.buckets.append(necessary)
    return Split(conjunction(parts.buckets), parts.residual or None, parts.interval, parts.moved or None)


_LOGICAL = frozenset({"$and", "$or", "$nor"})


@dataclass(slots=True)
class _Parts:
    """What is known of a predicate so far."""

    buckets: list[dict[str, Any]] = field(default_factory=list)
    residual: dict[str, Any] = field(default_factory=dict)
    interval: Interval = EVER
    moved: dict[str, Any] | None = field(default_factory=dict)

    def move(self, moved: dict[str, Any]) -> None:
        """This part of it is about meta alone."""
        if self.moved is not None:
            self.moved.update(moved)

    def combine(self, operator: str, operand: list[Any], arms: list[Split]) -> None:
        """A disjunction is pushed only when each arm says something of the bucket."""
        moved = [arm.moved for arm in arms if arm.moved is not None]
        is_moved = len(moved) == len(arms)
        if is_moved:
            self.move({operator: moved})
        else:
            self.moved = None
        if operator == "$and":
            self.buckets += [arm.bucket for arm in arms if arm.bucket]
            left = [arm.residual for arm in arms if arm.residual]
            if left:
                self.residual[operator] = left
            for arm in arms:
                self.interval = self.interval.intersect(arm.interval)
            return
        if is_moved:
            self.buckets.append({operator: moved})
            return
        self.residual[operator] = operand
        pushed = [arm.bucket for arm in arms if arm.bucket is not None]
        if operator == "$or" and len(pushed) == len(arms):
            self.buckets.append({operator: pushed})


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
    if key.startswith("$"):
        return None
    if key == scope.time_field:
        return time_predicate(operand, scope)
    if rename_path(key, scope) is not None:
        return None
    return _measurement_predicate(key, operand, scope)


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


LONGEST_PATH = 255
"""Bounds name their path several times, and those of ``$in`` for each of its values."""


def _is_plain_path(path: str) -> bool:
    return len(path) <= LONGEST_PATH and all(
        part and not part.startswith("$") and "\0" not in part for part in path.split(".")
    )


def _is_operators(operand: Any) -> bool:
    return isinstance(operand, dict) and any(str(key).startswith("$") for key in operand)


def _is_pushable(value: Any, scope: Scope) -> bool:
    """Q14."""
    if isinstance(value, str):
        return scope.compares_like_buckets and type(value) is str
    return isinstance(value, _SCALARS)
