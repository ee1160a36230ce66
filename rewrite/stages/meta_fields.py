"""Rewrites updates of the meta field with its stored name (U3); for queries and expressions, see ``meta_paths``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.namespaces import TimeseriesOptions
from rewrite.plan import Document

STORED_META = "meta"
"""The field of a bucket that contains the meta value (W3)."""


def meta_path(path: str, options: TimeseriesOptions) -> str | None:
    """``m.a`` → ``meta.a``; ``None`` for a path outside the meta field, or if there is no meta field."""
    head, dot, tail = path.partition(".")
    if options.meta_field is None or head != options.meta_field:
        return None
    return STORED_META + dot + tail


def rename_update(update: Mapping[str, Any], options: TimeseriesOptions) -> Document | None:
    """An update with operators, applied to ``meta``; ``None`` if it changes anything else (U1.6).

    Both paths of ``$rename`` must be in the meta field.
    """
    renamed: Document = {}
    for operator, changes in update.items():
        if not isinstance(changes, dict):
            return None
        paths = [meta_path(path, options) for path in changes]
        values: Sequence[Any] = list(changes.values())
        if operator == "$rename":
            values = [meta_path(value, options) if isinstance(value, str) else None for value in values]
        if None in paths or (operator == "$rename" and None in values):
            return None
        renamed[operator] = dict(zip(paths, values, strict=True))
    return renamed
