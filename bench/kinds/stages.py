"""Kinds of ``aggregate`` by its other stages: shapes, orders, windows, arrays, dates."""

from __future__ import annotations

from typing import Any

from bench.kinds.finds import GERMAN, HOST, SQUARE
from bench.kinds.kind import Document, Kind, Times, aggregate

_ONE: Document = {"$match": {"m.host": HOST}}
_RACK: Document = {"$match": {"m.rack": 2}}


def stages(times: Times) -> list[Kind]:
    """All of them."""
    return [*_shapes(), *_orders(times), *_windows(times), *_branches(times), *_expressions(times)]


def _shapes() -> list[Kind]:
    total: Document = {"$add": ["$v", "$n"]}
    return [
        aggregate("empty pipeline"),
        aggregate("$match", {"$match": {"v": {"$gt": 90}}}),
        aggregate("two $match", _RACK, {"$match": {"v": {"$gt": 90}}}),
        aggregate("$project", {"$project": {"v": 1, "time": 1}}),
        aggregate("$project computed", {"$project": {"x": total}}),
        aggregate("$project, then $match", {"$project": {"v": 1, "m": 1}}, _ONE),
        aggregate("$project without", {"$project": {"place": 0, "list": 0}}),
        aggregate("$unset", {"$unset": ["place", "o.b"]}),
        aggregate("$unset of meta", {"$unset": "m.tags"}),
        aggregate("$addFields", {"$addFields": {"x": total}}),
        aggregate("$set of meta", {"$set": {"host": "$m.host"}}, {"$match": {"host": HOST}}),
        aggregate("$set of the time", {"$set": {"time": {"$add": ["$time", 1]}}}),
        aggregate("$set, then $match", {"$set": {"x": total}}, {"$match": {"x": {"$gt": 195}}}),
        aggregate("$set, $match of a series", {"$set": {"x": total}}, _ONE),
        aggregate("$replaceRoot", {"$replaceRoot": {"newRoot": "$o"}}),
        aggregate("$replaceWith", {"$replaceWith": {"v": "$v", "host": "$m.host"}}),
        aggregate("$unwind", _RACK, {"$unwind": "$list"}),
        aggregate("$unwind and $group", {"$unwind": "$list"}, {"$group": {"_id": "$list", "n": {"$sum": 1}}}),
        aggregate("$unwind with index", _ONE, {"$unwind": {"path": "$list", "includeArrayIndex": "at"}}),
        aggregate("$unwind of meta", {"$unwind": "$m.tags"}, {"$group": {"_id": "$m.tags", "n": {"$sum": "$n"}}}),
        aggregate("$redact", _RACK, {"$redact": {"$cond": [{"$gt": ["$v", 50]}, "$$KEEP", "$$PRUNE"]}}),
        aggregate("$sample", {"$sample": {"size": 20}}, compares="number"),
        aggregate("$limit", {"$limit": 10}, compares="number"),
        aggregate("$skip, $limit", {"$skip": 500}, {"$limit": 10}, compares="number"),
        aggregate("$limit, then $group", {"$limit": 500}, {"$group": {"_id": None, "n": {"$sum": 1}}}),
        aggregate("$match under a collation", {"$match": {"s": "ALPHA"}}, options={"collation": GERMAN}),
        aggregate("small batches", _RACK, options={"cursor": {"batchSize": 100}}),
    ]


def _orders(times: Times) -> list[Kind]:
    hour: Document = {"$match": {"time": times.window(0.5, 0.7)}}
    return [
        aggregate("$sort by time", {"$sort": {"time": 1}}),
        aggregate("$sort by time downwards", {"$sort": {"time": -1}}),
        aggregate("$sort by time, $limit", {"$sort": {"time": -1}}, {"$limit": 5}, compares="number"),
        aggregate("$sort by meta", {"$sort": {"m.host": 1}}, compares="number"),
        aggregate("$sort by meta and time", {"$sort": {"m.host": 1, "time": 1}}),
        aggregate("$sort of a series by time", _ONE, {"$sort": {"time": 1}}),
        aggregate("$sort of a range by time", hour, {"$sort": {"time": 1}}),
        aggregate("$sort of a range downwards, $limit", hour, {"$sort": {"time": -1, "_id": 1}}, {"$limit": 10}),
        aggregate("$sort by measurement", {"$sort": {"v": 1, "_id": 1}}),
        aggregate("$sort by measurement, $limit", {"$sort": {"v": -1, "_id": 1}}, {"$limit": 10}),
        aggregate("$sort, then $project", _RACK, {"$sort": {"time": 1}}, {"$project": {"v": 1}}),
        aggregate("$project, then $sort", {"$project": {"v": 1, "time": 1}}, {"$sort": {"time": 1}}),
        aggregate("$sort, then $match", {"$sort": {"time": 1}}, _ONE),
        aggregate("$sort, $group by hour", {"$sort": {"time": 1}},
                  {"$group": {"_id": {"$dateTrunc": {"date": "$time", "unit": "hour"}}, "v": {"$first": "$time"}}}),
    ]  # fmt: skip


def _window(name: str, output: Any, *, unit: Any = None, sort: Any = None, before: Document = _RACK) -> Kind:
    window: Document = {} if unit is None else {"window": unit}
    stage = {"partitionBy": "$m.host", "sortBy": sort or {"time": 1}, "output": {"x": {**output, **window}}}
    return aggregate(f"window {name}", before, {"$setWindowFields": stage}, {"$project": {"x": 1}})


