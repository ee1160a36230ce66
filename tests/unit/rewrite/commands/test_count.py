"""``count`` as an aggregate (Q1, C26)."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.commands.count import count_reply, rewrite_count
from rewrite.plan import PassThrough, Single
from tests.support.scopes import request


def test_stages_and_reply() -> None:
    """C26: ``ok`` is an int32; no row counts as none."""
    plan = rewrite_count(request({"count": "x", "query": {"v": None}, "skip": 1, "limit": 2}))
    assert isinstance(plan, Single)
    assert plan.step.body["pipeline"][-4:] == [
        {"$match": {"v": None}},
        {"$skip": 1},
        {"$limit": 2},
        {"$count": "count"},
    ]
    reply = {"cursor": {"firstBatch": [{"count": 3}]}, "ok": 1.0, "operationTime": 5}
    assert count_reply(reply) == {"n": 3, "ok": 1, "operationTime": 5}
    assert count_reply({"cursor": {"firstBatch": []}, "ok": 1.0}) == {"n": 0, "ok": 1}
    assert type(count_reply(reply)["ok"]) is int


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": -1}, {"skip": -1}, {"query": 5}, {"readConcern": {"level": "snapshot"}}, {"fields": {}}],
)
def test_what_the_backend_answers(options: dict[str, Any]) -> None:
    assert rewrite_count(request({"count": "x", **options})) == PassThrough()


def test_no_count_in_transactions() -> None:
    """X1."""
    assert rewrite_count(request({"count": "x"}, in_transaction=True)) == PassThrough()


def test_count_is_guessed_from_headers() -> None:
    """W6."""
    plan = rewrite_count(request({"count": "x", "query": {"m": 1}}))
    assert isinstance(plan, Single)
    assert plan.otherwise is not None
    assert "$unionWith" in str(plan.otherwise().body)
    assert "$unionWith" not in str(plan.step.body)
