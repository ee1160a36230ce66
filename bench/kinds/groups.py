"""Kinds of ``$group``: keys, accumulators, and last points (Q22, Q23)."""

from __future__ import annotations

from typing import Any

from bench.kinds.finds import GERMAN, HOST
from bench.kinds.kind import Document, Kind, Times, aggregate

_LATEST: Document = {"time": -1, "_id": 1}


def groups(times: Times) -> list[Kind]:
    """All of them."""
    return [*_accumulators(), *_keys(times), *_last_points(times), *_sorted_points(times)]


def _group(name: str, key: Any, *before: Document, right: bool = True, **accumulators: Any) -> Kind:
    """``right``: whether native returns the right groups (H4)."""
    stage = {"$group": {"_id": key, **accumulators}}
    return aggregate(f"$group {name}", *before, stage, only_plain_is_right=not right)


def _accumulators() -> list[Kind]:
    host = "$m.host"
    by_v = {"sortBy": {"v": -1, "_id": 1}, "output": "$n"}
    sort: Document = {"$sort": {"_id": 1}}
    return [
        _group("$sum", host, x={"$sum": "$v"}),
        _group("$sum 1", host, x={"$sum": 1}),
        _group("$count", host, x={"$count": {}}),
        _group("$avg", host, x={"$avg": "$n"}),
        _group("$min", host, x={"$min": "$v"}),
        _group("$max", host, x={"$max": "$v"}),
        _group("$min and $max", host, x={"$min": "$v"}, y={"$max": "$v"}),
        _group("$min, $max and $sum", host, x={"$min": "$v"}, y={"$max": "$v"}, z={"$sum": 1}),
        _group("$min of time", host, x={"$min": "$time"}),
        _group("$max of time", host, x={"$max": "$time"}),
        _group("$max of text", host, x={"$max": "$s"}),
        _group("$max of sub-document", host, x={"$max": "$o.a"}),
        _group("$max of object", host, x={"$max": "$o"}, right=False),
        _group("$max of sparse", host, x={"$max": "$w"}, y={"$min": "$w"}),
        _group("$push", host, sort, x={"$push": "$n"}),
        aggregate(
            "$group $addToSet", {"$group": {"_id": host, "x": {"$addToSet": "$flag"}}}, {"$set": {"x": {"$size": "$x"}}}
        ),
        _group("$stdDevPop", host, x={"$stdDevPop": "$n"}),
        _group("$stdDevSamp", host, x={"$stdDevSamp": "$n"}),
        _group("$mergeObjects", host, sort, x={"$mergeObjects": "$o"}),
        _group("$first", host, sort, x={"$first": "$v"}),
        _group("$last", host, sort, x={"$last": "$v"}),
        _group("$minN", host, x={"$minN": {"input": "$v", "n": 3}}),
        _group("$maxN", host, x={"$maxN": {"input": "$v", "n": 3}}),
        _group("$firstN", host, sort, x={"$firstN": {"input": "$v", "n": 3}}),
        _group("$lastN", host, sort, x={"$lastN": {"input": "$v", "n": 3}}),
        _group("$top", host, x={"$top": by_v}),
        _group("$bottomN", host, x={"$bottomN": {**by_v, "n": 3}}),
        _group("expression", host, x={"$sum": {"$multiply": ["$v", "$n"]}}),
        _group("condition", host, x={"$sum": {"$cond": [{"$gt": ["$v", 50]}, 1, 0]}}),
        _group("several", host, x={"$avg": "$n"}, y={"$max": "$v"}, z={"$sum": "$w"}, c={"$sum": 1}),
    ]


