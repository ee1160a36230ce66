"""Stages behind ``$unionWith`` of a time-series collection (H15): a plain collection is the judge."""

from __future__ import annotations

from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from tests.support.read_twins import at, beside_plain, comparable
from tests.support.twins import Twins, run

Stage = dict[str, Any]

OF_B: Stage = {"$match": {"b": "a"}}
OF_K: Stage = {"$match": {"k": 2}}
BEFORE_1970: Stage = {"$match": {"t": {"$lt": DatetimeMS(0)}}}
BELOW: Stage = {"$match": {"$expr": {"$lt": ["$h", 0]}}}
TOPS: Stage = {"$set": {"m": "$m.x"}}
FROM_META: Stage = {"$set": {"w": "$m.x"}}
BY_ID: Stage = {"$sort": {"_id": 1, "b": 1}}


def union(*stages: Stage, coll: str = "@") -> Stage:
    return {"$unionWith": {"coll": coll, "pipeline": [*stages]}}


def on(name: str, value: Any) -> Any:
    """The stages with the name of a collection in place of ``@``; ``@ view`` is a view on it."""
    if isinstance(value, str):
        return value.replace("@", name)
    if isinstance(value, dict):
        return {key: on(name, inner) for key, inner in value.items()}
    return [on(name, inner) for inner in value] if isinstance(value, list) else value


def same_beside_plain(twins: Twins, stages: list[Stage]) -> None:
    """Every union of the two collections has the rows that it has if both are plain."""
    rows = [
        {"_id": n, "t": at(n), "m": {"x": "q" if n % 2 else 1}, "b": "aab"[n % 3], "k": n % 4}
        | ({"h": 5} if n % 3 else {})
        for n in range(12)
    ]
    beside_plain(twins, [*rows, {"_id": 12, "t": DatetimeMS(-(10**12)), "m": {"x": "q"}, "b": "a", "k": 2}])
    twins.virtual.command({"insert": "one", "documents": [{"_id": 0, "k": 2}]})
    for name in ("x", "plain"):
        twins.virtual.command({"create": f"{name} view", "viewOn": name, "pipeline": [OF_B]})
    # A driver reads the last of two fields of one name, so arrays of pairs show both.
    pairs = {"$group": {"_id": None, "rows": {"$push": {"$objectToArray": "$$ROOT"}}}}
    for more in ([], [pairs]):
        answers = [
            run(twins.virtual, {"aggregate": outer, "pipeline": on(inner, [*stages, *more]), "cursor": {}})
            for outer, inner in (("plain", "plain"), ("x", "x"), ("x", "plain"))
        ]
        judge, *ours = map(comparable, answers)
        assert ours == [judge, judge], stages


@pytest.mark.parametrize(
    "stages",
    [
        [union(OF_B), OF_K],
        [union(OF_B), {"$sort": {"k": 1}}, OF_K],
        [union(OF_B), OF_K, {"$match": {"m.x": 1}}, {"$project": {"b": 1}}],
        [union(OF_B), {"$lookup": {"from": "one", "localField": "k", "foreignField": "k", "as": "l"}}, OF_K],
        [union(OF_B), {"$unwind": "$k"}, OF_K],
        [union(OF_B), {"$set": {"c": "$k", "b": "$m.x"}}, OF_K, {"$match": {"b": "q"}}],
        [union(OF_B), {"$project": {"k": 1}}, OF_K, OF_B],
        [union(OF_B), {"$unset": "k"}, OF_K],
        [union(coll="@ view"), OF_K],
        [union(coll="@ view"), union(OF_B), OF_K],
        [union(OF_B), union(coll="one"), OF_K],
        [union(union(OF_B), coll="one"), OF_K],
        [union(union(OF_B), OF_K, coll="one")],
        [{"$lookup": {"from": "one", "pipeline": [union(OF_B), OF_K, BY_ID, {"$project": {"k": 1}}], "as": "l"}}],
        [
            {"$match": {"_id": {"$lt": 4}}},
            {
                "$lookup": {
                    "from": "one",
                    "let": {"k": "$k"},
                    "pipeline": [
                        union(OF_B),
                        {"$match": {"$expr": {"$eq": ["$k", "$$k"]}}},
                        {"$count": "n"},
                    ],
                    "as": "l",
                }
            },
        ],
    ],
    ids=lambda stages: ",".join(next(iter(stage)) for stage in stages),
)
def test_h15_the_pipeline_of_a_union_keeps_its_match(twins: Twins, stages: list[Stage]) -> None:
    """Natively, on 6.0.27, a later ``$match`` takes the place of the one in the union."""
    same_beside_plain(twins, stages)


