"""Hints given in the user's schema, as the bucket collection knows its indexes (I1, I11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewrite.stages.meta_paths import rename_path
from rewrite.stages.scope import Scope


def bucket_hint(hint: Any, scope: Scope) -> Any:
    """A key pattern is mapped element by element; names and ``$natural`` stay."""
    if not isinstance(hint, Mapping) or "$natural" in hint:
        return hint
    pattern: dict[str, Any] = {}
    for path, value in hint.items():
        pattern |= _element(path, value, scope)
    return pattern


def _element(path: str, value: Any, scope: Scope) -> dict[str, Any]:
    meta = rename_path(path, scope)
    if meta is not None:
        return {meta: value}
    if value == "2dsphere":
        return {f"data.{path}": "2dsphere_bucket"}
    low, high = f"control.min.{path}", f"control.max.{path}"
    descends = isinstance(value, int | float) and value < 0
    return {high: value, low: value} if descends else {low: value, high: value}
