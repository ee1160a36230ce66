"""``find`` as an aggregate (Q1, Q3). ``tests/differential/test_find.py`` runs it."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.namespaces import Namespace
from rewrite.commands.find import rewrite_find
from rewrite.plan import Cursor, PassThrough
from rewrite.profile import Profile
from tests.support.scopes import request


def test_order_of_stages() -> None:
    """Q1: match, sort, skip, limit, project."""
    body = {"find": "x", "projection": {"v": 1}, "limit": 3, "skip": 2.0, "sort": {"v": 1}, "filter": {"v": None}}
    plan = rewrite_find(request({**body, "batchSize": 7, "comment": "c", "hint": {"m": 1}}))
    assert isinstance(plan, Cursor)
    assert plan.namespace == Namespace("db", "x")
    command = plan.step.body
    names = [next(iter(stage)) for stage in command["pipeline"] if not next(iter(stage)).startswith("$_internal")]
    assert names == ["$match", "$sort", "$skip", "$limit", "$project"]
    assert command["aggregate"] == "system.buckets.x"
    assert (command["cursor"], command["comment"], command["hint"]) == ({"batchSize": 7}, "c", {"meta": 1})


def test_q4_errors_have_the_words_of_find() -> None:
    plan = rewrite_find(request({"find": "x", "projection": {"v": 1, "w": 0}}))
    assert isinstance(plan, Cursor)
    assert plan.reshape_error is not None
    assert plan.reshape_error({"ok": 0.0, "errmsg": "Invalid $project :: caused by :: no", "code": 2}) == {
        "ok": 0.0,
        "errmsg": "no",
        "code": 2,
    }
    for other in ({"ok": 0.0, "errmsg": "another"}, {"ok": 0.0}):
        assert plan.reshape_error(other) == other


def test_natural_sort_is_a_hint() -> None:
    """Q3."""
    plan = rewrite_find(request({"find": "x", "sort": {"$natural": -1}}))
    assert isinstance(plan, Cursor)
    assert plan.step.body["hint"] == {"$natural": -1}


@pytest.mark.parametrize(
    "options",
    [
        {"tailable": True}, {"showRecordId": True}, {"min": {"v": 1}}, {"singleBatch": True}, {"unknown": 1},
        {"filter": 5}, {"sort": 5}, {"limit": -1}, {"limit": "a"}, {"skip": 1.5}, {"limit": True},
        {"projection": {"a.$": 1}}, {"projection": {"a": {"$elemMatch": {}}}}, {"filter": {"$or": [{"$text": {}}]}},
        {"sort": {"$natural": 1, "v": 1}}, {"sort": {"$natural": 1}, "hint": "i"},
    ],
)  # fmt: skip
def test_what_the_backend_answers(options: dict[str, Any]) -> None:
    """Q3–Q5: refused on views, or not understood."""
    assert rewrite_find(request({"find": "x", **options})) == PassThrough()


def test_who_may_not_read_buckets() -> None:
    body = {"find": "x"}
    assert rewrite_find(request(body, reads_buckets=False)) == PassThrough()
    assert rewrite_find(request(body, target=None)) == PassThrough()
    assert rewrite_find(request(body, profile=Profile(version=(4, 4, 2)))) == PassThrough()
