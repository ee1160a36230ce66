"""Finds the distinct values of a path in the meta field from the headers of buckets."""

from __future__ import annotations

from rewrite.stages.draft import Draft, Stage, only
from rewrite.stages.meta_paths import rename_path
from rewrite.stages.scope import Scope

VALUE = "_internalUnwoundArray"


def values_stage(path: str) -> Stage:
    """A stage that returns all values at ``path``, including the elements of arrays, as the array field ``VALUE``."""
    return {"$replaceRoot": {"newRoot": {VALUE: {"$_internalFindAllValuesAtPath": path}}}}


def distinct_from_headers(draft: Draft, scope: Scope) -> Draft:
    """Read values from headers, and each meta value once, because buckets of a series have the same one."""
    path = _values_path(draft)
    renamed = None if path is None or not scope.plain_names else rename_path(path, scope)
    if path is None or renamed is None:
        return draft
    if "." not in renamed:
        # Grouping would turn a missing meta value into null.
        return draft._replace(tail=(values_stage(renamed), *draft.tail[1:]), unpacks=False)
    inside = renamed.split(".", 1)[1]
    once = draft.with_head({"$group": {"_id": "$meta"}})
    return once._replace(tail=(values_stage(f"_id.{inside}"), *draft.tail[1:]), unpacks=False)


def _values_path(draft: Draft) -> str | None:
    match only(draft.tail[0]) if draft.tail and draft.unpacks else None:
        case "$replaceRoot", {"newRoot": dict() as root} if len(root) == 1 and VALUE in root:
            match root[VALUE]:
                case {"$_internalFindAllValuesAtPath": str() as path}:
                    return path
    return None
