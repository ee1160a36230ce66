"""Keeps the backend from moving stages behind a ``$unionWith`` into its pipeline where they go wrong there (H15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rewrite.stages.dependencies import expression_columns, predicate_columns
from rewrite.stages.draft import INHIBIT, INHIBITS, Draft, Stage, is_pipeline, keys_inside, only, walk
from rewrite.stages.hazards import KEEPS_PROJECTIONS, REPLACING, computed_by, has_wrapping_date, is_hazard, leaves_out
from rewrite.stages.joins import JOINS, KEPT_FIRST, number_of_matches
from rewrite.stages.scope import Scope
from rewrite.stages.shaping import Shape, shapes, top_field
from rewrite.stages.time_bounds import millis

_MOVING = frozenset({"$addFields", "$match", "$project", "$redact", "$set", "$unset"})
"""Stages that servers move into the pipeline of a ``$unionWith``."""


def keep_stages_behind_unions(draft: Draft, scope: Scope) -> Draft:
    """Inhibit the optimiser behind each ``$unionWith`` where the backend would move a stage wrongly.

    What the joined collection is, is not known here, so it is taken for a time-series collection with any meta field.
    """
    if not any(only(stage)[0] in JOINS for stage in draft.tail):
        return draft
    # A variable of the command may be another one in the pipeline of a ``$lookup``.
    return draft._replace(tail=tuple(_kept_behind(draft.tail, replace(scope, variables={}))))


def _kept_behind(stages: Sequence[Stage], scope: Scope) -> list[Stage]:
    kept: list[Stage] = []
    for stage in reversed(stages):
        name, argument = only(stage)
        union = _union(argument) if name == "$unionWith" else None
        if union is not None:
            kept = _union_and_what_follows(union, kept, scope)
        elif name == "$lookup" and isinstance(argument, dict) and is_pipeline(argument.get("pipeline")):
            kept.insert(0, {name: {**argument, "pipeline": _kept_behind(argument["pipeline"], scope)}})
        else:
            kept.insert(0, stage)
    return kept


def _union(argument: Any) -> dict[str, Any] | None:
    """The argument of a ``$unionWith`` with its pipeline; ``None`` if it is malformed."""
    union = {"coll": argument} if isinstance(argument, str) else argument
    return {"pipeline": [], **union} if isinstance(union, dict) and is_pipeline(union.get("pipeline", [])) else None


def _union_and_what_follows(union: dict[str, Any], rest: list[Stage], scope: Scope) -> list[Stage]:
    """The stages, with what inhibits the optimiser before the first of ``rest`` that would be wrong if it moved.

    Each ``$match`` on fields that no stage has changed since is applied before the union and inside it instead.
    """
    inner: list[Stage] = union["pipeline"]
    moved: list[Stage] = []
    if _go_wrong(rest, inner, scope):
        places = _movable(rest, inner, scope)
        moved = [stage for at, stage in enumerate(rest) if at in places]
        rest = [stage for at, stage in enumerate(rest) if at not in places]
        if _go_wrong(rest, inner, scope):
            rest = [INHIBITS, *rest]
    inner = _kept_behind([*inner, *moved], scope)
    if _compute_from_any_wrongly(inner, (), scope) and only(inner[0])[0] not in KEPT_FIRST:
        leading = number_of_matches(inner)
        inner = [*inner[:leading], INHIBITS, *inner[leading:]]
    return [*moved, {"$unionWith": {**union, "pipeline": inner}}, *rest]


def _movable(rest: Sequence[Stage], inner: Sequence[Stage], scope: Scope) -> set[int]:
    """The places of each ``$match`` in ``rest`` that both sides may apply by themselves before all of ``rest``."""
    if len(rest) > _MOST_JUDGED:
        return set()
    # 5.0 moves a ``$match`` in front of a ``$project`` that leaves its field out.
    if _is_old(scope) and any(only(stage)[0] != "$match" for stage in inner):
        return set()
    inputs = enumerate(zip(rest, shapes(rest), strict=False))
    return {at for at, (stage, shape) in inputs if _may_be_moved(stage, shape, scope)}


def _is_old(scope: Scope) -> bool:
    """Whether the backend's optimiser is wrong too often (V1)."""
    return scope.profile.version < (6, 0, 0)


def _may_be_moved(stage: Stage, shape: Shape, scope: Scope) -> bool:
    """Whether a stage is a ``$match`` on fields that are as they were stored; ``shape``: that of its input."""
    name, predicate = only(stage)
    if name != "$match" or not isinstance(predicate, dict) or "$text" in keys_inside(predicate):
        return False
    columns = predicate_columns(predicate)
    is_as_stored = shape == Shape() or (columns is not None and shape.has(columns))
    return is_as_stored and not _loses_rows(stage, scope)


def _loses_rows(match: Stage, scope: Scope) -> bool:
    """Whether the backend may lose rows for this ``$match`` on a time-series collection (H2, H3)."""
    if is_hazard(match, scope, Shape()) or has_wrapping_date(match, scope):
        return True
    return scope.extended_range and any(millis(value) is not None for value in walk(match))


def _go_wrong(rest: Sequence[Stage], inner: Sequence[Stage], scope: Scope) -> bool:
    """Whether a stage behind a ``$unionWith`` with the pipeline ``inner`` is wrong if the backend moves it there."""
    if len(rest) > _MOST_JUDGED:
        return True
    overwrites = scope.profile.version >= _OVERWRITES
    for stage in rest:
        name = only(stage)[0]
        if name in REPLACING or name == INHIBIT:
            break
        if _is_old(scope) and name in _MOVING:
            return True
        if name == "$match" and (overwrites or _loses_rows(stage, scope)):
            return True
    return _compute_from_any_wrongly(rest, inner, scope)


_MOST_JUDGED = 40
"""If more stages follow, they are not judged one by one, which would take long if many of them are unions."""
_OVERWRITES = (6, 0, 6)
"""From here on, a ``$match`` that moves in may replace one that is there: on 6.0.27 it does, on 6.0.5 it does not."""


def _compute_from_any_wrongly(stages: Sequence[Stage], before: Sequence[Stage], scope: Scope) -> bool:
    """Whether fields of these stages would be wrong in a time-series collection with any meta field (H12, H13).

    That is so for a field that is computed from itself alone, and for one that is computed from any field alone,
    ``before`` or here, and left out by a ``$project``.
    """
    keeps_projections = scope.profile.version >= KEEPS_PROJECTIONS
    computed = set() if keeps_projections else {top_field(path) for stage in before for path in _from_one(stage)}
    for stage in stages:
        name, argument = only(stage)
        if name in REPLACING or name == INHIBIT:
            return False
        found = _from_one(stage)
        if any(column is None or column == top_field(path) for path, column in found.items()):
            return True
        if not keeps_projections:
            computed |= {top_field(path) for path in found}
            if leaves_out(computed, name, argument):
                return True
    return False


def _from_one(stage: Stage) -> dict[str, str | None]:
    """The fields that a stage computes from one field alone, with that field; ``None`` if it may be any."""
    name, argument = only(stage)
    found: dict[str, str | None] = {}
    for path, value in computed_by(name, argument).items():
        columns = expression_columns(value)
        if columns is None:
            found[path] = None
            continue
        if name == "$fill":
            columns |= {top_field(path)}
        if len(columns) == 1:
            found[path] = next(iter(columns))
    return found
