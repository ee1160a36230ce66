"""A ``$match`` that finds fields with an empty name (H18)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import encode

from catalog.bson.faithful import Opaque
from catalog.bson.raw import iter_elements
from rewrite.stages.draft import INHIBITS
from rewrite.stages.empty_names import READS_ALL, find_empty_names, may_name_empty, reading_all
from rewrite.stages.pipeline import rewrite_pipeline
from tests.support.scopes import SCOPE, draft


@pytest.mark.parametrize(
    ("query", "is_empty"),
    [
        ({"": 1}, True),
        ({".a": {"$gt": 1}}, True),
        ({"v": 1, "$or": [{"v": 2}, {"$and": [{"": {"$exists": False}}]}]}, True),
        ({"$nor": [{"": 1}]}, True),
        ({"$jsonSchema": {"required": [""]}}, True),
        ({}, False),
        ({"v.": 1}, True),
        ({"v..x": 1}, True),
        ({"v.x": 1, "m.a": 1}, False),
        ({"v": {"": 1}}, False),
        ({"v": {"$elemMatch": {"": 1}}}, False),
        ({"$or": 5, "$and": [5]}, False),
        ({"$expr": {"$eq": [{"$getField": ""}, 1]}}, False),
    ],
    ids=str,
)
def test_h18_paths_with_an_empty_name(query: dict[str, Any], is_empty: bool) -> None:
    assert may_name_empty(query) is is_empty
    assert reading_all(query) == ({"$and": [READS_ALL, query]} if is_empty else query)


def test_h18_what_is_never_decoded_may_name_it() -> None:
    """The fields stay at their level, and one that stands there already stays as well."""
    read = reading_all(Opaque(encode({"$expr": True, "v": 1})))
    assert isinstance(read, Opaque)
    assert list(iter_elements(bytes(read.raw))) == [
        *iter_elements(encode(READS_ALL)),
        *iter_elements(encode({"$expr": True, "v": 1})),
    ]


def test_h18_each_match_of_a_pipeline() -> None:
    stages: list[dict[str, Any]] = [{"$match": {"v": 1}}, {"$sort": {"v": 1}}, {"$match": {"": 2}}, {"$match": 5}]
    found = find_empty_names(draft(*stages), SCOPE)
    reads_all = {"$match": {"$and": [READS_ALL, {"": 2}]}}
    assert list(found.tail) == [*stages[:2], INHIBITS, reads_all, stages[3]]
    assert list(find_empty_names(draft(stages[0], stages[2]), SCOPE).tail) == [stages[0], reads_all]
    untouched = draft(*stages[:2])
    assert find_empty_names(untouched, SCOPE) is untouched


def test_h18_bounds_are_still_applied_to_buckets() -> None:
    """The meta field alone; nothing is moved by the server, which would lose rows."""
    head, unpack, inhibit, *tail = rewrite_pipeline([{"$match": {"m": 1, "": 2}}], SCOPE)
    assert head == {"$match": {"meta": 1}}
    assert "include" not in unpack["$_internalUnpackBucket"]
    assert inhibit == {"$_internalInhibitOptimization": {}}
    assert tail == [{"$match": {"$and": [READS_ALL, {"": 2}]}}]


def test_h18_pipelines_in_other_stages() -> None:
    """The server unpacks what they read, and must not move even the first ``$match`` in front of that."""
    reads_all = {"$match": {"$and": [READS_ALL, {"": 2}]}}
    lookup = {"$lookup": {"from": "x", "as": "r", "pipeline": [{"$match": {"": 2}}]}}
    (found,) = find_empty_names(draft({"$unionWith": {"coll": "x", "pipeline": [lookup]}}), SCOPE).tail
    inside = {"$lookup": {"from": "x", "as": "r", "pipeline": [INHIBITS, reads_all]}}
    assert found == {"$unionWith": {"coll": "x", "pipeline": [inside]}}
    for pipeline in ([{"$match": {"v": 2}}], [{"$match": {"$text": {"$search": "x"}, "": 2}}], "malformed", [5], None):
        for name in ("$lookup", "$unionWith"):
            untouched = draft({name: {"pipeline": pipeline}}, {name: 5}, {"$facet": {"f": [lookup]}})
            assert find_empty_names(untouched, SCOPE) is untouched
