"""Recognises expressions that cannot fail, whatever documents they read.

Only these may be evaluated where the server might not reach them: behind another condition, or for buckets none of
whose rows gets so far.
"""

from __future__ import annotations

from typing import Any

from rewrite.stages.constants import MOST_PARTS, is_constant
from rewrite.stages.scope import Scope

_TOTAL = frozenset({"$and", "$cmp", "$eq", "$gt", "$gte", "$ifNull", "$lt", "$lte", "$ne", "$not", "$or", "$type"})
"""Operators that accept operands of every type."""


def never_fails(expression: Any, scope: Scope) -> bool:
    """Whether this can be evaluated for every document; false if that is not certain."""
    waiting = [expression]
    for _ in range(MOST_PARTS):
        if not waiting:
            return True
        part = waiting.pop()
        match part:
            case str() if part.startswith("$") and not part.startswith("$$"):
                # A path returns a missing value where it leads nowhere.
                continue
            case {"$in": [sought, list() as among]} if len(part) == 1:
                waiting += [sought, *among]
            case dict() if len(part) == 1 and next(iter(part)) in _TOTAL:
                (operands,) = part.values()
                waiting += operands if isinstance(operands, list) else [operands]
            case _:
                if not is_constant(part, scope):
                    return False
    return False
