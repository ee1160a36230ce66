"""Keeps the backend from answering every row of a ``$lookup`` with what it found for the first one (H14)."""

from __future__ import annotations

from rewrite.stages.draft import INHIBITS, Draft, Stage, is_pipeline, keys_inside, only, walk
from rewrite.stages.scope import Scope

KEPT_FIRST = frozenset(
    {"$collStats", "$documents", "$geoNear", "$indexStats", "$search", "$searchMeta", "$vectorSearch"}
)
"""Stages that must be first in a pipeline."""


def keep_variables_apart(draft: Draft, scope: Scope) -> Draft:
    """Stop 6.0.5 from moving stages in the pipeline of a ``$lookup`` with variables.

    The backend keeps the result of the stages that come before the first use of a variable. It takes them by their
    number, and a stage that is moved changes that number. A ``$facet`` cannot look up measurements.
    """
    affected = _FIRST <= scope.profile.version < _KEEPS_APART
    if not affected or not any(only(stage)[0] in JOINS for stage in draft.tail):
        return draft
    return draft._replace(tail=tuple(_joined(stage, has_variables=False) for stage in draft.tail))


JOINS = frozenset({"$lookup", "$unionWith"})
"""Stages with pipelines in them. Servers refuse to unpack buckets, and to be inhibited, in a ``$facet``."""
_FIRST = (6, 0, 0)
_KEEPS_APART = (6, 0, 27)
"""The earliest release known to keep the results of each row apart again, as 5.0.4 does."""


def _joined(stage: Stage, *, has_variables: bool) -> Stage:
    """A stage with what inhibits the optimiser in the pipelines inside it, where a variable may be used."""
    name, argument = only(stage)
    if name not in JOINS or not isinstance(argument, dict):
        return stage
    stages = argument.get("pipeline")
    if not is_pipeline(stages):
        return stage
    if name == "$lookup":
        has_variables = has_variables or bool(argument.get("let"))
    inner = [_joined(each, has_variables=has_variables) for each in stages]
    return {name: {**argument, "pipeline": _inhibited(inner) if name == "$lookup" and has_variables else inner}}


def _inhibited(stages: list[Stage]) -> list[Stage]:
    """The stages, of which none moves; each ``$match`` in front becomes a part of one, which can still use an index."""
    if "$text" in keys_inside(stages):
        return stages
    leading = number_of_matches(stages)
    rest = stages[leading:]
    if not leading and rest and only(rest[0])[0] in KEPT_FIRST:
        return stages
    arms = [only(stage)[1] for stage in stages[:leading]]
    first: list[Stage] = [{"$match": {"$and": arms}}] if leading > 1 else stages[:leading]
    return [*first, INHIBITS, *rest] if _may_move(rest) else [*first, *rest]


def _may_move(stages: list[Stage]) -> bool:
    """Whether one of these may move in front of the first use of a variable."""
    names = [only(stage)[0] for stage in stages]
    if not _FAR_MOVING.isdisjoint(names):
        return True
    uses_variables = any(isinstance(value, str) and value.startswith("$$") for value in walk(stages))
    return uses_variables and not _MOVING.isdisjoint(names[1:])


_FAR_MOVING = frozenset({"$match", "$redact"})
_MOVING = frozenset({"$limit", "$skip", "$sort"})
"""Stages that move in front of others, but not of a ``$match``."""


def number_of_matches(stages: list[Stage]) -> int:
    """How many stages in front are a ``$match``."""
    for number, stage in enumerate(stages):
        name, predicate = only(stage)
        if name != "$match" or not isinstance(predicate, dict):
            return number
    return len(stages)
