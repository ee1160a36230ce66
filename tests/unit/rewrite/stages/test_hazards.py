"""Where the backend's optimiser is kept out (section 10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from rewrite.profile import Profile
from rewrite.stages.hazards import keep_optimiser_out
from tests.support.scopes import OLD_SCOPE, SCOPE, draft

NOW = DatetimeMS(1_700_000_000_000)
HOUR_AGO = {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": 1}}
LATEST: list[dict[str, Any]] = [{"$sort": {"t": -1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}]


@pytest.mark.parametrize(
    ("stages", "inhibits"),
    [
        ([{"$match": {"$expr": {"$lt": ["$v", 3]}}}], True),
        ([{"$sort": {"t": 1}}, {"$match": {"$or": [{"$expr": {"$lt": ["$v", 3]}}]}}], True),
        ([{"$group": {"_id": {"a": "$m.a"}, "v": {"$max": "$v"}}}], True),
        ([{"$group": {"_id": "$m.a"}}], True),
        ([{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}], False),
        ([{"$group": {"_id": "$v", "n": {"$max": "$v"}}}], False),
        ([{"$sort": {"t": 1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}], False),
        ([{"$sort": {"m.a": 1, "v": 1}}, {"$group": {"_id": "$m.a", "v": {"$lastN": {"input": "$v", "n": 2}}}}], False),
        ([{"$sort": {"t": 1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}, "w": {"$max": "$v"}}}], False),
        (LATEST, True),
        ([{"$sort": {"t": -1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}, "n": {"$sum": 1}}}], False),
        ([{"$match": {"t": {"$lt": NOW}}}, *LATEST], False),
        ([{"$match": {"m.a": 1}}, *LATEST], True),
        ([{"$match": {}}, *LATEST], True),
        ([{"$match": {"t": {"$lt": NOW}}}, {"$unset": "v"}, *LATEST], True),
        ([{"$sort": {"t": 1}}, {"$group": {"_id": "$m.a", "v": {"$max": "$v"}}}], True),
        ([{"$sort": {"m.a": 1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}], True),
        ([{"$sort": {"t": 1}}, {"$limit": 9}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}], True),
        ([{"$sort": {"t": 1}}], False),
        ([{"$match": {"t": {"$gt": NOW}}}, {"$sort": {"t": 1}}], False),
        ([{"$match": {"v": 1}}], True),
        ([{"$match": {"v": 1}}, {"$sort": {"t": 1}}], False),
        ([{"$match": {"v": {"$geoWithin": {}}}}], False),
        ([{"$match": {"m.a": 1}}], False),
        ([{"$match": {"$expr": {"$gte": ["$t", NOW]}}}], False),
        ([{"$match": {"$expr": {"$gt": ["$v", 3]}}}], True),
        ([{"$match": {"$expr": {"$gt": ["$v", 3]}}}, {"$sort": {"t": 1}}], False),
        ([{"$match": {"$expr": {"$gt": ["$v.a", 3]}}}], True),
        ([{"$match": {"$expr": {"$gt": ["$v", [3]]}}}], True),
        ([{"$match": {"$expr": {"$and": [{"$gte": ["$t", HOUR_AGO]}, {"$gt": ["$v", 3]}]}}}], False),
        ([{"$match": {"v": 1, "$expr": {"$gte": ["$t", NOW]}}}], True),
        ([{"$match": {"v": 1, "$expr": {"$gte": ["$t", HOUR_AGO]}}}], False),
        ([{"$match": {"$expr": {"$gte": ["$t", HOUR_AGO]}}}], False),
        ([{"$match": {"v": 1, "$expr": {"$and": [{"$lt": [HOUR_AGO, "$t"]}, {"$eq": ["$m.a", 1]}]}}}], False),
        ([{"$sort": {"t": 1}}, {"$match": {"$or": [{"$expr": {"$gte": ["$t", HOUR_AGO]}}]}}], False),
        ([{"$match": {"$nor": [{"$expr": {"$gte": ["$t", HOUR_AGO]}}]}}], True),
        ([{"$match": {"$expr": {"$and": [{"$gte": ["$t", HOUR_AGO]}, {"$lt": ["$v", 3]}]}}}], True),
        ([{"$match": {"$expr": {"$gte": ["$t", {"$toDate": 5}]}}}], True),
        ([{"$addFields": {"t": "$v"}}, {"$match": {"$expr": {"$gte": ["$t", HOUR_AGO]}}}], True),
        ([{"$addFields": {"w": "$v"}}, {"$match": {"$expr": {"$gte": ["$t", HOUR_AGO]}}}], False),
        ([{"$addFields": {"w": "$v"}}, {"$match": {"$expr": {"$gt": ["$w", 3]}}}], True),
        ([{"$project": {"t": 1}}, {"$match": {"$expr": {"$gte": ["$t", HOUR_AGO]}}}], False),
        ([{"$project": {"t": "$v"}}, {"$match": {"$expr": {"$gte": ["$t", HOUR_AGO]}}}], True),
        ([{"$limit": 1}, {"$match": {"$expr": {"$gte": ["$t", HOUR_AGO]}}}], True),
        ([{"$match": {"v": 1, "$expr": {"$eq": ["$m.a", 1]}}}], True),
    ],
)
def test_hazards(stages: list[dict[str, Any]], inhibits: bool) -> None:
    """H3, H4, Q19, and predicates for which our own bounds do."""
    assert keep_optimiser_out(draft(*stages), SCOPE).inhibits is inhibits


FROM_META = {"$set": {"a": "$m.k"}}


@pytest.mark.parametrize(
    ("stages", "inhibits"),
    [
        ([{"$set": {"m": "$m.k"}}], True),
        ([{"$addFields": {"a": 1, "m.k": 2}}], True),
        ([{"$fill": {"output": {"m": {"value": 7}}}}], True),
        ([{"$match": {"m.k": 1}}, {"$sort": {"t": 1}}, {"$set": {"m": "$m.k"}}], True),
        ([{"$project": {"m": 1}}, {"$set": {"m": "$m.k"}}], True),
        ([FROM_META], False),
        ([{"$set": "m"}], False),
        ([{"$fill": {"output": {"v": {"value": 7}}}}], False),
        ([{"$project": {"m": "$m.k"}}], False),
        ([{"$group": {"_id": "$v"}}, {"$set": {"m": 1}}], False),
        ([{"$replaceWith": {"m": "$m"}}, {"$set": {"m": "$m.k"}}], False),
    ],
)
def test_h12_fields_that_are_the_meta_field(stages: list[dict[str, Any]], inhibits: bool) -> None:
    for version in ((6, 0, 5), (6, 0, 27)):
        scope = replace(SCOPE, profile=Profile(version=version))
        assert keep_optimiser_out(draft(*stages), scope).inhibits is inhibits
    assert not keep_optimiser_out(draft(*stages), replace(SCOPE, meta_field=None)).inhibits


@pytest.mark.parametrize(
    ("stages", "inhibits"),
    [
        ([FROM_META, {"$project": {"v": 1}}], True),
        ([FROM_META, {"$match": {"m.k": 1}}, {"$project": {"_id": 1}}], True),
        ([{"$addFields": {"a": {"$getField": {"field": "k", "input": "$m"}}}}, {"$project": {"v": 1}}], True),
        ([FROM_META, {"$project": {"a": 1, "v": 1}}], False),
        ([FROM_META, {"$project": {"a.b": 1}}], False),
        ([FROM_META, {"$project": {"v": 0}}], False),
        ([FROM_META, {"$group": {"_id": "$v"}}, {"$project": {"v": 1}}], False),
        ([{"$set": {"a": "$v", "b": 1}}, {"$project": {"v": 1}}], False),
        ([{"$project": {"v": 1}}, FROM_META], False),
    ],
)
def test_h13_computed_fields_that_a_projection_leaves_out(stages: list[dict[str, Any]], inhibits: bool) -> None:
    assert keep_optimiser_out(draft(*stages), SCOPE).inhibits is inhibits
    later = replace(SCOPE, profile=Profile(version=(6, 0, 27)))
    assert not keep_optimiser_out(draft(*stages), later).inhibits


def test_scopes_in_which_it_is_always_kept_out() -> None:
    """H2, H3: 5.0 has no flag for extended times; strings compare otherwise; odd names."""
    scopes = (OLD_SCOPE, replace(SCOPE, compares_like_buckets=False), replace(SCOPE, time_field="$t"))
    assert all(keep_optimiser_out(draft({"$limit": 1}), scope).inhibits for scope in scopes)


@pytest.mark.parametrize(("time_field", "inhibits"), [("$t", False), ("", False), ("a$b", True)])
def test_c3_later_releases_of_6_0_fail_on_such_time_fields_when_they_are_kept_out(
    time_field: str, inhibits: bool
) -> None:
    scope = replace(SCOPE, profile=Profile(version=(6, 0, 27)), time_field=time_field, compares_like_buckets=False)
    assert keep_optimiser_out(draft({"$limit": 1}), scope).inhibits is inhibits


@pytest.mark.parametrize(("time_ms", "extended"), [(1_700_000_000_000, False), (0, True), (2**33 * 1000, True)])
def test_time_bounds_that_would_wrap(time_ms: int, extended: bool) -> None:
    """H2, H5."""
    match = {"$match": {"$or": [{"t": {"$gte": DatetimeMS(time_ms)}}, {"v": 1}]}}
    assert keep_optimiser_out(draft(match), SCOPE).extended_range is extended
    assert keep_optimiser_out(draft(match), replace(SCOPE, extended_range=True)).extended_range
