"""The meta field under its stored name (Q10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rewrite.stages.meta_paths import (
    is_measurement_path,
    rename_constant_or_meta,
    rename_expression,
    rename_path,
    rename_predicate,
)
from tests.support.scopes import SCOPE


@pytest.mark.parametrize(
    ("path", "renamed"), [("m", "meta"), ("m.a.b", "meta.a.b"), ("mm", None), ("meta", None), ("a.m", None)]
)
def test_paths(path: str, renamed: str | None) -> None:
    assert rename_path(path, SCOPE) == renamed
    assert rename_path(path, replace(SCOPE, meta_field=None)) is None


@pytest.mark.parametrize(
    ("predicate", "renamed"),
    [
        ({"m": 1}, {"meta": 1}),
        ({"m.a": {"$in": [1, None]}}, {"meta.a": {"$in": [1, None]}}),
        ({"m": {"z": 1, "a": 2}}, {"meta": {"z": 1, "a": 2}}),
        ({"m": {"$elemMatch": {"m": 1}}}, {"meta": {"$elemMatch": {"m": 1}}}),
        ({"m.a": {"$not": {"$gt": 3}}}, {"meta.a": {"$not": {"$gt": 3}}}),
        ({"$or": [{"m": 1}, {"$nor": [{"m.b": 2}]}]}, {"$or": [{"meta": 1}, {"$nor": [{"meta.b": 2}]}]}),
        ({"$expr": {"$eq": ["$m.a", {"$literal": "$v"}]}}, {"$expr": {"$eq": ["$meta.a", {"$literal": "$v"}]}}),
        ({"$or": [{"m": 1}, {"v": 1}]}, None),
        ({"$expr": {"$eq": ["$m.a", "$v"]}}, None),
        ({"$expr": {"$eq": ["$m.a", "$$ROOT.v"]}}, None),
        ({"$jsonSchema": {"required": ["m"]}}, None),
        ({"$where": "true"}, None),
        ({"m": {"$near": [0, 0]}}, None),
        ({"m": {"$unheard": 1}}, None),
        ({"m": {"$elemMatch": {"$where": "true"}}}, None),
        ({"$and": []}, None),
        ({}, None),
    ],
)
def test_predicates(predicate: dict[str, Any], renamed: dict[str, Any] | None) -> None:
    """Only what is about the meta field alone, and understood whole, moves."""
    assert rename_predicate(predicate, SCOPE) == renamed


@pytest.mark.parametrize(
    ("expression", "renamed"),
    [
        ("$m.a", ("$meta.a",)),
        ({"a": "$m.a", "c": 1}, ({"a": "$meta.a", "c": 1},)),
        ({"$concat": ["$m.a", "$$NOW"]}, ({"$concat": ["$meta.a", "$$NOW"]},)),
        ("$v", None),
        ("m", None),
        (1, None),
        ({"$getField": "v"}, None),
        ({"$add": ["$m.a", "$v"]}, None),
        ({"$rand": {}}, None),
        ({"$let": {"vars": {"x": "$m.a"}, "in": "$$x.b"}}, ({"$let": {"vars": {"x": "$meta.a"}, "in": "$$x.b"}},)),
        # There, paths belong to what the variable holds.
        ({"$let": {"vars": {"CURRENT": "$m"}, "in": "$m.a"}}, None),
        ({"$map": {"input": ["$m"], "as": "CURRENT", "in": "$m.a"}}, None),
        ({"a": "$m", "b": {"$const": "$m"}}, ({"a": "$meta", "b": {"$const": "$m"}},)),
    ],
)
def test_expressions(expression: Any, renamed: Any) -> None:
    assert rename_expression(expression, SCOPE) == renamed


def test_constants_count_where_they_may() -> None:
    """A group by a constant is a group by meta."""
    assert rename_constant_or_meta(None, SCOPE) == (None,)
    assert rename_constant_or_meta("$v", SCOPE) is None


@pytest.mark.parametrize(
    ("key", "is_measurement"), [("v", True), ("v.m", True), ("m", False), ("t", False), ("$or", False)]
)
def test_measurement_paths(key: str, is_measurement: bool) -> None:
    assert is_measurement_path(key, SCOPE) is is_measurement
