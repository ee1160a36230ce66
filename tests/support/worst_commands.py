"""Commands that grow in each direction in which the grammar lets them grow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final

from bson import Int64

Command = dict[str, Any]
Corner = Callable[[int], Command]
TIME: Final = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def nested(inner: Any, count: int, wrap: Callable[[Any], Any]) -> Any:
    """``inner`` inside so many of something."""
    for _ in range(count):
        inner = wrap(inner)
    return inner


def _or_mixed(n: int) -> Any:
    """Arms on the meta field first and one on a measurement last, at every level."""
    levels = min(n, 30)
    arms = [{"m.a": number} for number in range(max(1, n // levels))]
    return nested({"x": 1}, levels, lambda inner: {"$or": [*arms, inner]})


FILTERS: Final[Mapping[str, Callable[[int], Any]]] = {
    "wide $or": lambda n: {"$or": [{"x": number} for number in range(n)]},
    "wide $or of paths": lambda n: {"$or": [{"x.y.z": number, "m.a": 1} for number in range(n)]},
    "wide $and of times": lambda n: {"$and": [{"t": {"$gt": TIME}} for _ in range(n)]},
    "wide $nor": lambda n: {"$nor": [{"m": {"$not": {"$gt": number}}} for number in range(n)]},
    "deep $or": lambda n: nested({"x": 1}, min(n, 30), lambda inner: {"$or": [inner, {"m": 1}]}),
    "deep $and": lambda n: nested({"x": 1}, min(n, 30), lambda inner: {"$and": [inner, {"m": 1}]}),
    "deep $nor": lambda n: nested({"m": 1}, min(n, 30), lambda inner: {"$nor": [inner]}),
    "deep and wide $or": _or_mixed,
    "deep and wide $and": lambda n: nested(
        {"x": 1}, min(n, 30), lambda inner: {"$and": [*({"m.a": each} for each in range(max(1, n // 30))), inner]}
    ),
    "$or inside $and": lambda n: {"$and": [{"$or": [{"m.a": 1}, {"$and": [{"m.b": 1}, {"x": 1}]}]} for _ in range(n)]},
    "$in": lambda n: {"x": {"$in": list(range(n))}},
    "$in of a long path": lambda n: {".".join("p" * min(n, 300)): {"$in": list(range(n))}},
    "$in of times": lambda n: {"t": {"$in": [TIME] * n}},
    "$in of meta": lambda n: {"m": {"$in": [{"a": number} for number in range(n)]}},
    "$nin": lambda n: {"m": {"$nin": list(range(n))}},
    "$in of strings": lambda n: {"x": {"$in": [str(number) for number in range(n)]}},
    "$all of $elemMatch": lambda n: {"m": {"$all": [{"$elemMatch": {"a": number}} for number in range(n)]}},
    "deep $elemMatch": lambda n: {"m": nested({"a": 1}, min(n, 35), lambda inner: {"$elemMatch": {"b": inner}})},
    "deep $not": lambda n: {"m": nested({"$gt": 1}, min(n, 70), lambda inner: {"$not": inner})},
    "many fields": lambda n: {f"f{number}": number for number in range(n)},
    "many ranges": lambda n: {f"f{number}.a.b": {"$gt": 1, "$lt": 9} for number in range(n)},
    "a long path": lambda n: {".".join("p" * n): 1},
    "long paths": lambda n: {f"{number}." + ".".join("p" * 100): 1 for number in range(n)},
    "a long name": lambda n: {"x" * n: {"$in": list(range(500))}},
    "$expr": lambda n: {"$expr": {"$and": [{"$eq": ["$m.a", number]} for number in range(n)]}},
    "$expr of measurements": lambda n: {"$expr": {"$or": [{"$gt": ["$x", number]} for number in range(n)]}},
    "$expr of times": lambda n: {"$expr": {"$and": [{"$gte": ["$t", {"$add": ["$$NOW", k]}]} for k in range(n)]}},
    "$expr of constants": lambda n: {"$expr": {"$lt": [{"$add": ["$$NOW", *range(n)]}, "$t"]}},
    "wide $or of $expr": lambda n: {"$or": [{"$expr": {"$eq": ["$x.y", number]}} for number in range(n)]},
    "deep $expr of measurements": lambda n: {
        "$expr": nested({"$gt": ["$x", 1]}, min(n, 30), lambda inner: {"$and": [{"$lt": ["$t", "$$NOW"]}, inner]})
    },
    "deep $expr": lambda n: {"$expr": nested("$m.a", min(n, 35), lambda inner: {"$add": [inner, 1]})},
    "$switch": lambda n: {"$expr": {"$switch": {"branches": [{"case": "$m", "then": k} for k in range(n)]}}},
    "$regex": lambda n: {"x": {"$regex": "(a+)+" * n}, "m": {"$regex": "^" + "a" * n}},
    "$where": lambda n: {"$where": "x" * n},
    "$jsonSchema": lambda n: {"$jsonSchema": {"properties": {f"f{k}": {"bsonType": "int"} for k in range(n)}}},
    "a long string": lambda n: {"x": "$$" * n},
    "operators": lambda n: {"x": {"$gt": 1, **{f"$a{number}": 1 for number in range(n)}}},
}  # fmt: skip

PIPELINES: Final[Mapping[str, Callable[[int], Any]]] = {
    "$match": lambda n: [{"$match": {"m.a": number}} for number in range(n)],
    "$match of times": lambda n: [{"$match": {"t": {"$gt": TIME}}} for _ in range(n)],
    "$limit": lambda n: [{"$skip": 1} for _ in range(n)],
    "$addFields": lambda n: [{"$addFields": {f"f{number}": "$x"}} for number in range(n)],
    "wide $addFields": lambda n: [{"$addFields": {f"f{number}": {"$add": ["$x", "$m.y"]} for number in range(n)}}],
    "$project": lambda n: [{"$project": {f"f{number}": 1 for number in range(n)}}],
    "$project of long paths": lambda n: [{"$project": {f"a{k}.{'.'.join('p' * 90)}": 1 for k in range(n)}}],
    "$unset": lambda n: [{"$unset": [f"f{number}" for number in range(n)]}],
    "$sort": lambda n: [{"$sort": {f"f{number}": 1 for number in range(n)}}],
    "$group": lambda n: [{"$group": {"_id": "$m", **{f"f{number}": {"$sum": 1} for number in range(n)}}}],
    "$group of extremes": lambda n: [{"$group": {"_id": "$m", **{f"f{k}": {"$max": f"$f{k}"} for k in range(n)}}}],
    "$group of averages": lambda n: [{"$group": {"_id": "$m", **{f"f{k}": {"$avg": "$x"} for k in range(n)}}}],
    "$group by many": lambda n: [{"$group": {"_id": {f"f{number}": "$m.a" for number in range(n)}, "n": {"$sum": 1}}}],
    "$group by one deep": lambda n: [
        {"$group": {"_id": nested("$m.a", min(n, 35), lambda inner: {"$concat": [inner, "x"]}), "n": {"$sum": 1}}}
    ],
    "$group of first meta": lambda n: [{"$group": {"_id": "$m", **{f"f{k}": {"$first": "$m.a"} for k in range(n)}}}],
    "last point": lambda n: [
        {"$sort": {**{f"m.f{number}": 1 for number in range(n)}, "t": -1}},
        {"$group": {"_id": {f"f{k}": f"$m.f{k}" for k in range(n)}, **{f"g{k}": {"$first": "$x"} for k in range(n)}}},
    ],
    "$facet": lambda n: [{"$facet": {f"f{number}": [{"$match": {"x": 1}}] for number in range(n)}}],
    "nested $lookup": lambda n: nested(
        [{"$match": {"x": 1}}], min(n, 18), lambda inner: [{"$lookup": {"from": "y", "as": "y", "pipeline": inner}}]
    ),
    "$unionWith": lambda n: [{"$unionWith": {"coll": "y", "pipeline": [{"$match": {"x": k}}]}} for k in range(n)],
    "$switch": lambda n: [
        {"$addFields": {"v": {"$switch": {"branches": [{"case": {"$eq": ["$x", k]}, "then": k} for k in range(n)]}}}}
    ],
    "$bucket": lambda n: [{"$bucket": {"groupBy": "$x", "boundaries": list(range(n))}}],
    "$documents": lambda n: [{"$documents": [{"a": number} for number in range(n)]}],
    "$count": lambda n: [{"$match": {"$or": [{"m": number} for number in range(n)]}}, {"$count": "n"}],
    "$count of a long name": lambda n: [{"$count": "n" * n}],
    "$setWindowFields": lambda n: [{"$setWindowFields": {"output": {f"f{k}": {"$sum": "$x"} for k in range(n)}}}],
    "what is no stage": lambda n: [{} for _ in range(n)],
}  # fmt: skip

OTHERS: Final[Mapping[str, Corner]] = {
    "let": lambda n: {"find": "x", "filter": {"x": 1}, "let": {f"v{number}": number for number in range(n)}},
    "hint": lambda n: {"find": "x", "hint": {f"f{number}": 1 for number in range(n)}},
    "hint of long paths": lambda n: {"find": "x", "hint": {".".join("p" * n): 1}},
    "sort": lambda n: {"find": "x", "sort": {f"f{number}": 1 for number in range(n)}},
    "projection": lambda n: {"find": "x", "projection": {f"f{number}": 1 for number in range(n)}},
    "exclusion": lambda n: {"find": "x", "projection": {f"f{number}": 0 for number in range(n)}},
    "collation": lambda n: {"find": "x", "collation": {"locale": "x" * n}},
    "comment": lambda n: {"find": "x", "filter": {"x": 1}, "comment": [{}] * n},
    "distinct": lambda n: {"distinct": "x", "key": ".".join("p" * n)},
    "top-level fields": lambda n: {"find": "x", **{f"f{number}": 1 for number in range(n)}},
    "deletes": lambda n: {"delete": "x", "deletes": [{"q": {"x": k}, "limit": 0} for k in range(n)]},
    "deletes of meta": lambda n: {"delete": "x", "deletes": [{"q": {"m": k}, "limit": 0} for k in range(n)]},
    "deletes and stmtIds": lambda n: {
        "delete": "x", "deletes": [{"q": {"x": k}, "limit": 1} for k in range(n)], "stmtIds": list(range(n)),
        "txnNumber": Int64(1),
    },
    "updates": lambda n: {"update": "x", "updates": [
        {"q": {"m": {"$in": [{"a": k}]}}, "u": {"$set": {"m.b": k}}, "multi": True} for k in range(n)]},
    "updates with filters": lambda n: {"update": "x", "updates": [
        {"q": {"m": 1}, "u": {"$set": {"m.$[e]": 1}}, "multi": True, "arrayFilters": [{"e": k} for k in range(n)]}]},
    "an update of many fields": lambda n: {"update": "x", "updates": [
        {"q": {"m": {"$in": [{"a": 1}]}}, "u": {"$set": {f"m.f{k}": k for k in range(n)}}, "multi": True}]},
    "findAndModify": lambda n: {"findAndModify": "x", "query": {f"f{k}": k for k in range(n)}, "remove": True,
                                "sort": {f"s{k}": 1 for k in range(n)}, "fields": {f"p{k}": 1 for k in range(n)}},
    "collMod": lambda n: {"collMod": "x", "validator": {f"f{number}": 1 for number in range(n)}},
    "create": lambda n: {"create": "x", "storageEngine": {f"f{number}": 1 for number in range(n)}},
    "killCursors": lambda n: {"killCursors": "x", "cursors": [Int64(number) for number in range(n)]},
    "getMore of no cursor": lambda n: {"getMore": Int64(5), "collection": ["x"] * n, "comment": [{}] * n},
    "getMore": lambda n: {"getMore": Int64(5), "collection": "x", "comment": [{"a": k} for k in range(n)]},
    "renameCollection": lambda n: {"renameCollection": "db.x", "to": [{}] * n},
    "serverStatus": lambda n: {"serverStatus": 1, **{f"f{number}": 0 for number in range(n)}},
    "explain of what is none": lambda n: {"explain": {"find": ["x"] * n}},
    "a read preference": lambda n: {"find": "x", "$readPreference": {"mode": "nearest", "tags": [{"a": "b"}] * n}},
}  # fmt: skip


def corners() -> dict[str, Corner]:
    """Each command by a name, a filter in each command that takes one, and what can be explained explained."""
    found: dict[str, Corner] = dict(OTHERS)
    for name, grow in FILTERS.items():
        found[f"find {name}"] = lambda n, grow=grow: {"find": "x", "filter": grow(n)}  # type: ignore[misc]
        found[f"count {name}"] = lambda n, grow=grow: {"count": "x", "query": grow(n)}  # type: ignore[misc]
        found[f"delete {name}"] = lambda n, grow=grow: {  # type: ignore[misc]
            "delete": "x", "deletes": [{"q": grow(n), "limit": 0}],
        }  # fmt: skip
        found[f"explain {name}"] = lambda n, grow=grow: {  # type: ignore[misc]
            "explain": {"find": "x", "filter": grow(n), "projection": {"x": 1}}
        }
    for name, pipeline in PIPELINES.items():
        found[f"aggregate {name}"] = lambda n, grow=pipeline: {  # type: ignore[misc]
            "aggregate": "x", "pipeline": grow(n), "cursor": {}
        }  # fmt: skip
    return found
