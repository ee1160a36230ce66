"""Compares the rows of two reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import bson

from bench.kinds.kind import Kind


def differences(kind: Kind, wanted: Sequence[bytes], found: Sequence[bytes]) -> str:
    """What differs, for a person; empty if nothing does."""
    if len(wanted) != len(found):
        return f"{len(found)} rows instead of {len(wanted)}"
    if kind.compares == "number":
        return ""
    left, right = [canonical(row) for row in wanted], [canonical(row) for row in found]
    if is_ordered(kind):
        at = next((at for at, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1]), None)
        return "" if at is None else f"row {at} is {right[at][:300]} instead of {left[at][:300]}"
    counts, others = Counter(left), Counter(right)
    missing, more = counts - others, others - counts
    return "" if not missing else f"{next(iter(more))[:300]} instead of {next(iter(missing))[:300]}"


def is_ordered(kind: Kind) -> bool:
    """Whether the command determines the order of its rows."""
    sort = kind.command.get("sort")
    return isinstance(sort, dict) and bool(sort) and list(sort)[-1] == "_id"


def canonical(row: bytes) -> str:
    """A row in a form that does not depend on the order of fields (Q2) or on that of additions."""
    return repr(_canonical(bson.decode(row)))


def _canonical(value: Any) -> Any:
    match value:
        case dict():
            return {name: _canonical(value[name]) for name in sorted(value)}
        case list():
            return [_canonical(element) for element in value]
        case float():
            return f"{value:.10g}"
        case _:
            return value
