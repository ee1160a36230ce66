"""Makes a ``$match`` behind other stages find fields with an empty name (H18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.bson.codec import encode
from catalog.bson.faithful import Opaque
from catalog.bson.raw import document
from rewrite.stages.draft import INHIBITS, Draft, Stage, is_pipeline, keys_inside, only
from rewrite.stages.joins import JOINS
from rewrite.stages.scope import Scope

READS_ALL: Mapping[str, Any] = {"$expr": "$$ROOT"}
"""True for every document. A ``$match`` with it looks at whole documents, not only at the fields that it names."""


def find_empty_names(draft: Draft, scope: Scope) -> Draft:
    """Let each ``$match`` find fields with an empty name, also in the pipeline of a ``$lookup`` or ``$unionWith``.

    The server must not move a part of it in front of other stages, where this part would find them no more.
    """
    if not any(map(_needs_all, draft.tail)):
        return draft
    return draft._replace(tail=tuple(_finding(draft.tail, stays=False)))


def _finding(stages: Sequence[Stage], *, stays: bool) -> list[Stage]:
    """``stays``: the server must not move the first of the stages either, because the unpacking is in front of it."""
    finding: list[Stage] = []
    for stage in stages:
        name, argument = only(stage)
        if not _needs_all(stage):
            finding.append(stage)
        elif name in JOINS:
            finding.append({name: {**argument, "pipeline": _finding(argument["pipeline"], stays=True)}})
        else:
            if stays or any(only(before)[0] != "$match" for before in finding):
                finding.append(INHIBITS)
            finding.append({"$match": reading_all(argument)})
    return finding


def _needs_all(stage: Stage) -> bool:
    name, argument = only(stage)
    if not isinstance(argument, dict):
        return False
    if name in JOINS:
        stages = argument.get("pipeline")
        return is_pipeline(stages) and any(map(_needs_all, stages))
    # One that searches for text must be the first of all.
    return name == "$match" and may_name_empty(argument) and "$text" not in keys_inside(argument)


def reading_all(query: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same query, but one that finds fields with an empty name at any place in a pipeline."""
    if isinstance(query, Opaque):
        # Its own fields follow, so that it is not nested deeper than the client sent it.
        return Opaque(document([encode(READS_ALL)[4:-1], bytes(query.raw)[4:-1]]))
    return {"$and": [READS_ALL, query]} if may_name_empty(query) else query


def may_name_empty(query: Mapping[str, Any]) -> bool:
    """Whether the query may have a path with an empty name in it."""
    return any(_is_about_empty(key, operand) for key, operand in query.items())


def _is_about_empty(key: str, operand: Any) -> bool:
    if key in ("$and", "$or", "$nor"):
        return isinstance(operand, list) and any(isinstance(arm, dict) and may_name_empty(arm) for arm in operand)
    return key == "$jsonSchema" or "" in key.split(".")
