"""What predicates on measurements say of buckets (Q10–Q16)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Binary, Decimal128, MaxKey, ObjectId, Regex

from rewrite.stages.measurement_bounds import conjunction
from rewrite.stages.predicate import split
from tests.support.scopes import SCOPE

LOW, HIGH = "control.min.v", "control.max.v"
EQUAL_3 = {LOW: {"$_internalExprLte": 3}, HIGH: {"$_internalExprGte": 3}}


@pytest.mark.parametrize(
    ("operand", "bucket"),
    [
        ({"$gt": 3}, {HIGH: {"$_internalExprGt": 3}}),
        ({"$gte": 3}, {HIGH: {"$_internalExprGte": 3}}),
        ({"$lt": 3}, {LOW: {"$_internalExprLt": 3}}),
        ({"$lte": 3}, {LOW: {"$_internalExprLte": 3}}),
        ({"$eq": 3}, EQUAL_3),
        (3, EQUAL_3),
        ({"$in": [3]}, {"$or": [EQUAL_3]}),
        ({"$exists": True}, {LOW: {"$exists": True}, HIGH: {"$exists": True}}),
        ({"$gt": 3, "$ne": 5}, {HIGH: {"$_internalExprGt": 3}}),
        ({"$gt": 3, "$lt": 9}, {HIGH: {"$_internalExprGt": 3}, LOW: {"$_internalExprLt": 9}}),
    ],
)
def test_bounds_on_measurements(operand: Any, bucket: dict[str, Any]) -> None:
    """Q13: the bucket predicate is necessary, the user's predicate stays."""
    part = split({"v": operand}, SCOPE)
    assert part.bucket == bucket
    assert part.residual == {"v": operand}


@pytest.mark.parametrize(
    "operand",
    [
        None, {"a": 1}, [1], Regex("a"), MaxKey(), {"$ne": 1}, {"$nin": [1]}, {"$not": {"$gt": 1}}, {"$type": 1},
        {"$exists": False}, {"$regex": "a"}, {"$size": 1}, {"$mod": [2, 0]}, {"$in": [1, None]}, {"$in": []},
        {"$elemMatch": {"$gt": 1}}, {"$gt": [1]}, {"$eq": None},
    ],
)  # fmt: skip
def test_what_says_nothing_of_buckets(operand: Any) -> None:
    """Q14, Q15."""
    part = split({"v": operand}, SCOPE)
    assert (part.bucket, part.residual) == (None, {"v": operand})


@pytest.mark.parametrize("value", [1.5, float("nan"), True, Decimal128("1"), ObjectId(), Binary(b"a"), "text"])
def test_scalars(value: Any) -> None:
    """Q14."""
    assert split({"v": value}, SCOPE).bucket is not None


def test_strings_under_another_collation() -> None:
    """Q14, H3."""
    scope = replace(SCOPE, compares_like_buckets=False)
    assert split({"v": "text"}, scope).bucket is None
    assert split({"v": {"$in": [1, "text"]}}, scope).bucket is None
    assert split({"v": 1}, scope).bucket is not None


def test_dotted_paths_are_guarded_against_mixed_types() -> None:
    """Q16."""
    bucket = split({"v.a": {"$gt": 1}}, SCOPE).bucket
    assert bucket == {
        "$or": [
            {"control.max.v.a": {"$_internalExprGt": 1}},
            {"$expr": {"$ne": [{"$type": "$control.min.v"}, {"$type": "$control.max.v"}]}},
        ]
    }


@pytest.mark.parametrize("path", ["v", "v.a"])
def test_arrays_among_other_values_are_in_no_summary(path: str) -> None:
    """Q16: where a server may have put them into one bucket."""
    bucket = split({path: {"$lt": 1}}, replace(SCOPE, mixed_types=True)).bucket
    low, high = f"$control.min.{path}", f"$control.max.{path}"
    hidden = {"$expr": {"$and": [{"$lt": [low, Binary(b"")]}, {"$gte": [high, []]}]}}
    assert bucket is not None
    assert bucket["$or"][0] == {low[1:]: {"$_internalExprLt": 1}}
    assert bucket["$or"][-1] == hidden


def test_conjunctions_split() -> None:
    """Q10: meta leaves the residue, the rest stays there."""
    part = split({"m.a": 1, "$and": [{"m.b": 2}, {"v": 3}]}, SCOPE)
    assert part.residual == {"$and": [{"v": 3}]}
    assert part.bucket == {"meta.a": 1, "meta.b": 2, **EQUAL_3}


def test_disjunctions_need_every_arm() -> None:
    """Q10."""
    both = {"$or": [{"m": 1}, {"v": 3}]}
    assert split(both, SCOPE).bucket == {"$or": [{"meta": 1}, EQUAL_3]}
    assert split(both, SCOPE).residual == both
    assert split({"$or": [{"m": 1}, {"v": None}]}, SCOPE).bucket is None
    assert split({"$or": []}, SCOPE).bucket is None
    assert split({"$nor": [{"v": 3}]}, SCOPE).bucket is None


def test_of_a_negated_disjunction_the_arms_on_meta_are_those_of_buckets() -> None:
    """Q10: no arm may match, so each says something on its own."""
    part = split({"$nor": [{"m.a": 1}, {"v": 3}, {"m.b": 2, "v": 1}, {"m": 4}]}, SCOPE)
    assert part.bucket == {"$nor": [{"meta.a": 1}, {"meta": 4}]}
    assert part.residual == {"$nor": [{"v": 3}, {"m.b": 2, "v": 1}]}
    assert part.moved is None
    only_meta = split({"$nor": [{"m.a": 1}]}, SCOPE)
    assert (only_meta.bucket, only_meta.residual) == ({"$nor": [{"meta.a": 1}]}, None)


@pytest.mark.parametrize("path", ["", "v.", "v..a", "v.$a", "t.a"])
def test_paths_that_cannot_be_bounded(path: str) -> None:
    assert split({path: 1}, SCOPE).bucket is None


def test_conjunction() -> None:
    """Equal keys are kept apart."""
    assert conjunction([]) is None
    assert conjunction([{"a": 1}, {"b": 2}]) == {"a": 1, "b": 2}
    assert conjunction([{"a": 1}, {"a": 2}]) == {"$and": [{"a": 1}, {"a": 2}]}