def _windows(times: Times) -> list[Kind]:
    ten = {"documents": [-10, 0]}
    minutes = {"range": [-5, 0], "unit": "minute"}
    hour: Document = {"$match": {"time": times.window(0.5, 0.7)}}
    densified = {"field": "time", "partitionByFields": ["m.host"],
                 "range": {"step": 10, "unit": "minute", "bounds": "full"}}  # fmt: skip
    filled = {"partitionBy": {"h": "$m.host"}, "sortBy": {"time": 1}, "output": {"w": {"method": "linear"}}}
    carried = {"partitionBy": {"h": "$m.host"}, "sortBy": {"time": 1}, "output": {"w": {"method": "locf"}}}
    return [
        _window("$sum", {"$sum": "$n"}, unit={"documents": ["unbounded", "current"]}),
        _window("$avg of ten", {"$avg": "$n"}, unit=ten),
        _window("$avg of minutes", {"$avg": "$n"}, unit=minutes),
        _window("$max of minutes", {"$max": "$v"}, unit=minutes),
        _window("$derivative", {"$derivative": {"input": "$counter", "unit": "second"}}, unit={"documents": [-1, 0]}),
        _window("$integral", {"$integral": {"input": "$n", "unit": "second"}}),
        _window("$rank", {"$rank": {}}),
        _window("$documentNumber", {"$documentNumber": {}}),
        _window("$shift", {"$shift": {"output": "$v", "by": -1}}),
        _window("$expMovingAvg", {"$expMovingAvg": {"input": "$n", "N": 5}}),
        _window("$first", {"$first": "$v"}, unit=ten),
        _window("$push", {"$push": "$n"}, unit={"documents": [-2, 0]}),
        _window("of a series", {"$avg": "$n"}, unit=ten, before=_ONE),
        _window("of a range", {"$avg": "$n"}, unit=ten, before=hour),
        _window("of everything", {"$sum": "$n"}, unit=ten, before={"$match": {}}),
        aggregate("$densify", _ONE, {"$project": {"time": 1, "m": 1}}, {"$densify": densified}),
        aggregate("$fill linear", _RACK, {"$fill": filled}, {"$project": {"w": 1}}),
        aggregate("$fill locf", _RACK, {"$fill": carried}, {"$project": {"w": 1}}),
    ]


def _branches(times: Times) -> list[Kind]:
    hour: Document = {"$match": {"time": times.window(0.5, 0.7)}}
    by_host: Document = {"$group": {"_id": "$m.host", "n": {"$sum": 1}}}
    facets = {"hosts": [by_host, {"$sort": {"_id": 1}}], "top": [{"$sort": {"v": -1, "_id": 1}}, {"$limit": 3}]}
    near: Document = {"near": {"type": "Point", "coordinates": [2, 2]}, "key": "place", "distanceField": "far"}
    union: Document = {"coll": "@", "pipeline": [{"$match": {"m.host": "host_008"}}]}
    return [
        aggregate("$facet", {"$facet": facets}),
        aggregate("$facet of a range", hour, {"$facet": facets}),
        aggregate("$unionWith itself", _ONE, {"$unionWith": union}),
        aggregate("$unionWith groups", by_host, {"$unionWith": {"coll": "@", "pipeline": [hour, by_host]}}),
        aggregate("$geoNear", {"$geoNear": {**near, "maxDistance": 10_000}}),
        aggregate("$geoWithin", {"$match": {"place": {"$geoWithin": {"$geometry": SQUARE}}}}, {"$count": "n"}),
    ]


def _computed(name: str, expression: Any, before: Document = _RACK) -> Kind:
    return aggregate(f"expression {name}", before, {"$project": {"x": expression}})


def _expressions(times: Times) -> list[Kind]:
    return [
        _computed("$dateToString", {"$dateToString": {"date": "$time", "format": "%H:%M"}}),
        _computed("$dateToParts", {"$dateToParts": {"date": "$time"}}),
        _computed("$dateDiff", {"$dateDiff": {"startDate": "$d", "endDate": "$time", "unit": "minute"}}),
        _computed("$dateTrunc", {"$dateTrunc": {"date": "$time", "unit": "minute"}}),
        _computed("$dayOfWeek", {"$dayOfWeek": "$time"}),
        _computed("$cond", {"$cond": [{"$gt": ["$v", 50]}, "$n", "$w"]}),
        _computed("$switch", {"$switch": {"branches": [{"case": "$flag", "then": 1}], "default": 0}}),
        _computed("$ifNull", {"$ifNull": ["$w", 0]}),
        _computed("$type", {"$type": "$w"}),
        _computed("$concat", {"$concat": ["$m.host", "/", "$s"]}),
        _computed("$filter", {"$filter": {"input": "$list", "cond": {"$gt": ["$$this", 50]}}}),
        _computed("$map", {"$map": {"input": "$list", "in": {"$add": ["$$this", 1]}}}),
        _computed("$reduce", {"$reduce": {"input": "$list", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}),
        _computed("$sortArray", {"$sortArray": {"input": "$list", "sortBy": -1}}),
        _computed("$slice", {"$slice": ["$list", 2]}),
        _computed("$objectToArray", {"$objectToArray": "$o"}),
        _computed("$mergeObjects", {"$mergeObjects": ["$o", {"z": "$v"}]}),
        _computed("$getField", {"$getField": "v"}),
        _computed("$setField", {"$setField": {"field": "v", "input": "$$ROOT", "value": 1}}),
        _computed("$$ROOT", "$$ROOT"),
        _computed("$$NOW", {"$lt": ["$time", "$$NOW"]}),
        _computed("$let", {"$let": {"vars": {"a": "$v"}, "in": {"$multiply": ["$$a", 2]}}}),
        _computed("of meta", {"$toUpper": "$m.host"}),
        _computed("of the _id", {"$mod": ["$_id", 7]}),
        _computed("of a range", {"$round": ["$v", 1]}, {"$match": {"time": times.window(0.5, 0.6)}}),
    ]
