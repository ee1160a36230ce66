"""``aggregate`` on the buckets (Q1, C23)."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.commands.aggregate import LEFT_TO_THE_VIEW, rewrite_aggregate
from rewrite.plan import Cursor, PassThrough, Single
from tests.support.scopes import request


def test_options_stay() -> None:
    body = {"aggregate": "x", "pipeline": [], "cursor": {"batchSize": 2}, "let": {"a": 1}, "hint": {"t": 1}}
    plan = rewrite_aggregate(request(body))
    assert isinstance(plan, Cursor)
    assert list(plan.step.body) == list(body)
    assert plan.step.body["aggregate"] == "system.buckets.x"
    assert plan.step.body["hint"] == {"control.min.t": 1, "control.max.t": 1}
    assert isinstance(rewrite_aggregate(request({**body, "explain": True})), Single)


@pytest.mark.parametrize("stage", sorted(LEFT_TO_THE_VIEW))
def test_stages_about_the_collection(stage: str) -> None:
    """C23, Q5: the view answers or refuses."""
    assert rewrite_aggregate(request({"aggregate": "x", "pipeline": [{stage: {}}], "cursor": {}})) == PassThrough()


@pytest.mark.parametrize("pipeline", [None, 5, [5], [{}], [{"a": 1, "b": 2}], [{"$_internalUnpackBucket": {}}]])
def test_malformed_pipelines(pipeline: Any) -> None:
    assert rewrite_aggregate(request({"aggregate": "x", "pipeline": pipeline, "cursor": {}})) == PassThrough()
