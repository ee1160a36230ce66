"""The latest measurement of each series (Q23)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Int64
from bson.datetime_ms import DatetimeMS

from rewrite.stages.lastpoint import LATEST, pick_latest_buckets
from rewrite.stages.pipeline import guess_pipeline, rewrite_pipeline
from tests.support.scopes import OLD_SCOPE, SCOPE, draft

FIRST = {"v": {"$first": "$v"}}
LAST = {"v": {"$last": "$v"}}


@pytest.mark.parametrize(
    ("sort", "group", "key"),
    [
        ({"m.a": 1, "t": -1}, {"_id": "$m.a", **FIRST}, "$meta.a"),
        ({"m.a": -1, "t": 1}, {"_id": "$m.a", **LAST}, "$meta.a"),
        ({"t": -1}, {"_id": "$m", **FIRST}, "$meta"),
        ({"m.a": 1, "m.b": 1, "t": -1}, {"_id": {"x": "$m.b", "y": "$m.a"}, **FIRST}, {"x": "$meta.b", "y": "$meta.a"}),
    ],
)
def test_one_bucket_of_each_group(sort: dict[str, Any], group: dict[str, Any], key: Any) -> None:
    """Headers pick the bucket; of its rows only those of its latest time are sorted."""
    after = pick_latest_buckets(draft({"$sort": sort}, {"$group": group}), SCOPE)
    grouped = next(stage["$group"] for stage in after.head if "$group" in stage)
    assert grouped["_id"] == key
    assert after.inhibits
    assert after.computed == (LATEST,)
    assert after.include is not None
    assert {"t", "v", "m", LATEST} == set(after.include)
    same_time, without, *rest = after.tail
    assert same_time == {"$match": {"$expr": {"$eq": ["$t", f"${LATEST}"]}}}
    assert without == {"$project": {LATEST: 0}}
    assert rest == [{"$sort": sort}, {"$group": group}]


def test_a_name_that_is_taken() -> None:
    of_this_name = ({"$sort": {"t": -1}}, {"$group": {"_id": "$m", "v": {"$first": f"${LATEST}"}}})
    assert pick_latest_buckets(draft(*of_this_name), SCOPE).tail == of_this_name
    by_this_time = ({"$sort": {LATEST: -1}}, {"$group": {"_id": "$m", **FIRST}})
    assert pick_latest_buckets(draft(*by_this_time), replace(SCOPE, time_field=LATEST)).tail == by_this_time


def top(operator: str, order: Any, **more: Any) -> dict[str, Any]:
    """A group by meta with this accumulator alone."""
    return {"_id": "$m", "v": {operator: {"sortBy": order, "output": "$v", **more}}}


@pytest.mark.parametrize(
    "stages",
    [
        [{"$group": top("$top", {"t": -1})}],
        [{"$group": top("$bottom", {"m": 1, "t": 1})}],
        [{"$group": top("$topN", {"m": -1, "t": -1}, n=1)}],
        [{"$group": top("$bottomN", {"t": 1}, n=Int64(1))}],
        [{"$group": {**top("$top", {"t": -1}), "w": {"$bottom": {"sortBy": {"t": 1}, "output": "$m"}}}}],
        [{"$sort": {"t": -1}}, {"$group": {"_id": "$m", "v": {"$firstN": {"input": "$v", "n": 1}}}}],
        [
            {"$sort": {"t": 1}},
            {"$group": {"_id": "$m", "v": {"$lastN": {"input": "$v", "n": 1}}, "w": {"$last": "$t"}}},
        ],
    ],
)
def test_accumulators_that_take_the_latest_row(stages: list[dict[str, Any]]) -> None:
    """Sorted by themselves or by a stage."""
    after = pick_latest_buckets(draft(*stages), SCOPE)
    assert after.include is not None
    assert {"t", "v", "m", LATEST} == set(after.include)
    assert list(after.tail[2:]) == stages


@pytest.mark.parametrize(
    "stages",
    [
        [{"$group": top("$top", {"t": 1})}],
        [{"$group": top("$bottom", {"t": -1})}],
        [{"$group": top("$topN", {"t": -1}, n=2)}],
        [{"$group": top("$topN", {"t": -1}, n=True)}],
        [{"$group": top("$topN", {"t": -1}, n={"$add": [1]})}],
        [{"$group": top("$top", {"v": 1, "t": -1})}],
        [{"$group": top("$top", {"t": -1, "v": 1})}],
        [{"$group": top("$top", {"t": True})}],
        [{"$group": top("$top", {})}],
        [{"$group": top("$top", None)}],
        [{"$group": {"_id": "$m", "v": {"$top": 5}}}],
        [{"$group": {"_id": "$m", "v": {"$first": "$v"}}}],
        [{"$group": {**top("$top", {"t": -1}), "n": {"$sum": 1}}}],
        [{"$group": {**top("$top", {"t": -1}), "w": {"$top": {"sortBy": {"v": 1}, "output": "$w"}}}}],
        [{"$sort": {"v": 1}}, {"$group": top("$top", {"t": -1})}],
        [{"$sort": {"t": -1}}, {"$group": {"_id": "$m", "v": {"$firstN": {"input": "$v", "n": 2}}}}],
        [{"$limit": 5}, {"$group": top("$top", {"t": -1})}],
        [{"$sort": {"t": -1}}],
        [{"$group": 5}],
    ],
)
def test_accumulators_that_may_take_other_rows(stages: list[dict[str, Any]]) -> None:
    """The earliest, several, by other fields, or what is refused."""
    before = draft(*stages)
    assert pick_latest_buckets(before, SCOPE) == before


def test_an_index_on_meta_and_time_can_serve() -> None:
    """The order of buckets is the user's, and nothing else is looked at."""
    group = {"$group": {"_id": "$m.a", **FIRST}}
    ordered = pick_latest_buckets(draft({"$sort": {"m.a": -1, "t": -1}}, group), SCOPE)
    assert ordered.head[0] == {"$sort": {"meta.a": -1, "control.max.t": -1}}
    for indexes, is_sorted in (({("m.a", -1)}, True), ({("m.a", 1), ("m.b", -1)}, False), (set(), False)):
        scope = replace(SCOPE, lastpoint_indexes=frozenset(indexes))
        picked = pick_latest_buckets(draft({"$sort": {"m.a": -1, "t": -1}}, group), scope)
        assert ("$sort" in picked.head[0]) == is_sorted
    by_time_alone = pick_latest_buckets(draft({"$sort": {"t": -1}}, group), SCOPE)
    assert "$group" in by_time_alone.head[0]


