"""What ``$expr`` says of buckets (Q19)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from rewrite.stages.expressions import expression_bounds, expressions_inside
from rewrite.stages.time_bounds import EVER, Interval, time_predicate
from tests.support.scopes import SCOPE

DATE = DatetimeMS(1_700_000_000_000)
LOW, HIGH = "$control.min.t", "$control.max.t"


@pytest.mark.parametrize(
    ("expression", "bucket"),
    [
        ({"$gte": ["$t", "$$NOW"]}, {"$expr": {"$gte": [HIGH, "$$NOW"]}}),
        ({"$lt": ["$$NOW", "$t"]}, {"$expr": {"$gt": [HIGH, "$$NOW"]}}),
        ({"$lte": ["$t", "$$NOW"]}, {"$expr": {"$lte": [LOW, "$$NOW"]}}),
        ({"$eq": ["$$NOW", "$t"]}, {"$expr": {"$and": [{"$gte": [HIGH, "$$NOW"]}, {"$lte": [LOW, "$$NOW"]}]}}),
        ({"$gt": ["$t", None]}, {"$expr": {"$gt": [HIGH, None]}}),
        ({"$gt": ["$v", 3]}, {"control.max.v": {"$_internalExprGt": 3}}),
        ({"$gte": [3, "$v"]}, None),
        ({"$lt": ["$v", 3]}, None),
        ({"$eq": ["$v", 3]}, {"control.min.v": {"$_internalExprLte": 3}, "control.max.v": {"$_internalExprGte": 3}}),
        ({"$gt": ["$v", None]}, None),
        ({"$gt": ["$v.0", 3]}, None),
        ({"$gt": ["$v.a", "$$NOW"]}, None),
        ({"$gt": ["$t.a", "$$NOW"]}, None),
        ({"$ne": ["$t", "$$NOW"]}, None),
        ({"$gt": ["$t", "$v"]}, None),
        ({"$gt": ["$t"]}, None),
        ({"$gt": ["$m.a", 3]}, {"$expr": {"$gt": ["$meta.a", 3]}}),
        ({"$in": ["$m.a", [3, "$m.b"]]}, {"$expr": {"$in": ["$meta.a", [3, "$meta.b"]]}}),
        ({"$gt": [{"$divide": [1, "$m.a"]}, 3]}, None),
        ({"$and": [{"$eq": ["$m", 1]}, {"$lt": ["$v", 3]}]}, {"$expr": {"$eq": ["$meta", 1]}}),
        (
            {"$or": [{"$ne": ["$m", 1]}, {"$gt": ["$v", 3]}]},
            {"$or": [{"$expr": {"$ne": ["$meta", 1]}}, {"control.max.v": {"$_internalExprGt": 3}}]},
        ),
        ({"$and": []}, None),
        ({"$and": [{"$gt": ["$v", 3]}, {"$lt": ["$v", 3]}]}, {"control.max.v": {"$_internalExprGt": 3}}),
        ({"$or": [{"$gt": ["$v", 3]}, {"$lt": ["$v", 3]}]}, None),
        ({"$or": [{"$gt": ["$v", 3]}]}, {"$or": [{"control.max.v": {"$_internalExprGt": 3}}]}),
        ({"$not": [{"$gt": ["$v", 3]}]}, None),
        ("$v", None),
    ],
)
def test_bounds(expression: Any, bucket: dict[str, Any] | None) -> None:
    """Either side, meta, and what says nothing: less (H3), negations, other types, what is not constant or may fail."""
    assert expression_bounds(expression, SCOPE).bucket == bucket


def test_dates_that_are_spelled_out_make_a_range_of_ids() -> None:
    expression = {"$and": [{"$gte": ["$t", DATE]}, {"$lt": ["$t", "$$until"]}]}
    bounds = expression_bounds(expression, replace(SCOPE, variables={"until": DatetimeMS(1_700_000_500_000)}))
    assert bounds.interval == Interval(1_700_000_000_000, 1_700_000_500_000)
    assert expression_bounds({"$gte": ["$t", DATE]}, SCOPE) == (
        time_predicate({"$gte": DATE}, SCOPE),
        Interval(int(DATE)),
    )
    assert expression_bounds({"$or": [{"$gte": ["$t", DATE]}]}, SCOPE).interval is EVER


def test_calculated_constants_bound_measurements_where_their_type_does() -> None:
    """Summaries merge objects and arrays; strings count if they compare as the collection does (H3)."""
    expression = {"$gt": ["$v", "$$x.y"]}
    for like_buckets in (True, False):
        scope = replace(SCOPE, variables={"x": {"y": ObjectId()}}, compares_like_buckets=like_buckets)
        bucket = expression_bounds(expression, scope).bucket
        assert bucket is not None
        compared, cannot_tell = bucket["$expr"]["$or"]
        assert compared == {"$gt": ["$control.max.v", "$$x.y"]}
        types = cannot_tell["$not"][0]["$in"][1]
        assert ("string" in types) is like_buckets
        assert {"object", "array", "missing", "null"}.isdisjoint(types)


def test_expressions_of_a_predicate() -> None:
    """Wherever they are."""
    predicate = {"$and": [{"$expr": 1}, {"$or": [{"$expr": 2}, {"v": {"$gt": 3}}]}], "$nor": [{"$expr": 3}], "$expr": 4}
    assert list(expressions_inside(predicate)) == [1, 2, 3, 4]
    assert list(expressions_inside(5)) == []
