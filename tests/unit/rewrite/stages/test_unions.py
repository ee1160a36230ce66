"""Which stages behind a ``$unionWith`` must not move into it (H15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from rewrite.profile import Profile
from rewrite.stages.unions import keep_stages_behind_unions
from tests.support.scopes import OLD_SCOPE, SCOPE, draft

INHIBIT: dict[str, Any] = {"$_internalInhibitOptimization": {}}
OF_A: dict[str, Any] = {"$match": {"a": 1}}
OF_B: dict[str, Any] = {"$match": {"b": 1}}
BELOW: dict[str, Any] = {"$match": {"$expr": {"$lt": ["$v", 3]}}}
OF_VARIABLE: dict[str, Any] = {"$match": {"$expr": {"$gt": ["$v", "$$x"]}}}
BEFORE_1970: dict[str, Any] = {"$match": {"t": {"$lt": DatetimeMS(0)}}}
SINCE: dict[str, Any] = {"$match": {"t": {"$gt": DatetimeMS(1_700_000_000_000)}}}
OF_SCHEMA: dict[str, Any] = {"$match": {"$jsonSchema": {"required": ["v"]}}}
TEXT: dict[str, Any] = {"$match": {"$text": {"$search": "a"}}}
FROM_ITSELF: dict[str, Any] = {"$set": {"a": "$a.b"}}
FROM_OTHER: dict[str, Any] = {"$set": {"a": "$m.k"}}
ONLY_V: dict[str, Any] = {"$project": {"v": 1}}
GROUP: dict[str, Any] = {"$group": {"_id": "$m"}}
SORT: dict[str, Any] = {"$sort": {"v": 1}}

NEW_SCOPE = replace(SCOPE, profile=Profile(version=(6, 0, 27)))
FAR_SCOPE = replace(SCOPE, extended_range=True)


def union(*stages: Any, coll: str = "y") -> dict[str, Any]:
    return {"$unionWith": {"coll": coll, "pipeline": [*stages]}}


@pytest.mark.parametrize(
    ("scope", "stages", "expected"),
    [
        (NEW_SCOPE, [union(OF_A), OF_B], [OF_B, union(OF_A, OF_B)]),
        (NEW_SCOPE, [{"$unionWith": "y"}, OF_A, OF_B, SORT], [OF_A, OF_B, union(OF_A, OF_B), SORT]),
        (NEW_SCOPE, [union(OF_A), SORT, OF_B], [OF_B, union(OF_A, OF_B), SORT]),
        (NEW_SCOPE, [union(), {"$set": {"b": 1}}, OF_A, OF_B], [OF_A, union(OF_A), INHIBIT, {"$set": {"b": 1}}, OF_B]),
        (NEW_SCOPE, [union(), {"$limit": 1}, OF_A], [union(), INHIBIT, {"$limit": 1}, OF_A]),
        (NEW_SCOPE, [union(), OF_SCHEMA, SORT], [OF_SCHEMA, union(OF_SCHEMA), SORT]),
        (NEW_SCOPE, [union(), ONLY_V, OF_SCHEMA], [union(), INHIBIT, ONLY_V, OF_SCHEMA]),
        (NEW_SCOPE, [union(OF_A), TEXT], [union(OF_A), INHIBIT, TEXT]),
        (NEW_SCOPE, [union(OF_A), {"$match": 5}], [union(OF_A), INHIBIT, {"$match": 5}]),
        (
            NEW_SCOPE,
            [union(OF_A), union(coll="z"), OF_B],
            [OF_B, union(OF_A, OF_B), union(OF_B, coll="z")],
        ),
        (
            NEW_SCOPE,
            [union(union(OF_A), coll="z"), OF_B],
            [OF_B, union(OF_B, union(OF_A, OF_B), coll="z")],
        ),
        (
            NEW_SCOPE,
            [{"$lookup": {"from": "z", "pipeline": [union(OF_A), OF_VARIABLE], "as": "l"}}],
            [{"$lookup": {"from": "z", "pipeline": [union(OF_A), INHIBIT, OF_VARIABLE], "as": "l"}}],
        ),
        (SCOPE, [union(OF_A), BELOW], [union(OF_A), INHIBIT, BELOW]),
        (SCOPE, [union(), BEFORE_1970, OF_A], [OF_A, union(OF_A), INHIBIT, BEFORE_1970]),
        (FAR_SCOPE, [union(), OF_A, SINCE], [OF_A, union(OF_A), INHIBIT, SINCE]),
        (SCOPE, [union(), FROM_ITSELF, OF_B], [OF_B, union(OF_B), INHIBIT, FROM_ITSELF]),
        (SCOPE, [union(), FROM_ITSELF, OF_A], [union(), INHIBIT, FROM_ITSELF, OF_A]),
        (SCOPE, [union(), OF_B, FROM_ITSELF], [OF_B, union(OF_B), INHIBIT, FROM_ITSELF]),
        (SCOPE, [union(OF_A, FROM_ITSELF)], [union(OF_A, INHIBIT, FROM_ITSELF)]),
        (SCOPE, [union(FROM_OTHER), ONLY_V], [union(FROM_OTHER), INHIBIT, ONLY_V]),
        (SCOPE, [union(), FROM_OTHER, ONLY_V], [union(), INHIBIT, FROM_OTHER, ONLY_V]),
        (
            SCOPE,
            [union(), {"$set": {"a": {"$getField": "a"}}}],
            [union(), INHIBIT, {"$set": {"a": {"$getField": "a"}}}],
        ),
        (
            SCOPE,
            [union(), {"$fill": {"output": {"a": {"value": 7}}}}],
            [union(), INHIBIT, {"$fill": {"output": {"a": {"value": 7}}}}],
        ),
        (OLD_SCOPE, [union(OF_A), OF_B], [OF_B, union(OF_A, OF_B)]),
        (OLD_SCOPE, [union(ONLY_V), OF_B], [union(ONLY_V), INHIBIT, OF_B]),
        (OLD_SCOPE, [union(), ONLY_V, OF_B], [union(), INHIBIT, ONLY_V, OF_B]),
    ],
)
def test_h15_stages_that_do_not_move(scope: Any, stages: list[Any], expected: list[Any]) -> None:
    assert [*keep_stages_behind_unions(draft(*stages), scope).tail] == expected


@pytest.mark.parametrize(
    ("scope", "stages"),
    [
        (SCOPE, [union(OF_A), OF_B]),
        (SCOPE, [union(OF_A), SINCE]),
        (SCOPE, [union(), {"$set": {"a": 1, "b": "$c", "d": {"$add": ["$d", "$e"]}}}, OF_B]),
        (SCOPE, [union(), GROUP, FROM_ITSELF, BELOW]),
        (SCOPE, [union(), FROM_OTHER, {"$project": {"a": 1}}]),
        (NEW_SCOPE, [union(OF_A), GROUP, OF_B]),
        (NEW_SCOPE, [union(OF_A), INHIBIT, OF_B]),
        (NEW_SCOPE, [union(FROM_OTHER), ONLY_V]),
        (NEW_SCOPE, [{"$facet": {"a": [union(OF_A), OF_B]}}]),
        (NEW_SCOPE, [union({"$geoNear": {}}, FROM_ITSELF)]),
        (NEW_SCOPE, [{"$unionWith": 5}, OF_A]),
        (NEW_SCOPE, [{"$unionWith": {"coll": "y", "pipeline": 5}}, OF_A]),
        (NEW_SCOPE, [{"$lookup": {"from": "y", "pipeline": 5}}, {"$lookup": 5}, union()]),
        (OLD_SCOPE, [union(OF_A), SORT, GROUP, OF_B]),
        (SCOPE, [OF_A, FROM_ITSELF]),
    ],
)
def test_other_stages_are_as_they_were(scope: Any, stages: list[Any]) -> None:
    assert [*keep_stages_behind_unions(draft(*stages), scope).tail] == stages


def test_where_very_many_stages_follow_none_moves() -> None:
    """It takes no longer for each stage, and the command does not grow."""
    many = [union(OF_A)] * 100 + [OF_B] * 100
    kept = keep_stages_behind_unions(draft(*many), NEW_SCOPE).tail
    assert [*kept] == [union(OF_A), INHIBIT] * 100 + [OF_B] * 100
