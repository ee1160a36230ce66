"""Kinds with ``$expr``: comparisons with constants (Q19), and others."""

from __future__ import annotations

from typing import Any

from bson import Int64

from bench.kinds.finds import GERMAN, HOST
from bench.kinds.kind import Document, Kind, Times, aggregate, find

AGO: Document = {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": 1}}
AGO_MINUTES: Document = {"$dateSubtract": {"startDate": "$$NOW", "unit": "minute", "amount": 10}}
MINUTE_MS = 60_000


def constants(times: Times) -> list[Kind]:
    """All of them."""
    return [*_last_hour(), *_times(times), *_fields()]


def _last(name: str, expression: Any, *more: Document, **options: Any) -> Kind:
    return aggregate(f"$expr {name}", {"$match": {"$expr": expression}}, *more, **options)


def _last_hour() -> list[Kind]:
    since = {"$gte": ["$time", AGO]}
    counted: Document = {"$group": {"_id": "$m.host", "n": {"$sum": 1}, "v": {"$avg": "$v"}}}
    truncated: Document = {"$dateTrunc": {"date": AGO, "unit": "minute"}}
    begin: Document = {"options": {"let": {"since": AGO}}}
    by_minute: Document = {"$group": {"_id": {"$dateTrunc": {"date": "$time", "unit": "minute"}}, "v": {"$avg": "$v"}}}
    return [
        _last("the last hour", since),
        _last("the last minutes", {"$gt": ["$time", AGO_MINUTES]}),
        _last("the last minutes by subtraction", {"$gt": ["$time", {"$subtract": ["$$NOW", 10 * MINUTE_MS]}]}),
        _last("the last minutes by product",
              {"$gt": ["$time", {"$subtract": ["$$NOW", {"$multiply": [10, 60, 1000]}]}]}),
        _last("the last minutes mirrored", {"$lt": [AGO_MINUTES, "$time"]}),
        _last("the last minutes by addition", {"$gt": ["$time", {"$add": ["$$NOW", -10 * MINUTE_MS]}]}),
        _last("the last minutes, 64-bit", {"$gt": ["$time", {"$subtract": ["$$NOW", Int64(10 * MINUTE_MS)]}]}),
        _last("the last hour, truncated", {"$gte": ["$time", truncated]}),
        _last("the last hour until now", {"$and": [since, {"$lte": ["$time", "$$NOW"]}]}),
        _last("the last hour of a series", {"$and": [since, {"$eq": ["$m.host", HOST]}]}),
        _last("the last hour by series", since, counted),
        _last("the last hour by minute", since, by_minute, {"$sort": {"_id": 1}}),
        _last("the last hour by time", since, {"$sort": {"time": 1}}),
        _last("the last hour, latest first", since, {"$sort": {"time": -1}}, {"$limit": 10}, compares="number"),
        _last("the last hour, some fields", since, {"$project": {"v": 1}}),
        _last("the last hour counted", since, {"$count": "n"}),
        _last("the last hour by let", {"$gte": ["$time", "$$since"]}, **begin),
        _last("the last hour by let and now", {"$and": [{"$gte": ["$time", "$$since"]}, {"$lt": ["$time", "$$NOW"]}]},
              **begin),
        _last("the last hour and a measurement", {"$and": [since, {"$gt": ["$v", 90]}]}),
        _last("the hour before",
              {"$and": [{"$gte": ["$time", {"$subtract": [AGO, 3_600_000]}]}, {"$lt": ["$time", AGO]}]}),
        aggregate("$expr the last hour and a predicate", {"$match": {"$expr": since, "v": {"$gt": 90}}}),
        aggregate("$expr the last hour of a series by predicate", {"$match": {"m.host": HOST, "$expr": since}}),
        aggregate("$expr the last hour within $and", {"$match": {"$and": [{"$expr": since}, {"m.rack": 2}]}}),
        aggregate("$expr the last hour, two stages", {"$match": {"m.rack": 2}}, {"$match": {"$expr": since}}),
        find("the last hour", {"$expr": since}),
        find("the last minutes of a series", {"m.host": HOST, "$expr": {"$gte": ["$time", AGO_MINUTES]}}),
        find("the last hour, latest", {"$expr": since}, sort={"time": -1}, limit=10, compares="number"),
        find("the last hour, collation", {"$expr": since}, collation=GERMAN),
        find("the last hour in $or", {"$or": [{"$expr": since}, {"_id": 5000}]}),
        Kind("count the last hour", {"count": "", "query": {"$expr": since}}),
        Kind("distinct the last hour", {"distinct": "", "key": "m.host", "query": {"$expr": since}}),
    ]  # fmt: skip


def _times(times: Times) -> list[Kind]:
    late, point = times.at(0.97), times.at(0.5)
    return [
        _last("times since", {"$gte": ["$time", late]}),
        _last("times until", {"$lt": ["$time", times.at(0.03)]}),
        _last("times until, inclusive", {"$lte": ["$time", times.at(0.03)]}),
        _last("one time", {"$eq": ["$time", point]}),
        _last("every time but one", {"$ne": ["$time", point]}),
        _last("range of times", {"$and": [{"$gte": ["$time", point]}, {"$lt": ["$time", times.at(0.55)]}]}),
        _last("times of a literal", {"$gte": ["$time", {"$literal": late}]}),
        _last("times of a text", {"$gte": ["$time", {"$dateFromString": {"dateString": late.isoformat()[:19]}}]}),
        _last("times of parts", {"$gte": ["$time", {"$dateFromParts": {"year": 2020, "month": 2}}]}),
        _last("times of a number", {"$gte": ["$time", {"$toDate": Int64(int(late.timestamp() * 1000))}]}),
        _last("times moved", {"$gte": ["$time", {"$dateAdd": {"startDate": point, "unit": "hour", "amount": 1}}]}),
        _last("two ranges", {"$or": [{"$lt": ["$time", times.at(0.02)]}, {"$gte": ["$time", times.at(0.98)]}]}),
        _last("times by let", {"$gte": ["$time", "$$late"]}, options={"let": {"late": late}}),
        _last("negated time", {"$not": [{"$lt": ["$time", late]}]}),
        _last("compared by $cmp", {"$gt": [{"$cmp": ["$time", late]}, 0]}),
        _last("hour of the day", {"$eq": [{"$hour": "$time"}, late.hour]}),
        _last("distance of times", {"$gt": [{"$subtract": ["$time", late]}, 0]}),
        aggregate("$expr after $addFields", {"$addFields": {"x": {"$add": ["$v", 1]}}},
                  {"$match": {"$expr": {"$gte": ["$time", late]}}}),
        aggregate("$expr after $project", {"$project": {"time": 1, "v": 1}},
                  {"$match": {"$expr": {"$gte": ["$time", late]}}}),
    ]  # fmt: skip


def _fields() -> list[Kind]:
    return [
        _last("measurement above", {"$gt": ["$v", 99]}),
        _last("rising measurement", {"$gte": ["$counter", 1100]}),
        _last("measurement above all", {"$gt": ["$v", 1000]}),
        _last("measurement below", {"$lt": ["$v", 1]}),
        _last("measurement equal", {"$eq": ["$n", 42]}),
        _last("measurement unequal", {"$ne": ["$flag", True]}),
        _last("measurement in", {"$in": ["$n", [1, 2, 3]]}),
        _last("measurement by let", {"$gt": ["$v", "$$least"]}, options={"let": {"least": 99}}),
        _last("measurement above a sum", {"$gt": ["$v", {"$add": [98, 1]}]}),
        _last("text", {"$eq": ["$s", "alpha"]}),
        _last("sub-document", {"$gt": ["$o.a", 8]}),
        _last("sparse measurement below", {"$lt": ["$w", 1]}, only_plain_is_right=True),
        _last("two measurements", {"$gt": ["$v", "$n"]}),
        _last("sum of measurements", {"$gt": [{"$add": ["$v", "$n"]}, 195]}),
        _last("series", {"$eq": ["$m.host", HOST]}),
        _last("series in", {"$in": ["$m.host", [HOST, "host_008"]]}),
        _last("series and measurement", {"$and": [{"$eq": ["$m.host", HOST]}, {"$gt": ["$v", 90]}]}),
        _last("measurement or series", {"$or": [{"$eq": ["$m.host", HOST]}, {"$gt": ["$v", 99]}]}),
        _last("always", {"$eq": [1, 1]}),
    ]
