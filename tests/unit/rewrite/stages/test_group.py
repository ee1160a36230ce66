"""Groups by meta from headers (Q22, H4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Int64

from rewrite.stages.group import DOUBT, count_from_headers, group_from_headers
from rewrite.stages.rows import UNKNOWN_COUNT, rows_in_bucket
from tests.support.scopes import SCOPE, draft

ROWS = rows_in_bucket(SCOPE)
AFTER = {"$sort": {"_id": 1}}


def test_what_every_header_says() -> None:
    """The latest time and what is about meta alone need no second look."""
    group = {"$group": {"_id": {"a": "$m.a"}, "until": {"$max": "$t"}, "b": {"$min": "$m.b"}, "c": {"$first": "$m"}}}
    after = group_from_headers(draft(group, AFTER), SCOPE)
    over_buckets = {"_id": {"a": "$meta.a"}, "until": {"$max": "$control.max.t"}}
    assert after.head == ({"$group": {**over_buckets, "b": {"$min": "$meta.b"}, "c": {"$first": "$meta"}}},)
    assert (after.tail, after.unpacks) == ((AFTER,), False)


def test_buckets_that_cannot_tell_are_unpacked() -> None:
    """H4, W6: one branch by headers, one by rows, grouped once more."""
    group = {"$group": {"_id": "$m.a", "n": {"$sum": 1}, "high": {"$max": "$v"}}}
    after = group_from_headers(draft(group, AFTER), SCOPE)
    told, over_buckets = after.head
    union, joined, last = after.tail
    assert over_buckets == {"$group": {"_id": "$meta.a", "n": {"$sum": ROWS}, "high": {"$max": "$control.max.v"}}}
    untold = told["$match"]["$nor"]
    assert untold[0] == UNKNOWN_COUNT
    assert {"control.min.v", "control.max.v"} <= set(str(untold).replace("'", " ").split())
    assert union["$unionWith"]["coll"] == "system.buckets.x"
    odd, unpack, inhibit, again = union["$unionWith"]["pipeline"]
    assert odd == {"$match": {"$or": untold}}
    assert unpack["$_internalUnpackBucket"]["include"] == ["m", "v"]
    assert (list(inhibit), again) == (["$_internalInhibitOptimization"], group)
    assert joined == {"$group": {"_id": "$_id", "n": {"$sum": "$n"}, "high": {"$max": "$high"}}}
    assert last == AFTER


@pytest.mark.parametrize("number", [2, Int64(1), Int64(2)])
def test_sums_of_a_constant_keep_its_type(number: int) -> None:
    """A server adds up longs as longs."""
    after = group_from_headers(draft({"$group": {"_id": "$m.a", "n": {"$sum": number}}}), SCOPE)
    _, factor = after.head[1]["$group"]["n"]["$sum"]["$multiply"]
    assert (factor, type(factor)) == (number, type(number))


def test_bounds_stay_on_both_branches() -> None:
    """What was said of buckets before holds in the second branch as well."""
    before = draft({"$group": {"_id": None, "n": {"$count": {}}}}).with_head({"$match": {"meta": 1}})
    after = group_from_headers(before, SCOPE)
    assert after.head[0] == after.tail[0]["$unionWith"]["pipeline"][0] == {"$match": {"meta": 1}}


@pytest.mark.parametrize(
    "group",
    [
        {"_id": "$v", "n": {"$sum": 1}},
        {"_id": "$m", "n": {"$sum": "$v"}},
        {"_id": "$m", "n": {"$sum": 1.5}},
        {"_id": "$m", "n": {"$sum": True}},
        {"_id": "$m", "n": {"$avg": "$v"}},
        {"_id": "$m", "n": {"$min": "$t"}},
        {"_id": "$m", "n": {"$max": "$t.a"}},
        {"_id": "$m", "n": {"$max": "$v..a"}},
        {"_id": "$m", "n": {"$max": "$v" + 8 * ".a"}},
        {"_id": "$m", "n": {"$max": {"$add": ["$v", 1]}}},
        {"_id": "$m", "n": {"$addToSet": "$m.a"}},
        {"_id": "$m", "n": {"$max": "$$ROOT"}},
        {"_id": "$m", "n.a": {"$sum": 1}},
        {"_id": "$m", "n": 1},
        {"n": {"$sum": 1}},
        5,
    ],
)
def test_what_headers_do_not_say(group: Any) -> None:
    before = draft({"$group": group})
    assert group_from_headers(before, SCOPE) == before


def test_scopes_in_which_headers_say_less() -> None:
    """W32: ``control.max`` of times before 1970; X1: no unions in transactions; C3: odd names."""
    latest = draft({"$group": {"_id": "$m", "until": {"$max": "$t"}}})
    assert group_from_headers(latest, replace(SCOPE, extended_range=True)) == latest
    counted = draft({"$group": {"_id": "$m", "n": {"$sum": 1}}})
    assert group_from_headers(counted, replace(SCOPE, in_transaction=True)) == counted
    assert group_from_headers(counted, replace(SCOPE, time_field="$t")) == counted
    strings = group_from_headers(draft({"$group": {"_id": "$m", "s": {"$max": "$s"}}}), SCOPE)
    other = group_from_headers(
        draft({"$group": {"_id": "$m", "s": {"$max": "$s"}}}), replace(SCOPE, compares_like_buckets=False)
    )
    assert "string" in str(other.head)
    assert "string" not in str(strings.head)


def test_paths_inside_objects() -> None:
    """Only where all parents are objects in a bucket, or missing (H4)."""
    group = {"$group": {"_id": "$m", "n": {"$min": "$v.a.b"}}}
    told, over_buckets = group_from_headers(draft(group), SCOPE).head
    assert over_buckets == {"$group": {"_id": "$meta", "n": {"$min": "$control.min.v.a.b"}}}
    mixed = [predicate["$expr"] for predicate in told["$match"]["$nor"] if "$expr" in predicate]
    assert [len(str(each)) > 0 for each in mixed] == [True, True]
    assert "$control.max.v.a'" in str(mixed[1])
    guess = group_from_headers(draft(group), GUESSING).head[0]["$group"]
    assert all(each in guess[DOUBT]["$max"]["$or"] for each in mixed)


def test_count() -> None:
    """``$count`` is a group; where headers cannot tell it stays as it is."""
    after = count_from_headers(draft({"$count": "n"}, {"$limit": 1}), SCOPE)
    assert after.head[-1] == {"$group": {"_id": None, "n": {"$sum": ROWS}}}
    assert after.tail[-2:] == ({"$project": {"_id": 0}}, {"$limit": 1})
    for field in ("", "_id", "$n", "a.b", 5):
        before = draft({"$count": field})
        assert count_from_headers(before, SCOPE) == before
    before = draft({"$count": "n"})
    assert count_from_headers(before, replace(SCOPE, in_transaction=True)) == before
    assert count_from_headers(draft(), SCOPE) == draft()


GUESSING = replace(SCOPE, may_guess=True)


def test_guess_takes_headers_alone_and_looks_at_what_came_out() -> None:
    """H4, W6: a merged document or array comes out as one; a null, or a count that is not there, is told beside."""
    group = {"$group": {"_id": "$m.a", "n": {"$sum": 1}, "high": {"$max": "$v"}, "low": {"$min": "$v"}}}
    after = group_from_headers(draft(group, AFTER), GUESSING)
    assert (after.tail, after.unpacks, after.guesses) == ((AFTER,), False, True)
    grouped, checked, projected, ordered, inhibit = after.head
    fields = grouped["$group"]
    assert fields["high"] == {"$max": "$control.max.v"}
    assert fields["low"] == {"$min": "$control.min.v"}
    assert len(fields[DOUBT]["$max"]["$or"]) == 2
    told, passes, fails = checked["$match"]["$expr"]["$cond"]
    assert [next(iter(each)) for each in told["$and"]] == ["$or", "$or", "$ne"]
    assert (passes, fails) == (True, {"$toInt": {"$type": "$_id"}})
    assert (projected, ordered) == ({"$project": {DOUBT: 0}}, {"$sort": {"_id": 1}})
    assert list(inhibit) == ["$_internalInhibitOptimization"]


def test_guess_knows_strings_only_where_they_compare_as_in_headers() -> None:
    """H3."""
    group = {"$group": {"_id": None, "high": {"$max": "$v"}}}
    bounds = []
    for compares in (True, False):
        scope = replace(GUESSING, compares_like_buckets=compares)
        _, checked, inhibit = group_from_headers(draft(group), scope).head
        assert list(inhibit) == ["$_internalInhibitOptimization"]
        (told,) = checked["$match"]["$expr"]["$cond"][0]["$and"]
        bounds.append(told["$or"][0]["$lt"][1])
    assert bounds == [{}, ""]


def test_no_guess_where_none_is_needed_or_its_name_is_taken() -> None:
    for group in ({"_id": "$m.a", "until": {"$max": "$t"}}, {"_id": "$m.a", DOUBT: {"$max": "$v"}}):
        assert not group_from_headers(draft({"$group": group}), GUESSING).guesses
