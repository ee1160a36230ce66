"""Expressions that cannot fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rewrite.stages.total import never_fails
from tests.support.scopes import SCOPE


@pytest.mark.parametrize(
    ("expression", "never"),
    [
        ("$m.a", True),
        (5, True),
        ("$$NOW", True),
        ("$$known.a", True),
        ("$$unknown", False),
        ("$$ROOT", False),
        ({"$eq": ["$m.a", {"$literal": "$x"}]}, True),
        ({"$and": [{"$ne": ["$m", None]}, {"$not": [{"$gt": ["$m.a", "$m.b"]}]}]}, True),
        ({"$in": ["$m.a", ["$m.b", 5]]}, True),
        ({"$in": ["$m.a", "$m.b"]}, False),
        ({"$in": ["$m.a", list(range(100))]}, False),
        ({"$eq": [{"$add": ["$m.a", 1]}, 2]}, False),
        ({"$eq": [{"$add": [1, 1]}, "$m.a"]}, True),
        ({"$eq": [{"a": "$m.a"}, 2]}, False),
        ({"$gt": [{"$size": "$m.a"}, 2]}, False),
        ({"$not": "$m.a"}, True),
    ],
)
def test_expressions(expression: Any, never: bool) -> None:
    """Operators that accept every type, of paths and constants."""
    assert never_fails(expression, replace(SCOPE, variables={"known": 1})) is never
