"""``distinct`` for clients that may not read the buckets (Q25); with them: tests/security/test_view_reads.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.namespaces import Granularity, TimeseriesOptions
from rewrite.commands.distinct import rewrite_distinct, values_by_path, values_by_unwinding
from rewrite.commands.explain import rewrite_explain
from rewrite.plan import PassThrough, Single
from rewrite.profile import Profile
from tests.support.scopes import TARGET, request


def plan_of(body: dict[str, Any], **fields: Any) -> Any:
    return rewrite_distinct(request({"distinct": "x", **body}, reads_buckets=False, **fields))


@pytest.mark.parametrize("query", [{}, {"m.b": {"$gt": 3}}, {"$or": [{"m": 1}, {"m.c": "x"}]}])
def test_values_inside_the_meta_field_come_from_groups(query: dict[str, Any]) -> None:
    plan = plan_of({"key": "m.a.b", "query": query, "maxTimeMS": 7, "readConcern": {"level": "local"}})
    assert isinstance(plan, Single)
    assert plan.step.body == {
        "aggregate": "x",
        "pipeline": [
            *([{"$match": query}] if query else []),
            {"$group": {"_id": "$m"}},
            *values_by_path("_id.a.b"),
        ],
        "cursor": {},
        "maxTimeMS": 7,
        "readConcern": {"level": "local"},
    }


@pytest.mark.parametrize(
    "body",
    [
        {"key": "m", "query": {"t": 1}},
        {"key": "v"},
        {"key": "t"},
        {"key": "m.a", "query": {"v": 1}},
        {"key": "m.a", "query": {"m.a": 1, "t": {"$gt": 1}}},
        {"key": "m.a", "query": {"$expr": {"$gt": ["$v", 1]}}},
        {"key": "m.a", "collation": {"locale": "en"}},
        {"key": "m.a", "hint": "i"},
        {"key": "m.a", "query": 5},
    ],
)
def test_everything_else_is_left_to_the_view(body: dict[str, Any]) -> None:
    assert plan_of(body) == PassThrough()


@pytest.mark.parametrize(
    "fields",
    [
        {"profile": Profile((8, 2, 11), unpacks_buckets=False)},
        {"target": replace(TARGET, collation={"locale": "en", "strength": 2})},
        {"target": replace(TARGET, options=TimeseriesOptions("t", None, Granularity.SECONDS, 3600, 60))},
        {"target": replace(TARGET, options=TimeseriesOptions("t", "m.n", Granularity.SECONDS, 3600, 60))},
        {"target": None},
    ],
)
def test_servers_and_collections_without_that_plan(fields: dict[str, Any]) -> None:
    assert plan_of({"key": "m.a"}, **fields) == PassThrough()


def test_the_whole_meta_value_is_guessed() -> None:
    plan = plan_of({"key": "m", "query": {"m": {"$gt": 3}}})
    assert isinstance(plan, Single)
    assert plan.otherwise is not None
    match = {"$match": {"m": {"$gt": 3}}}
    assert plan.step.body["pipeline"][:2] == [match, {"$group": {"_id": "$m"}}]
    assert plan.otherwise().body["pipeline"] == [match, *values_by_path("m")]
    assert plan_of({"key": "m"}, in_transaction=True) == PassThrough()
    assert rewrite_explain(request({"explain": {"distinct": "x", "key": "m"}}, reads_buckets=False)) == PassThrough()


def test_5_0_has_no_stage_that_takes_a_path_apart() -> None:
    plan = plan_of({"key": "m.a"}, profile=Profile((5, 0, 4)))
    assert isinstance(plan, Single)
    assert plan.step.body["pipeline"] == [{"$group": {"_id": "$m"}}, *values_by_unwinding("_id.a")]


def test_the_explain_shows_it() -> None:
    explained = {"distinct": "x", "key": "m.a"}
    plan = rewrite_explain(request({"explain": explained}, reads_buckets=False))
    assert isinstance(plan, Single)
    assert plan.step.body["explain"]["aggregate"] == "x"
    assert rewrite_explain(request({"explain": {"find": "x"}}, reads_buckets=False)) == PassThrough()
