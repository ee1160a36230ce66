"""Applies leading ``$match`` stages to buckets, before the unpacking (Q10–Q16, Q19)."""

from __future__ import annotations

from typing import Any

from rewrite.stages.dependencies import predicate_columns
from rewrite.stages.draft import Draft, Stage, only
from rewrite.stages.measurement_bounds import conjunction
from rewrite.stages.predicate import split
from rewrite.stages.scope import Scope
from rewrite.stages.shaping import shapes
from rewrite.stages.time_bounds import EVER, Interval


def push_leading_match(draft: Draft, scope: Scope) -> Draft:
    """Move predicates on the meta field before the unpacking, and add bounds on time and measurements there."""
    if not scope.plain_names:
        return draft
    pushed = []
    interval = EVER
    residual: list[Stage] = []
    leading = 0
    for stage in draft.tail:
        name, predicate = only(stage)
        if name != "$match" or not isinstance(predicate, dict):
            break
        leading += 1
        part = split(predicate, scope)
        interval = interval.intersect(part.interval)
        if part.bucket:
            pushed.append(part.bucket)
        if part.residual:
            residual.append({"$match": part.residual})
    if draft.inhibits and leading < len(draft.tail):
        interval = interval.intersect(_bounds_of_later(draft, leading, scope, pushed))
    ids = interval.id_predicate(scope)
    if ids is not None:
        pushed.insert(0, ids)
    bucket = conjunction(pushed)
    if bucket is None:
        return draft
    return draft.with_head({"$match": bucket})._replace(tail=(*residual, *draft.tail[leading:]))


def _bounds_of_later(draft: Draft, leading: int, scope: Scope, pushed: list[dict[str, Any]]) -> Interval:
    """Add the bounds of ``$match`` stages behind others to ``pushed``, as the backend's optimiser is inhibited.

    These stages stay where they are. Only predicates on fields that are still as they were stored have bounds.
    """
    interval = EVER
    inputs = shapes(draft.tail)
    for stage, shape in zip(draft.tail[leading:], inputs[leading:], strict=False):
        name, predicate = only(stage)
        columns = predicate_columns(predicate) if name == "$match" else None
        if columns is None or not shape.has(columns):
            continue
        part = split(predicate, scope)
        interval = interval.intersect(part.interval)
        if part.bucket:
            pushed.append(part.bucket)
    return interval
