"""``distinct`` as an aggregate (Q1, C26)."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.commands.distinct import distinct_reply, rewrite_distinct, values_by_path, values_by_unwinding
from rewrite.plan import PassThrough, Single
from rewrite.profile import Profile
from tests.support.scopes import request


def test_stages_and_reply() -> None:
    """5.0 has no stage that takes a path apart."""
    plan = rewrite_distinct(request({"distinct": "x", "key": "v.a"}))
    assert isinstance(plan, Single)
    assert plan.step.body["pipeline"][-3:] == values_by_path("v.a")
    old = rewrite_distinct(request({"distinct": "x", "key": "v.a"}, profile=Profile(version=(5, 0, 4))))
    assert isinstance(old, Single)
    assert old.step.body["pipeline"][-4:] == values_by_unwinding("v.a")
    assert distinct_reply({"cursor": {"firstBatch": [{"distinct": [1]}]}, "ok": 1.0}) == {"values": [1], "ok": 1}
    assert distinct_reply({"cursor": {"firstBatch": []}, "ok": 1.0}) == {"values": [], "ok": 1}


@pytest.mark.parametrize(
    "options", [{}, {"key": 5}, {"key": ""}, {"key": "$a"}, {"key": "v", "query": 5}, {"key": "v", "hint": "i"}]
)
def test_what_the_backend_answers(options: dict[str, Any]) -> None:
    assert rewrite_distinct(request({"distinct": "x", **options})) == PassThrough()
