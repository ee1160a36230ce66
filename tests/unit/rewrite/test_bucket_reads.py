"""What deletes ask of buckets: necessary conditions only, and when a whole bucket is covered (Q10-Q13, U8)."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.bson.faithful import Opaque
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.bucket_reads import (
    TAG,
    Selection,
    all_rows,
    candidates,
    covers,
    holding_matches,
    matches,
    unchanged_cover,
)
from rewrite.profile import Profile
from rewrite.stages.empty_names import reading_all

X = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
NOON = 1_700_000_040_000
ID = ObjectId()
BUCKET = {"_id": ID, "rows": 2, "least": DatetimeMS(NOON), "greatest": DatetimeMS(NOON + 10)}


def selection(query: dict[str, Any], **options: Any) -> Selection:
    return Selection(X, Profile(), query, **options)


def test_candidates_come_by_id_one_page_after_the_other() -> None:
    body = candidates(selection({"m.a": 1}), ID, 7)
    match, sort, limit, _ = body["pipeline"]
    assert body["aggregate"] == X.buckets.collection
    assert {"_id": {"$gt": ID}} in match["$match"]["$and"]
    assert Opaque(bson.encode({"meta.a": 1})) in match["$match"]["$and"]
    assert (sort, limit) == ({"$sort": {"_id": 1}}, {"$limit": 7})


def test_i11_a_hint_is_the_one_of_the_buckets() -> None:
    assert candidates(selection({}, hint={"t": 1}), None, 1)["hint"] == {"control.min.t": 1, "control.max.t": 1}


@pytest.mark.parametrize(
    ("query", "covered"),
    [
        ({}, True),
        ({"m": 5}, True),
        ({"t": {"$lt": DatetimeMS(NOON + 11)}}, True),
        ({"t": {"$lt": DatetimeMS(NOON + 10)}}, False),
        ({"t": {"$lte": DatetimeMS(NOON + 10), "$gte": DatetimeMS(NOON)}}, True),
        ({"t": {"$gt": DatetimeMS(NOON)}}, False),
        ({"t": {"$ne": DatetimeMS(NOON)}}, False),
        ({"t": DatetimeMS(NOON)}, False),
        ({"v": 1}, False),
        ({"m": 5, "v": 1}, False),
    ],
    ids=str,
)
def test_u8_a_bucket_is_covered_when_its_header_says_that_all_match(query: dict[str, Any], covered: bool) -> None:
    assert covers(selection(query), BUCKET) is covered


def test_a_bucket_that_does_not_tell_its_rows_is_looked_into() -> None:
    assert not covers(selection({}), {**BUCKET, "rows": None})


def test_w125_a_covered_bucket_goes_only_as_it_was_counted() -> None:
    guard = unchanged_cover(selection({"m": 5}), BUCKET)["$and"]
    assert {"_id": ID} in guard
    assert {"control.min.t": BUCKET["least"], "control.max.t": BUCKET["greatest"]} in guard
    assert any("$expr" in condition for condition in guard)
    assert Opaque(bson.encode({"meta": 5})) in guard


def test_the_users_predicate_is_asked_after_unpacking_out_of_the_optimisers_sight() -> None:
    """H2-H5."""
    stages = [next(iter(stage)) for stage in matches(selection({"v": 1}), ID)["pipeline"]]
    assert stages == ["$match", "$_internalUnpackBucket", "$_internalInhibitOptimization", "$match"]
    assert "$match" not in [next(iter(stage)) for stage in all_rows(selection({"v": 1}), [ID])["pipeline"]][1:]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ({"v": 1}, ["t", "v"]),
        ({"m.a": 1, "v.x": {"$gt": 1}, "$or": [{"w": 1}, {"_id": 1}]}, ["_id", "t", "v", "w"]),
        ({"$expr": {"$gt": ["$v", "$w.x"]}}, ["t", "v", "w"]),
        ({"$where": "this.v"}, None),
    ],
    ids=str,
)
def test_q20_the_search_unpacks_the_columns_that_the_query_reads(
    query: dict[str, Any], columns: list[str] | None
) -> None:
    pipeline = holding_matches(selection(query, hint={"t": 1}), 5)["pipeline"]
    (unpack,) = [stage["$_internalUnpackBucket"] for stage in pipeline if "$_internalUnpackBucket" in stage]
    assert unpack.get("include") == (None if columns is None else [*columns, TAG])
    assert pipeline[-2:] == [{"$limit": 5}, {"$group": {"_id": f"${TAG}.id", "rows": {"$sum": 1}}}]


@pytest.mark.parametrize(("query", "sees"), [({"v": 1}, False), ({"$expr": {"$eq": ["$$ROOT", 1]}}, True)], ids=str)
def test_a_query_that_would_notice_a_field_more_is_known(query: dict[str, Any], sees: bool) -> None:
    assert selection(query).sees_whole_rows is sees


def test_a_query_that_is_not_looked_into_says_nothing_of_buckets() -> None:
    """But it is asked of the rows as it came, and whether it names the whole row is seen in its bytes."""
    query = Opaque(bson.encode({"m": 5, "x": 1}))
    opaque = Selection(X, Profile(), query)
    assert opaque.split.bucket is None
    assert not covers(opaque, BUCKET)
    assert not opaque.sees_whole_rows
    assert matches(opaque, ID)["pipeline"][-1]["$match"].raw == reading_all(query).raw
    assert Selection(X, Profile(), Opaque(bson.encode({"$expr": "$$ROOT.x"}))).sees_whole_rows


@pytest.mark.parametrize("named", ["$$ROOT.x", "$x"])
def test_a_large_query_is_looked_through_with_pauses(named: str) -> None:
    """The name may stand where two pieces meet."""
    for padding in (2**20 - 40, 2**20 - 20, 3 * 2**20):
        query = Opaque(bson.encode({"$comment": "x" * padding, "$expr": named, "y": "x" * 2**20}))
        large = Selection(X, Profile(), query)
        pauses = list(large.looked_through())
        assert "sees_whole_rows" in vars(large)
        assert large.sees_whole_rows is ("ROOT" in named)
        assert list(large.looked_through()) == []
        assert len(pauses) < 6
