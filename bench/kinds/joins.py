"""Kinds of joins in both directions: from measurements to an ordinary collection, and back."""

from __future__ import annotations

from typing import Any

from bench.kinds.constants import AGO, AGO_MINUTES
from bench.kinds.finds import HOST
from bench.kinds.kind import PARTNER, Document, Kind, Times, aggregate

_ONE: Document = {"$match": {"m.host": HOST}}
_RACK: Document = {"$match": {"m.rack": 2}}
_SORT: Document = {"$sort": {"_id": 1}}


def joins(times: Times) -> list[Kind]:
    """All of them."""
    return [*_to_partner(times), *_from_partner(times)]


def _to_partner(times: Times) -> list[Kind]:
    plain: Document = {"from": PARTNER, "localField": "m.host", "foreignField": "host", "as": "x"}
    inner = [{"$match": {"$expr": {"$eq": ["$host", "$$h"]}}}]
    grouped: Document = {"$group": {"_id": "$m.host", "v": {"$avg": "$n"}}}
    return [
        aggregate("$lookup of a series", _ONE, {"$lookup": plain}),
        aggregate("$lookup of a range", {"$match": {"time": times.window(0.5, 0.52)}}, {"$lookup": plain}),
        aggregate("$lookup and $unwind", _ONE, {"$lookup": plain}, {"$unwind": "$x"}),
        aggregate("$lookup of groups", grouped, {"$lookup": {**plain, "localField": "_id"}}),
        aggregate("$lookup with a pipeline", grouped,
                  {"$lookup": {"from": PARTNER, "let": {"h": "$_id"}, "pipeline": inner, "as": "x"}}),
        aggregate("$lookup of limited rows", {"$sort": {"v": -1, "_id": 1}}, {"$limit": 10}, {"$lookup": plain}),
        aggregate("$graphLookup", grouped,
                  {"$graphLookup": {"from": PARTNER, "startWith": "$_id", "connectFromField": "next",
                                    "connectToField": "host", "as": "x", "maxDepth": 1}}, {"$unwind": "$x"}),
        aggregate("$unionWith an ordinary collection", _ONE, {"$unionWith": PARTNER}),
    ]  # fmt: skip


def _joined(name: str, *inner: Document, let: Any = None, limit: int = 5, **more: Any) -> Kind:
    lookup: Document = {"from": "@", "let": {"h": "$host"} if let is None else let, "pipeline": list(inner), "as": "x"}
    pipeline = [_SORT, {"$limit": limit}, {"$lookup": lookup}]
    return Kind(f"from ordinary: {name}", {"aggregate": PARTNER, "pipeline": pipeline, "cursor": {}, **more})


def _from_partner(times: Times) -> list[Kind]:
    own: Document = {"$eq": ["$m.host", "$$h"]}
    ordered: Document = {"$sort": {"time": 1}}
    latest: Document = {"$sort": {"time": -1}}
    top: Document = {"$group": {"_id": "$m.host", "x": {"$top": {"sortBy": {"time": -1}, "output": "$v"}}}}
    since: Document = {"$gte": ["$time", AGO]}
    fields: Document = {"from": "@", "localField": "host", "foreignField": "m.host", "as": "x"}
    counted: Document = {"$group": {"_id": None, "n": {"$sum": 1}, "v": {"$avg": "$n"}}}
    return [
        Kind("from ordinary: fields", {"aggregate": PARTNER, "cursor": {},
             "pipeline": [_SORT, {"$limit": 3}, {"$lookup": fields}, {"$unwind": "$x"}]}),
        Kind("from ordinary: fields and a pipeline", {"aggregate": PARTNER, "cursor": {},
             "pipeline": [_SORT, {"$limit": 3}, {"$lookup": {**fields, "pipeline": [{"$match": {"v": {"$gt": 90}}}]}},
                          {"$unwind": "$x"}]}),
        _joined("series", {"$match": {"$expr": own}}, ordered),
        _joined("series, latest", {"$match": {"$expr": own}}, latest, {"$limit": 1}),
        _joined("series counted", {"$match": {"$expr": own}}, counted),
        _joined("the last hour", {"$match": {"$expr": since}}, counted),
        _joined("the last minutes of a series",
                {"$match": {"$expr": {"$and": [own, {"$gte": ["$time", AGO_MINUTES]}]}}}, ordered),
        _joined("since a field", {"$match": {"$expr": {"$and": [own, {"$gte": ["$time", "$$s"]}]}}}, counted,
                let={"h": "$host", "s": "$since"}),
        _joined("minutes from a field", {"$match": {"$expr": {"$and": [own, {"$gte": ["$time", {"$dateSubtract": {
                "startDate": "$$NOW", "unit": "minute", "amount": "$$n"}}]}]}}}, counted,
                let={"h": "$host", "n": "$minutes"}),
        _joined("times", {"$match": {"time": times.window(0.5, 0.6)}}, {"$match": {"$expr": own}}, counted),
        _joined("latest by $top", {"$match": {"$expr": own}}, top),
        _joined("latest of every series", top, _SORT, limit=2),
        _joined("latest by $first", {"$sort": {"m.host": 1, "time": -1}},
                {"$group": {"_id": "$m.host", "x": {"$first": "$v"}}}, _SORT, limit=2),
        _joined("measurement", {"$match": {"$expr": {"$gt": ["$v", "$$l"]}}}, counted, let={"l": "$least"}),
        _joined("groups", {"$group": {"_id": "$m.host", "n": {"$sum": 1}}}, _SORT, limit=2),
        _joined("count", {"$count": "n"}, limit=2),
        Kind("from ordinary: $unionWith", {"aggregate": PARTNER, "cursor": {},
             "pipeline": [{"$unionWith": {"coll": "@", "pipeline": [_ONE]}}]}),
        Kind("from ordinary: $unionWith the last hour", {"aggregate": PARTNER, "cursor": {},
             "pipeline": [{"$unionWith": {"coll": "@", "pipeline": [{"$match": {"$expr": since}}, counted]}}]}),
        Kind("from ordinary: $graphLookup", {"aggregate": PARTNER, "cursor": {}, "pipeline": [_SORT, {"$limit": 1},
             {"$graphLookup": {"from": "@", "startWith": "$host", "connectFromField": "none",
                               "connectToField": "m.host", "as": "x", "maxDepth": 0}}, {"$unwind": "$x"}]}),
        aggregate("$lookup itself", _ONE, {"$limit": 3}, {"$lookup": {"from": "@", "let": {"t": "$time"},
                  "pipeline": [{"$match": {"$expr": {"$eq": ["$time", "$$t"]}}}, {"$count": "n"}], "as": "x"}},
                  {"$project": {"x": 1}}, compares="number"),
    ]  # fmt: skip
