"""``$limit`` before the unpacking (Q21)."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.stages.limit import push_limit
from tests.support.scopes import SCOPE, draft


@pytest.mark.parametrize(
    ("stages", "buckets"),
    [
        ([{"$limit": 3}], 3),
        ([{"$skip": 2}, {"$limit": 3}], 5),
        ([{"$limit": 3}, {"$match": {"v": 1}}], 3),
        ([{"$match": {"v": 1}}, {"$limit": 3}], None),
        ([{"$sort": {"t": 1}}, {"$limit": 3}], None),
        ([{"$skip": 3}], None),
        ([{"$limit": 0}], None),
        ([{"$limit": "3"}], None),
        ([{"$limit": True}], None),
        ([{"$skip": 2**63 - 1}, {"$limit": 1}], None),
    ],
)
def test_limits(stages: list[dict[str, Any]], buckets: int | None) -> None:
    """Every bucket holds at least one measurement."""
    after = push_limit(draft(*stages), SCOPE)
    assert after.head == (() if buckets is None else ({"$limit": buckets},))
    assert after.tail == tuple(stages)
