"""Applies leading ``$match`` stages to buckets, before the unpacking (Q10–Q16, Q19)."""

from __future__ import annotations

from rewrite.stages.draft import Draft, Stage, only
from rewrite.stages.measurement_bounds import conjunction
from rewrite.stages.predicate import split
from rewrite.stages.scope import Scope
from rewrite.stages.time_bounds import EVER


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
    ids = interval.id_predicate(scope)
    if ids is not None:
        pushed.insert(0, ids)
    bucket = conjunction(pushed)
    if bucket is None:
        return draft
    return draft.with_head({"$match": bucket})._replace(tail=(*residual, *draft.tail[leading:]))
