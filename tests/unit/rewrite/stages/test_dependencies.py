"""Which columns a pipeline reads."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128

from rewrite.stages.dependencies import columns_read, include_needed_columns
from tests.support.scopes import SCOPE, draft


@pytest.mark.parametrize(
    ("stages", "columns"),
    [
        ([{"$match": {"a.b": 1, "$or": [{"c": 1}]}}, {"$count": "n"}], {"a", "c"}),
        ([{"$match": {"$expr": {"$gt": ["$a.b", "$$NOW"]}}}, {"$project": {"c": 1}}], {"a", "c", "_id"}),
        ([{"$group": {"_id": "$a", "n": {"$sum": {"$add": ["$b", {"$literal": "$c"}]}}}}], {"a", "b"}),
        ([{"$group": {"_id": None, "n": {"$top": {"sortBy": {"a": 1}, "output": "$b"}}}}], {"a", "b"}),
        ([{"$sort": {"a": 1}}, {"$limit": 3}, {"$skip": 1}, {"$sortByCount": "$b"}], {"a", "b"}),
        ([{"$set": {"a.x": "$b"}}, {"$unwind": "$c.d"}, {"$count": "n"}], {"a", "b", "c"}),
        ([{"$project": {"_id": 0, "a": "$b", "c.d": 1}}], {"a", "b", "c"}),
        ([{"$project": {"_id": 1}}], {"_id"}),
        ([{"$replaceRoot": {"newRoot": {"x": {"$_internalFindAllValuesAtPath": "a.b"}}}}], {"a"}),
        ([{"$match": {"$comment": "a"}}, {"$count": "n"}], set()),
        ([], None),
        ([{"$match": {"a": 1}}], None),
        ([{"$project": {"a": 0}}, {"$count": "n"}], None),
        ([{"$project": {"a": Decimal128("0")}}], None),
        ([{"$project": {"a": {"b": 0}}}], None),
        ([{"$project": {"_id": 0, "a": {"b": {"c": False}}}}], None),
        ([{"$project": {"_id": {"a": 0}}}], None),
        ([{"$project": {"_id": Decimal128("-0.0")}}], None),
        ([{"$project": {"_id": Decimal128("0"), "a": 1}}], {"a"}),
        ([{"$project": {"_id": 0, "a": {"b": 1, "c": "$d"}}}], {"a", "d"}),
        ([{"$match": {"$jsonSchema": {}}}, {"$count": "n"}], None),
        ([{"$match": {"$text": {}}}, {"$count": "n"}], None),
        ([{"$group": {"_id": None, "n": {"$first": "$$ROOT"}}}], None),
        ([{"$group": {"_id": None, "n": {"$first": {"$getField": "a"}}}}], None),
        ([{"$group": {"_id": None, "n": {"$accumulator": {}}}}], None),
        ([{"$sort": {"a": {"$meta": "textScore"}}}, {"$count": "n"}], None),
        ([{"$lookup": {"from": "y", "as": "a"}}, {"$count": "n"}], None),
        ([{"$unwind": 5}, {"$count": "n"}], None),
        ([{"$unwind": {"path": "$a.b", "includeArrayIndex": "i"}}, {"$count": "n"}], {"a"}),
        ([{"$match": {"$nor": [{"a": 1}, {"$and": [{"b": 1}]}]}}, {"$count": "n"}], {"a", "b"}),
        ([{"$match": {"$or": 5}}, {"$count": "n"}], None),
        ([{"$group": {"_id": {"x": "$a", "y": ["$b", 5]}}}], {"a", "b"}),
        ([{"$group": {"_id": None, "n": {"$sum": "$$CURRENT.a"}}}], None),
        ([{"$group": {"_id": None, "n": {"$top": {"sortBy": {"a": {"$meta": "x"}}, "output": "$b"}}}}], None),
        ([{"$group": 5}], None),
        ([{"$set": 5}, {"$count": "n"}], None),
        ([{"$replaceRoot": {"newRoot": "$a.b"}}], {"a"}),
        ([{"$replaceRoot": {"newRoot": "$$ROOT"}}], None),
        ([{"$project": {"_id": 0}}, {"$count": "n"}], None),
        ([{"$project": {"_id": 0, "a.b": 1}}, {"$match": {"c": 1}}], {"a"}),
        ([{"$project": {"a": {"$slice": 1}}}], None),
    ],
)
def test_columns(stages: list[dict[str, Any]], columns: set[str] | None) -> None:
    """All of them, unless it is certain which."""
    assert columns_read(stages) == columns


def test_include_only_where_the_backend_does_not_find_out() -> None:
    count = {"$match": {"b": 1, "a": 1}}, {"$count": "n"}
    assert include_needed_columns(draft(*count), SCOPE).include is None
    assert include_needed_columns(draft(*count, inhibits=True), SCOPE).include == ("a", "b")
    assert include_needed_columns(draft({"$match": {"": 1}}, {"$count": "n"}, inhibits=True), SCOPE).include is None
    assert include_needed_columns(draft(inhibits=True), SCOPE).include is None