def _keys(times: Times) -> list[Kind]:
    v = {"$sum": "$n"}
    truncated = {"$dateTrunc": {"date": "$time", "unit": "hour"}}
    hour: Document = {"$match": {"time": times.window(0.5, 0.7)}}
    return [
        _group("without accumulators", "$m.host"),
        _group("by meta", "$m", x=v),
        _group("by meta object", {"h": "$m.host", "r": "$m.rack"}, x=v),
        _group("by one-field object, extremes", {"h": "$m.host"}, x={"$max": "$v"}, right=False),
        _group("by nothing", None, x=v),
        _group("by nothing, extremes", None, x={"$min": "$v"}, y={"$max": "$v"}),
        _group("by nothing, times", None, x={"$min": "$time"}, y={"$max": "$time"}),
        _group("by hour", truncated, x=v),
        _group("by hour and series", {"h": "$m.host", "t": truncated}, x=v),
        _group("by minutes", {"$dateTrunc": {"date": "$time", "unit": "minute", "binSize": 5}}, x=v),
        _group("by day as text", {"$dateToString": {"date": "$time", "format": "%Y-%m-%d"}}, x=v),
        _group("by parts of the date", {"h": {"$hour": "$time"}, "m": {"$minute": "$time"}}, x=v),
        _group("by text", "$s", x=v),
        _group("by number", "$n", x={"$sum": 1}),
        _group("by sub-document", "$o.a", x=v),
        _group("by expression of meta", {"$concat": ["$m.host", "!"]}, x=v),
        _group("of a series", "$m.rack", {"$match": {"m.host": HOST}}, x=v),
        _group("of a range", "$m.host", hour, x=v, y={"$max": "$v"}),
        _group("of a range by hour", truncated, hour, x={"$avg": "$n"}),
        _group("of measurements", "$m.host", {"$match": {"v": {"$gt": 90}}}, x={"$sum": 1}),
        aggregate("$group then $match", {"$group": {"_id": "$m.host", "x": {"$max": "$v"}}},
                  {"$match": {"_id": HOST}}),
        aggregate("$group under a collation", {"$group": {"_id": "$s", "x": v}}, options={"collation": GERMAN}),
        aggregate("$group, $sort, $limit", {"$group": {"_id": "$m.host", "x": {"$avg": "$n"}}},
                  {"$sort": {"x": -1, "_id": 1}}, {"$limit": 5}),
        aggregate("$count", {"$count": "n"}),
        aggregate("$count of a range", hour, {"$count": "n"}),
        aggregate("$sortByCount of meta", {"$sortByCount": "$m.rack"}),
        aggregate("$sortByCount of text", {"$sortByCount": "$s"}),
        aggregate("$bucket", {"$bucket": {"groupBy": "$v", "boundaries": [0, 25, 50, 101], "output": {"x": v}}}),
        aggregate("$bucketAuto", {"$bucketAuto": {"groupBy": "$v", "buckets": 5}}),
    ]  # fmt: skip


def _last_points(times: Times) -> list[Kind]:
    down, up = {"time": -1}, {"time": 1}
    host, v = "$m.host", "$v"
    root: Document = {"sortBy": down, "output": "$$ROOT"}
    pair = {"sortBy": down, "output": ["$time", v]}
    series: Document = {"$match": {"m.rack": 2}}
    hour: Document = {"$match": {"time": {"$gte": times.at(0.7)}}}
    return [
        _group("latest by $top", host, x={"$top": {"sortBy": down, "output": v}}),
        _group("latest by $bottom", host, x={"$bottom": {"sortBy": up, "output": v}}),
        _group("earliest by $top", host, x={"$top": {"sortBy": up, "output": v}}),
        _group("earliest by $bottom", host, x={"$bottom": {"sortBy": down, "output": v}}),
        _group("latest rows by $top", host, x={"$top": root}),
        _group("latest pairs by $top", host, x={"$top": pair}),
        _group("latest by meta by $top", "$m", x={"$top": pair}),
        _group("latest of some by $top", host, series, x={"$top": pair}),
        _group("latest of a series by $top", host, {"$match": {"m.host": HOST}}, x={"$top": pair}),
        _group("latest of a range by $top", host, hour, x={"$top": pair}),
        _group("latest of measurements by $top", host, {"$match": {"v": {"$gt": 50}}}, x={"$top": pair}),
        _group("latest by $top and _id", host, x={"$top": {"sortBy": _LATEST, "output": v}}),
        _group("latest by meta and time by $top", host, x={"$top": {"sortBy": {"m.host": 1, **down}, "output": v}}),
        _group("latest by $topN of one", host, x={"$topN": {**pair, "n": 1}}),
        _group("latest three by $topN", host, x={"$topN": {**pair, "n": 3}}),
        _group("latest three by $bottomN", host, x={"$bottomN": {"sortBy": up, "output": v, "n": 3}}),
        _group("earliest three by $topN", host, x={"$topN": {"sortBy": up, "output": v, "n": 3}}),
        _group("latest two fields by $top", host, x={"$top": {"sortBy": down, "output": v}},
               y={"$top": {"sortBy": down, "output": "$n"}}),
        _group("latest and $max", host, x={"$top": {"sortBy": down, "output": v}}, y={"$max": "$v"}),
        _group("latest and $sum", host, x={"$top": {"sortBy": down, "output": v}}, y={"$sum": 1}),
        _group("latest and earliest", host, x={"$top": {"sortBy": down, "output": v}},
               y={"$top": {"sortBy": up, "output": v}}),
        _group("latest of all by $top", None, x={"$top": {"sortBy": _LATEST, "output": v}}),
    ]  # fmt: skip


