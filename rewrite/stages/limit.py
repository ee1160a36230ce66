"""Adds a ``$limit`` before the unpacking: every bucket has at least one measurement (Q21)."""

from __future__ import annotations

from typing import Any

from rewrite.stages.draft import Draft, only
from rewrite.stages.scope import Scope

_LARGEST = 2**63 - 1


def push_limit(draft: Draft, scope: Scope) -> Draft:
    """Read at most ``skip + limit`` buckets if no other stage comes before the limit."""
    skipped = 0
    for stage in draft.tail:
        name, argument = only(stage)
        if name == "$skip" and _is_count(argument):
            skipped += argument
        elif name == "$limit" and _is_count(argument) and argument > 0:
            wanted = skipped + int(argument)
            return draft.with_head({"$limit": wanted}) if draft.unpacks and wanted <= _LARGEST else draft
        else:
            return draft
    return draft


def _is_count(argument: Any) -> bool:
    return isinstance(argument, int) and not isinstance(argument, bool) and argument >= 0
