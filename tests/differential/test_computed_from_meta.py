"""Fields that are computed from the meta field: native servers get some wrong, so a plain collection is the judge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.read_twins import at, beside_plain, comparable
from tests.support.twins import Twins, run

TOPS: dict[str, Any] = {"$set": {"m": "$m.k"}}
FROM_META: dict[str, Any] = {"$set": {"a": "$m.k"}}
NO_ARRAY = {"$match": {"m.a": {"$not": {"$elemMatch": {"$exists": True}}}}}


def same_as_plain(twins: Twins, stages: list[dict[str, Any]]) -> None:
    """Through the proxy, a time-series collection returns what a plain one does, with the same fields in raw rows."""
    beside_plain(twins, [{"_id": n, "t": at(n), "m": {"k": n, "z": 1}, "v": n * 10} for n in range(4)])
    # A driver reads the last of two fields of one name, so arrays of pairs show both.
    pairs = {"$group": {"_id": None, "rows": {"$push": {"$objectToArray": "$$ROOT"}}}}
    for more in ([], [pairs]):
        ours, judge = (
            run(twins.virtual, {"aggregate": name, "pipeline": [*stages, *more], "cursor": {}})
            for name in ("x", "plain")
        )
        assert comparable(ours) == comparable(judge), (ours, judge)


@pytest.mark.parametrize(
    "stages",
    [
        [TOPS],
        [TOPS, {"$match": {"m": 1}}],
        [TOPS, {"$match": {"m": {"$gte": 1}}}, {"$group": {"_id": "$m", "n": {"$sum": 1}}}],
        [TOPS, {"$group": {"_id": "$m"}}],
        [NO_ARRAY, TOPS, {"$match": {"m": 1}}],
        [{"$match": {"$or": [NO_ARRAY["$match"], {"m.k": 1}]}}, TOPS, {"$match": {"m": 1}}],
        [{"$sort": {"m": 1}}, TOPS, {"$match": {"m": 1}}],
        [{"$unset": "v"}, TOPS, {"$match": {"m": 1}}],
        [{"$project": {"m": 1, "v": 1}}, TOPS, {"$match": {"m": 1}}],
        [{"$addFields": {"a": "$m.k"}}, {"$addFields": {"m": {"$add": ["$m.k", "$m.z"]}}}, {"$match": {"m": 1}}],
        [{"$set": {"m.x": "$m.k"}}, {"$match": {"m.x": 1}}],
        [{"$fill": {"output": {"m": {"value": 7}}}}, {"$match": {"m.k": 1}}],
        [{"$set": {"m": "$m.k"}}, {"$unset": "m"}],
        [{"$project": {"m": "$m.k", "v": 1}}, {"$match": {"m": 1}}],
        [{"$replaceWith": {"m": "$m.k", "v": "$v"}}, {"$match": {"m": 1}}],
        [{"$setWindowFields": {"sortBy": {"t": 1}, "output": {"m": {"$max": "$v"}}}}, {"$match": {"m": 10}}],
        [{"$lookup": {"from": "none", "localField": "m.k", "foreignField": "_id", "as": "m"}}, {"$match": {"m": []}}],
    ],
    ids=lambda stages: ",".join(next(iter(stage)) for stage in stages),
)
def test_h12_the_meta_field_computed_from_itself(twins: Twins, stages: list[dict[str, Any]]) -> None:
    """Natively, rows have it twice on 6.0, and a match on it finds none."""
    same_as_plain(twins, stages)


@pytest.mark.parametrize(
    "stages",
    [
        [FROM_META, {"$project": {"v": 1}}],
        [FROM_META, {"$project": {"_id": 1}}],
        [{"$addFields": {"v": "$m.k", "b": "$m.z"}}, {"$project": {"_id": 0, "b": 1}}],
        [{"$match": {"m.k": {"$gte": 1}}}, FROM_META, {"$project": {"v": 1}}],
        [FROM_META, {"$project": {"v": 1}}, {"$group": {"_id": "$v", "rows": {"$push": "$$ROOT"}}}],
        [{"$set": {"a": {"$getField": {"field": "k", "input": "$m"}}}}, {"$project": {"v": 1}}],
        [FROM_META, {"$project": {"a": 1, "v": 1}}],
        [FROM_META, {"$project": {"b": "$a"}}],
    ],
    ids=lambda stages: ",".join(next(iter(stage)) for stage in stages),
)
def test_h13_a_projection_leaves_out_what_was_computed(twins: Twins, stages: list[dict[str, Any]]) -> None:
    """Natively, 6.0.5 returns it all the same."""
    same_as_plain(twins, stages)
