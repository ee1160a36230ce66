"""Leading matches."""

from __future__ import annotations

from dataclasses import replace

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from rewrite.stages.match import push_leading_match
from tests.support.scopes import SCOPE, draft

T = DatetimeMS(1_700_000_000_000)


def test_meta_moves_and_bounds_are_copied() -> None:
    """Q10–Q13: all leading matches, and no other."""
    later = {"$match": {"v": 2}}
    before = draft({"$match": {"m": 1}}, {"$match": {"v": {"$gt": 1}}}, {"$limit": 1}, later)
    after = push_leading_match(before, SCOPE)
    assert after.head == ({"$match": {"meta": 1, "control.max.v": {"$_internalExprGt": 1}}},)
    assert after.tail == ({"$match": {"v": {"$gt": 1}}}, {"$limit": 1}, later)


def test_time_becomes_a_range_of_ids() -> None:
    """Q12: bounds from several matches meet in one range."""
    before = draft({"$match": {"t": {"$gte": T}}}, {"$match": {"t": {"$lt": T}}})
    (match,) = push_leading_match(before, SCOPE).head
    low, high = f"{1_700_000_000 - 3600:08x}", f"{1_700_000_000:08x}"
    ids = match["$match"]["$and"][0]["_id"] if "$and" in match["$match"] else match["$match"]["_id"]
    assert ids == {"$gte": ObjectId(low + "00" * 8), "$lte": ObjectId(high + "ff" * 8)}


def test_bounds_of_later_matches_where_the_optimiser_is_inhibited() -> None:
    """The stages stay; predicates on changed fields, and behind stages of other kinds, say nothing."""
    shaping = ({"$addFields": {"w": 1}}, {"$project": {"v": 1, "w": 1, "m": 1}}, {"$sort": {"v": 1}})
    for inhibits in (True, False):
        before = draft(*shaping, {"$match": {"v": {"$gt": 1}}}, {"$match": {"m": 2}}, inhibits=inhibits)
        after = push_leading_match(before, SCOPE)
        assert after.tail == before.tail
        bounds = {"control.max.v": {"$_internalExprGt": 1}, "meta": 2}
        assert after.head == (({"$match": bounds},) if inhibits else ())
    for stages in (
        ({"$match": {"w": 1}},),
        ({"$match": {"u": 1}},),
        ({"$limit": 1}, {"$match": {"v": 1}}),
        ({"$match": {"$or": [{"v": 1}, {"w": 1}]}},),
    ):
        before = draft(*shaping, *stages, inhibits=True)
        assert push_leading_match(before, SCOPE) == before


def test_nothing_known() -> None:
    for before in (draft(), draft({"$limit": 1}), draft({"$match": 5}), draft({"$match": {"v": None}})):
        assert push_leading_match(before, SCOPE) == before
    before = draft({"$match": {"m": 1}})
    assert push_leading_match(before, replace(SCOPE, time_field="")) == before
