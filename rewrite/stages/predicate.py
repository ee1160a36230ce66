"""Splits a ``$match`` on measurements into a predicate on buckets and one on measurements (Q10–Q16, Q19).

Every bucket with a matching measurement satisfies the first. The second, the residual, is applied to measurements; it
contains everything but predicates on the meta field, which are exact for buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewrite.stages.expressions import expression_bounds
from rewrite.stages.measurement_bounds import conjunction, measurement_predicate
from rewrite.stages.meta_paths import rename_path, rename_predicate
from rewrite.stages.scope import Scope
from rewrite.stages.time_bounds import EVER, Interval, time_predicate


@dataclass(frozen=True, slots=True)
class Split:
    """``bucket``: the predicate on buckets (``None`` if there is none); ``residual``: the one on measurements.

    ``interval``: the times that the predicate allows. ``moved``: the whole predicate on ``meta``, if it is about no
    other field (``rename_predicate``).
    """

    bucket: dict[str, Any] | None
    residual: dict[str, Any] | None
    interval: Interval
    moved: dict[str, Any] | None = None


def split(predicate: Mapping[str, Any], scope: Scope) -> Split:
    """Split the predicate of a ``$match``; visits each part once."""
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
        if key == "$expr":
            bounds = expression_bounds(operand, scope)
            parts.interval = parts.interval.intersect(bounds.interval)
            if bounds.bucket is not None:
                parts.buckets.append(bounds.bucket)
            continue
        necessary = _necessary(key, operand, scope)
        if necessary is not None:
            parts.buckets.append(necessary)
    return Split(conjunction(parts.buckets), parts.residual or None, parts.interval, parts.moved or None)


_LOGICAL = frozenset({"$and", "$or", "$nor"})


@dataclass(slots=True)
class _Parts:
    """The parts of a ``Split`` in the making."""

    buckets: list[dict[str, Any]] = field(default_factory=list)
    residual: dict[str, Any] = field(default_factory=dict)
    interval: Interval = EVER
    moved: dict[str, Any] | None = field(default_factory=dict)

    def move(self, moved: dict[str, Any]) -> None:
        """Add a part that is about the meta field alone."""
        if self.moved is not None:
            self.moved.update(moved)

    def combine(self, operator: str, operand: list[Any], arms: list[Split]) -> None:
        """Add a logical operator; ``$or`` gives a predicate on buckets only if each of its arms does.

        Of ``$nor``, the arms on the meta field do.
        """
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
        if moved and (is_moved or operator == "$nor"):
            self.buckets.append({operator: moved})
        if is_moved:
            return
        if operator == "$nor":
            # A measurement that matches none of them matches none of those on the meta field, nor of the others.
            operand = [each for each, arm in zip(operand, arms, strict=True) if arm.moved is None]
        self.residual[operator] = operand
        pushed = [arm.bucket for arm in arms if arm.bucket is not None]
        if operator == "$or" and len(pushed) == len(arms):
            self.buckets.append({operator: pushed})


def _necessary(key: str, operand: Any, scope: Scope) -> dict[str, Any] | None:
    if key.startswith("$"):
        return None
    if key == scope.time_field:
        return time_predicate(operand, scope)
    if rename_path(key, scope) is not None:
        return None
    return measurement_predicate(key, operand, scope)
