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


@pytest.mark.parametrize(
    ("options", "guesses"),
    [
        ({"cursor": {}}, True),
        ({"cursor": {"batchSize": 1}}, True),
        ({"cursor": {"batchSize": 0}}, False),
        ({"explain": True}, False),
        ({"cursor": {}, "pipeline": [{"$group": {"_id": "$m", "until": {"$max": "$t"}}}]}, False),
    ],
)
def test_guess_has_the_sure_command_behind_it(options: dict[str, Any], guesses: bool) -> None:
    """H4; an error that would come with a later batch, or in an explanation, is none to guess for."""
    body = {
        "aggregate": "x",
        "pipeline": [{"$group": {"_id": "$m", "high": {"$max": "$v"}}}],
        "comment": "c",
        **options,
    }
    plan = rewrite_aggregate(request(body))
    assert isinstance(plan, Cursor | Single)
    assert (plan.otherwise is not None) == guesses
    if plan.otherwise is not None:
        sure = plan.otherwise().body
        assert sure == {**plan.step.body, "pipeline": sure["pipeline"]}
        assert "$unionWith" in str(sure["pipeline"])
    assert "$toInt" not in str((plan.otherwise() if guesses else plan.step).body)
    assert not getattr(rewrite_aggregate(request(body, in_transaction=True)), "otherwise", None)
