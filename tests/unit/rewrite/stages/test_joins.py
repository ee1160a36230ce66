"""Which stages in the pipeline of a ``$lookup`` must stay where they are (H14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rewrite.profile import Profile
from rewrite.stages.joins import keep_variables_apart
from tests.support.scopes import SCOPE, draft

INHIBIT: dict[str, Any] = {"$_internalInhibitOptimization": {}}
OF_ROW: dict[str, Any] = {"$match": {"$expr": {"$eq": ["$v", "$$v"]}}}
OF_META: dict[str, Any] = {"$match": {"m": 1}}
SORT: dict[str, Any] = {"$sort": {"v": 1}}
OF_SET: dict[str, Any] = {"$set": {"w": "$$v"}}
BOTH: dict[str, Any] = {"$match": {"$and": [OF_ROW["$match"], OF_META["$match"]]}}


def lookup(*stages: Any, **fields: Any) -> dict[str, Any]:
    return {"$lookup": {"from": "x", "as": "l", "let": {"v": "$v"}, "pipeline": [*stages], **fields}}


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (lookup(OF_ROW, OF_META), lookup(BOTH)),
        (lookup(OF_ROW, SORT, OF_META), lookup(OF_ROW, INHIBIT, SORT, OF_META)),
        (lookup(SORT, OF_ROW), lookup(INHIBIT, SORT, OF_ROW)),
        (lookup(OF_ROW, OF_META, SORT, OF_META), lookup(BOTH, INHIBIT, SORT, OF_META)),
        (lookup(OF_SET, {"$limit": 1}), lookup(INHIBIT, OF_SET, {"$limit": 1})),
        (lookup(lookup(OF_ROW, let={}), SORT), lookup(INHIBIT, lookup(OF_ROW, let={}), SORT)),
        (
            {"$unionWith": {"coll": "x", "pipeline": [lookup(OF_ROW, OF_META)]}},
            {"$unionWith": {"coll": "x", "pipeline": [lookup(BOTH)]}},
        ),
        (lookup(lookup(OF_ROW, OF_META, let={})), lookup(lookup(BOTH, let={}))),
    ],
)
def test_h14_no_stage_moves(stage: dict[str, Any], expected: dict[str, Any]) -> None:
    assert keep_variables_apart(draft(stage), SCOPE).tail == (expected,)
    for version in ((5, 0, 4), (6, 0, 27)):
        other = replace(SCOPE, profile=Profile(version=version))
        assert keep_variables_apart(draft(stage), other).tail == (stage,)


@pytest.mark.parametrize(
    "stage",
    [
        lookup(OF_ROW, SORT),
        lookup(OF_ROW, OF_META, let={}),
        lookup(OF_ROW, 5),
        lookup({"$geoNear": {}}, OF_ROW),
        lookup(OF_ROW, {"$match": {"$text": {"$search": "a"}}}),
        lookup(OF_ROW, SORT, {"$limit": 1}),
        lookup(OF_ROW, SORT, OF_SET),
        {"$facet": {"a": [lookup(OF_ROW, OF_META)]}},
        lookup(pipeline=5),
        {"$lookup": 5},
        {"$facet": {"a": 5, "$lookup": [5]}},
        {"$unionWith": "$lookup"},
        OF_ROW,
    ],
)
def test_other_stages_are_as_they_were(stage: dict[str, Any]) -> None:
    assert keep_variables_apart(draft(stage), SCOPE).tail == (stage,)