@pytest.mark.parametrize(
    "stages",
    [
        [{"$unionWith": "@"}, TOPS, {"$match": {"m": "q"}}],
        [{"$unionWith": "@"}, TOPS, {"$group": {"_id": "$m", "n": {"$sum": 1}}}],
        [{"$unionWith": "@"}, OF_K, TOPS, {"$match": {"m": "q"}}],
        [union(TOPS, {"$match": {"m": "q"}})],
        [union(OF_B, TOPS), {"$match": {"m": "q"}}],
        [{"$unionWith": "@"}, {"$set": {"m.y": "$m.x"}}, {"$match": {"m.y": "q"}}],
        [{"$unionWith": "@"}, {"$fill": {"output": {"m": {"value": 7}}}}, {"$match": {"m.x": "q"}}],
        [{"$unionWith": "@"}, {"$set": {"m": {"$getField": {"field": "m", "input": "$$ROOT"}}}}, OF_K],
        [{"$unionWith": "@"}, FROM_META, {"$project": {"_id": 1}}],
        [union(FROM_META), {"$project": {"k": 1}}],
        [union(FROM_META, {"$project": {"k": 1}})],
        [{"$unionWith": "@"}, {"$project": {"k": 1}}, {"$match": {"m.x": 1}}],
        [union({"$project": {"k": 1}}), {"$match": {"m.x": 1}}],
    ],
    ids=lambda stages: ",".join(next(iter(stage)) for stage in stages),
)
def test_h15_fields_computed_from_the_meta_field(twins: Twins, stages: list[Stage]) -> None:
    """Natively, these stages are subject to H12 and H13 in the pipeline of the union, where servers move them."""
    same_beside_plain(twins, stages)


@pytest.mark.parametrize(
    "stages",
    [
        [{"$unionWith": "@"}, BEFORE_1970],
        [{"$unionWith": "@"}, {"$set": {"c": 1}}, BEFORE_1970],
        [union(OF_B), OF_K, BEFORE_1970],
        [{"$unionWith": "@"}, {"$match": {"t": {"$lt": at(5)}}}],
        [{"$unionWith": "@"}, BELOW],
        [{"$unionWith": "@"}, OF_K, BELOW],
    ],
    ids=lambda stages: ",".join(next(iter(stage)) for stage in stages),
)
def test_h15_bounds_lose_no_rows(twins: Twins, stages: list[Stage]) -> None:
    """Natively, these stages are subject to H2 and H3 in the pipeline of the union, where servers move them."""
    same_beside_plain(twins, stages)


def test_a_union_in_a_facet_is_refused_or_as_it_was(twins: Twins) -> None:
    """Servers do not unpack buckets in a ``$facet``, nor do they accept there what inhibits their optimiser."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    for name in ("x", "plain"):
        twins.same({"insert": name, "documents": [{"_id": 1, "t": at(0), "m": {"x": 1}}]})
        arm = [{"$unionWith": name}, TOPS, {"$match": {"m": 1}}, {"$project": {"m": 1}}]
        twins.same({"aggregate": "x", "pipeline": [{"$facet": {"a": arm}}], "cursor": {}})
