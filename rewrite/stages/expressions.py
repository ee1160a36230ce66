"""Derives bounds on buckets from ``$expr``: comparisons of the time or of a measurement with a constant (Q19).

The user's ``$expr`` stays after the unpacking and raises its own errors. Bounds use only constants that the server
evaluates before it reads, so that they raise no other errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rewrite.stages.constants import is_constant, is_time_of_ids, literal
from rewrite.stages.draft import only
from rewrite.stages.measurement_bounds import conjunction, is_plain_path, measurement_predicate
from rewrite.stages.meta_paths import rename_expression, rename_path
from rewrite.stages.scope import Scope
from rewrite.stages.time_bounds import EVER, Interval, millis, time_predicate
from rewrite.stages.total import never_fails

_MIRRORED = {"$gt": "$lt", "$gte": "$lte", "$lt": "$gt", "$lte": "$gte", "$eq": "$eq"}

_ORDERED_LIKE_SUMMARIES = ["double", "int", "long", "decimal", "bool", "date", "objectId", "binData", "timestamp"]
"""Types of constants that can be compared with summaries. Summaries merge objects and arrays (W24, W25), and rows
without the field are equal to a missing constant."""


class Comparison(NamedTuple):
    """``operator`` between the field at ``path`` (left) and a ``constant`` (right)."""

    operator: str
    path: str
    constant: Any


class Bounds(NamedTuple):
    """A predicate that every bucket with a matching row satisfies (``None`` if unknown), and the interval of times."""

    bucket: dict[str, Any] | None
    interval: Interval = EVER


_NOTHING = Bounds(None)


def comparison(expression: Any, scope: Scope) -> Comparison | None:
    """A comparison of a field with a constant, whichever side it is on."""
    operator, operands = only(expression) if isinstance(expression, dict) else ("", None)
    if operator not in _MIRRORED or not isinstance(operands, list) or len(operands) != 2:
        return None
    first, second = operands
    if _is_field(first) and is_constant(second, scope):
        return Comparison(operator, first[1:], second)
    if _is_field(second) and is_constant(first, scope):
        return Comparison(_MIRRORED[operator], second[1:], first)
    return None


def _is_field(operand: Any) -> bool:
    return isinstance(operand, str) and operand.startswith("$") and not operand.startswith("$$")


def expression_bounds(expression: Any, scope: Scope) -> Bounds:
    """The bounds of the operand of ``$expr``.

    What is about the meta field alone is a bound itself (Q10), unless it could fail: the server may not reach it behind
    another arm of ``$and``.
    """
    operator, operands = only(expression) if isinstance(expression, dict) else ("", None)
    if operator == "$and" and isinstance(operands, list):
        arms = [expression_bounds(arm, scope) for arm in operands]
        interval = EVER
        for arm in arms:
            interval = interval.intersect(arm.interval)
        return Bounds(conjunction([arm.bucket for arm in arms if arm.bucket is not None]), interval)
    if operator == "$or" and isinstance(operands, list) and operands:
        pushed = [bucket for arm in operands if (bucket := expression_bounds(arm, scope).bucket) is not None]
        return Bounds({"$or": pushed}) if len(pushed) == len(operands) else _NOTHING
    compared = comparison(expression, scope)
    if compared is None or rename_path(compared.path, scope) is not None:
        moved = rename_expression(expression, scope) if never_fails(expression, scope) else None
        return _NOTHING if moved is None else Bounds({"$expr": moved[0]})
    if compared.path == scope.time_field:
        return _time_bounds(compared, scope)
    return Bounds(_measurement_bound(compared, scope))


def _time_bounds(compared: Comparison, scope: Scope) -> Bounds:
    value = literal(compared.constant, scope)
    if value is not None and millis(value[0]) is not None:
        operand = {compared.operator: value[0]}
        return Bounds(time_predicate(operand, scope), Interval.of(operand))
    # Any type of constant is correct: times are dates in rows and in summaries, so both compare alike with it.
    return Bounds({"$expr": _over_summaries(compared)})


def _over_summaries(compared: Comparison) -> dict[str, Any]:
    low, high = f"$control.min.{compared.path}", f"$control.max.{compared.path}"
    match compared.operator:
        case "$gt" | "$gte":
            return {compared.operator: [high, compared.constant]}
        case "$lt" | "$lte":
            return {compared.operator: [low, compared.constant]}
        case _:
            return {"$and": [{"$gte": [high, compared.constant]}, {"$lte": [low, compared.constant]}]}


def _measurement_bound(compared: Comparison, scope: Scope) -> dict[str, Any] | None:
    """Not for ``$lt`` and ``$lte``: these match rows without the field, which summaries do not show (H3)."""
    if compared.operator not in ("$gt", "$gte", "$eq") or not is_plain_path(compared.path):
        return None
    if any(part.isdigit() for part in compared.path.split(".")):
        # A number means a position in an array in predicates only.
        return None
    value = literal(compared.constant, scope)
    if value is not None:
        return measurement_predicate(compared.path, {compared.operator: value[0]}, scope)
    if "." in compared.path:
        return None
    types = [*_ORDERED_LIKE_SUMMARIES, "string"] if scope.compares_like_buckets else _ORDERED_LIKE_SUMMARIES
    cannot_tell = {"$not": [{"$in": [{"$type": [compared.constant]}, types]}]}
    return {"$expr": {"$or": [_over_summaries(compared), cannot_tell]}}


def expressions_inside(predicate: Any) -> Iterator[Any]:
    """Every operand of ``$expr`` in a ``$match``."""
    if not isinstance(predicate, Mapping):
        return
    for key, operand in predicate.items():
        if key == "$expr":
            yield operand
        elif key in ("$and", "$or", "$nor") and isinstance(operand, list):
            for arm in operand:
                yield from expressions_inside(arm)


def is_safe_for_the_server(expression: Any, scope: Scope) -> bool:
    """Whether the server's own bounds for this operand of ``$expr`` are correct (H2, H3).

    This holds for the meta field, for comparisons of the time whose bounds on bucket ids do not wrap, and for
    comparisons of a measurement with a scalar that no row without the field matches.
    """
    operator, operands = only(expression) if isinstance(expression, dict) else ("", None)
    if operator in ("$and", "$or") and isinstance(operands, list):
        return all(is_safe_for_the_server(arm, scope) for arm in operands)
    if rename_expression(expression, scope) is not None:
        return True
    compared = comparison(expression, scope)
    if compared is None:
        return False
    if compared.path == scope.time_field:
        return is_time_of_ids(compared.constant, scope)
    return "." not in compared.path and _is_scalar_bound(compared, scope)


def _is_scalar_bound(compared: Comparison, scope: Scope) -> bool:
    return literal(compared.constant, scope) is not None and _measurement_bound(compared, scope) is not None


def is_calculated_time(expression: Any, scope: Scope) -> bool:
    """Whether this operand of ``$expr`` has a bound on the time that only the server can turn into bucket ids."""
    operator, operands = only(expression) if isinstance(expression, dict) else ("", None)
    if operator in ("$and", "$or") and isinstance(operands, list):
        return any(is_calculated_time(arm, scope) for arm in operands)
    compared = comparison(expression, scope)
    return compared is not None and compared.path == scope.time_field and literal(compared.constant, scope) is None
