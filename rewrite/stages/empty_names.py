"""Makes a ``$match`` behind other stages find fields with an empty name (H18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.bson.codec import encode
from catalog.bson.faithful import Opaque
from catalog.bson.raw import document
from rewrite.stages.draft import INHIBITS, Draft, Stage, only
from rewrite.stages.scope import Scope

READS_ALL: Mapping[str, Any] = {"$expr": "$$ROOT"}
"""True for every document. A ``$match`` with it looks at whole documents, not only at the fields that it names."""


def find_empty_names(draft: Draft, scope: Scope) -> Draft:
    """Let each ``$match`` find fields with an empty name.

    The server must not move a part of it in front of other stages, where this part would find them no more.
    """
    if not any(map(_needs_all, draft.tail)):
        return draft
    tail: list[Stage] = []
    for stage in draft.tail:
        if not _needs_all(stage):
            tail.append(stage)
            continue
        if any(only(before)[0] != "$match" for before in tail):
            tail.append(INHIBITS)
        tail.append({"$match": reading_all(stage["$match"])})
    return draft._replace(tail=tuple(tail))


def _needs_all(stage: Stage) -> bool:
    name, predicate = only(stage)
    return name == "$match" and isinstance(predicate, dict) and may_name_empty(predicate)


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