def _sorted_points(times: Times) -> list[Kind]:
    first: Document = {"$group": {"_id": "$m.host", "x": {"$first": "$v"}, "t": {"$first": "$time"}}}
    last: Document = {"$group": {"_id": "$m.host", "x": {"$last": "$v"}, "t": {"$last": "$time"}}}
    rows: Document = {"$group": {"_id": "$m.host", "x": {"$first": "$$ROOT"}}}
    down: Document = {"$sort": {"time": -1}}
    up: Document = {"$sort": {"time": 1}}
    by_host: Document = {"$sort": {"m.host": 1, "time": -1}}
    three: Document = {"$group": {"_id": "$m.host", "x": {"$firstN": {"input": "$v", "n": 3}}}}
    return [
        aggregate("latest by $first", down, first),
        aggregate("latest by $last", up, last),
        aggregate("earliest by $first", up, first),
        aggregate("earliest by $last", down, last),
        aggregate("latest rows by $first", down, rows),
        aggregate("latest by meta, time and $first", by_host, first),
        aggregate("latest by meta, time, and $last", {"$sort": {"m.host": 1, "time": 1}}, last),
        aggregate("earliest by meta, time and $first", {"$sort": {"m.host": 1, "time": 1}}, first),
        aggregate("latest by meta downwards, time and $first", {"$sort": {"m.host": -1, "time": -1}}, first),
        aggregate("latest rows by meta, time and $first", by_host, rows),
        aggregate("latest by another meta, time and $first", {"$sort": {"m.rack": 1, "time": -1}},
                  {"$group": {"_id": "$m.rack", "t": {"$first": "$time"}}}),
        aggregate("latest of some by $first", {"$match": {"m.rack": 2}}, by_host, first),
        aggregate("latest of a range by $first", {"$match": {"time": {"$gte": times.at(0.7)}}}, by_host, first),
        aggregate("latest of a range before by $first", {"$match": {"time": {"$lt": times.at(0.7)}}}, down, first),
        aggregate("latest of measurements by $first", {"$match": {"v": {"$gt": 50}}}, by_host, first),
        aggregate("latest three by $firstN", down, three),
        aggregate("latest by $firstN of one", down,
                  {"$group": {"_id": "$m.host", "x": {"$firstN": {"input": "$v", "n": 1}}}}),
        aggregate("latest by $lastN of one", up,
                  {"$group": {"_id": "$m.host", "x": {"$lastN": {"input": "$v", "n": 1}}}}),
        aggregate("latest and count by $first", down,
                  {"$group": {"_id": "$m.host", "x": {"$first": "$v"}, "n": {"$sum": 1}}}),
        aggregate("latest, then sorted", by_host, first, {"$sort": {"_id": 1}}),
        aggregate("latest of two orders", {"$sort": {"m.host": 1, "time": -1, "_id": 1}}, first),
    ]  # fmt: skip
