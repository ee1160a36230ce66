"""Which deletes the backend does itself (U5, U8, V1)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.commands.delete import is_native_query, rewrite_delete
from rewrite.plan import ClearBuckets, Dialogue, PassThrough, Request
from rewrite.profile import Profile

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
X = VirtualCollection(Namespace("db", "x"), OPTIONS)


def plan(*deletes: Any, version: tuple[int, int, int] = (6, 0, 5), in_transaction: bool = False, **options: Any) -> Any:
    """The plan of a delete."""
    body = {"delete": "x", "deletes": list(deletes), **options}
    profile = Profile(version=version)
    return rewrite_delete(Request("delete", X.namespace, body, X, profile, in_transaction=in_transaction))


BY_META = {"q": {"m.a": 1}, "limit": 0}
BY_ROW = {"q": {"v": 1}, "limit": 0}
ONE = {"q": {"m.a": 1}, "limit": 1}
AS_IT_IS = PassThrough((ClearBuckets(X.namespace),))


@pytest.mark.parametrize(
    ("query", "native"),
    [
        ({}, True),
        ({"m": 1, "m.a": {"$gt": 5}}, True),
        ({"$and": [{"m": 1}, {"$or": [{"m.a": 1}]}]}, True),
        ({"m": {"$eq": {"a": 1}}}, True),
        ({"m.a": {"$in": [1, 2]}}, True),
        ({"m": {"$in": [{"a": 1}]}}, False),
        ({"m.a": {"$not": {"$in": [[{"b": 1}]]}}}, False),
        ({"v": 1}, False),
        ({"mm": 1}, False),
        ({"$or": [{"m": 1}, {"t": 1}]}, False),
        ({"$expr": {"$eq": ["$m", 1]}}, False),
        ({"$where": "true"}, False),
    ],
)
def test_u1_u2_queries_that_6_0_understands_as_they_are_meant(query: dict[str, Any], native: bool) -> None:
    assert is_native_query(query, OPTIONS) is native


def test_u5_deletes_by_the_meta_field_are_the_backends() -> None:
    assert plan(BY_META) == plan(BY_META, BY_META) == AS_IT_IS


@pytest.mark.parametrize("deletes", [[BY_ROW], [ONE], [BY_META, BY_ROW], [{"q": {}, "limit": 1}]], ids=str)
def test_u8_all_others_are_a_dialogue(deletes: list[Any]) -> None:
    assert isinstance(plan(*deletes), Dialogue)


def test_v1_before_5_0_5_the_backend_deletes_nothing() -> None:
    assert isinstance(plan(BY_META, version=(5, 0, 4)), Dialogue)
    assert plan(BY_META, version=(5, 0, 5)) == AS_IT_IS


def test_h9_from_7_0_on_the_backend_deletes_by_the_meta_field_alone_as_well() -> None:
    """It accepts more, and misses measurements."""
    assert plan(BY_META, version=(7, 0, 28)) == AS_IT_IS
    for statement in (BY_ROW, ONE):
        assert isinstance(plan(statement, version=(7, 0, 28)), Dialogue)


@pytest.mark.parametrize(
    "deletes",
    [
        [],
        [5],
        [{"q": {"v": 1}}],
        [{"limit": 0}],
        [{**BY_ROW, "limit": 2}],
        [{**BY_ROW, "foo": 1}],
        [{**BY_ROW, "q": 1}],
    ],
    ids=str,
)
def test_the_form_of_a_command_is_the_backends_to_judge(deletes: list[Any]) -> None:
    assert plan(*deletes) == AS_IT_IS


def test_unknown_options_and_transactions_are_the_backends_to_judge() -> None:
    """X1: a transaction holds no deletes of measurements."""
    assert plan(BY_ROW, foo=1) == plan(BY_ROW, in_transaction=True) == AS_IT_IS
    assert plan(BY_ROW, readConcern={"level": "snapshot"}) == AS_IT_IS
    assert isinstance(plan(BY_ROW, readConcern={"afterClusterTime": 5}), Dialogue)
