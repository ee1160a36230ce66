"""``explain`` of reads (Q6)."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.commands.explain import TRANSLATORS, rewrite_explain
from rewrite.plan import PassThrough, Single
from tests.support.scopes import request

BODIES: dict[str, dict[str, Any]] = {"aggregate": {"pipeline": [], "cursor": {}}, "distinct": {"key": "v"}}


@pytest.mark.parametrize("name", sorted(TRANSLATORS))
def test_explains_what_would_be_run(name: str) -> None:
    explained = {name: "x", **BODIES.get(name, {})}
    plan = rewrite_explain(request({"explain": explained, "verbosity": "executionStats"}))
    assert isinstance(plan, Single)
    assert plan.step.body["explain"]["aggregate"] == "system.buckets.x"
    assert plan.step.body["verbosity"] == "executionStats"


@pytest.mark.parametrize("explained", [5, {}, {"update": "x", "updates": []}, {"find": "x", "tailable": True}])
def test_what_the_backend_answers(explained: Any) -> None:
    """C23."""
    assert rewrite_explain(request({"explain": explained})) == PassThrough()