def test_whole_measurements() -> None:
    """All columns are unpacked when all are asked for."""
    group = {"$group": {"_id": "$m", "v": {"$first": "$$ROOT"}}}
    assert pick_latest_buckets(draft({"$sort": {"t": -1}}, group), SCOPE).include is None


@pytest.mark.parametrize(
    ("sort", "group"),
    [
        ({"t": 1}, {"_id": "$m", **FIRST}),
        ({"t": -1}, {"_id": "$m", **LAST}),
        ({"t": -1}, {"_id": "$m"}),
        ({"t": -1}, {"_id": "$v", **FIRST}),
        ({"t": -1}, {"_id": None, **FIRST}),
        ({"t": -1}, {"_id": "$m", **FIRST, "n": {"$sum": 1}}),
        ({"m.a": 1, "t": -1}, {"_id": "$m.b", **FIRST}),
        ({"v": 1, "t": -1}, {"_id": "$m", **FIRST}),
        ({"t": -1, "m": 1}, {"_id": "$m", **FIRST}),
        ({}, {"_id": "$m", **FIRST}),
        (5, {"_id": "$m", **FIRST}),
    ],
)
def test_what_needs_more_than_headers(sort: Any, group: dict[str, Any]) -> None:
    """The earliest time is rounded in headers; other orders pick other rows."""
    before = draft({"$sort": sort}, {"$group": group})
    assert pick_latest_buckets(before, SCOPE) == before


def test_scopes_that_do_without() -> None:
    """W32: headers of times before 1970; 5.0 would scan for each bucket."""
    before = draft({"$sort": {"t": -1}}, {"$group": {"_id": "$m", **FIRST}})
    assert pick_latest_buckets(before, replace(SCOPE, extended_range=True)) == before
    assert pick_latest_buckets(before, replace(OLD_SCOPE, may_guess=True)) == before
    assert pick_latest_buckets(before, OLD_SCOPE) == before
    assert pick_latest_buckets(draft({"$sort": {"t": -1}}), SCOPE).head == ()


def test_headers_are_checked_where_times_may_be_before_1970() -> None:
    """W32: the start of such a bucket may be in its header, and 1970 is the latest of these."""
    pipeline = [{"$sort": {"m": 1, "t": -1}}, {"$group": {"_id": "$m", **FIRST}}]
    scope = replace(SCOPE, extended_range=True)
    guess, is_guess = guess_pipeline(pipeline, scope)
    assert is_guess
    over_buckets, check, *_ = guess
    assert over_buckets["$group"]["latest"] == {"$max": {"time": "$control.max.t", "bucket": "$_id"}}
    assert check["$match"]["$expr"]["$cond"][0] == {"$gt": ["$latest.time", DatetimeMS(0)]}
    for other in (SCOPE, replace(scope, in_transaction=True)):
        assert guess_pipeline(pipeline, other) == (rewrite_pipeline(pipeline, other), False)
