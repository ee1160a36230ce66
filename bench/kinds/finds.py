"""Kinds of ``find``: predicates, orders, projections and options."""

from __future__ import annotations

from bench.kinds.kind import Kind, Times, find

HOST = "host_007"
GERMAN = {"locale": "de", "strength": 2}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [0, 5], [5, 5], [5, 0], [0, 0]]]}


def finds(times: Times) -> list[Kind]:
    """All of them."""
    return [*_predicates(times), *_on_measurements(times), *_orders(times), *_options(times)]


def _predicates(times: Times) -> list[Kind]:
    hour, point = times.window(0.5, 0.7), times.at(0.5)
    hosts = {"$in": ["host_003", HOST, "host_011"]}
    return [
        find("everything"),
        find("one series", {"m.host": HOST}),
        find("several series", {"m.host": hosts}),
        find("series by prefix", {"m.host": {"$regex": "^host_00"}}),
        find("series but one", {"m.host": {"$ne": HOST}}),
        find("meta number", {"m.rack": {"$gte": 3}}),
        find("meta array", {"m.tags": "even"}),
        find("meta array size", {"m.tags": {"$size": 2}}),
        find("meta $elemMatch", {"m.tags": {"$elemMatch": {"$eq": "odd"}}}),
        find("whole meta", {"m": {"host": HOST, "rack": 2, "tags": ["odd", "x"]}}),
        find("meta exists", {"m.none": {"$exists": True}}),
        find("meta or", {"$or": [{"m.host": HOST}, {"m.rack": 4}]}),
        find("range of times", {"time": hour}),
        find("short range of times", {"time": times.window(0.5, 0.505)}),
        find("times since", {"time": {"$gte": times.at(0.9)}}),
        find("times until", {"time": {"$lt": times.at(0.1)}}),
        find("one time", {"time": point}),
        find("several times", {"time": {"$in": [times.at(0.1), point, times.at(0.9)]}}),
        find("no such times", {"time": {"$gt": times.at(2)}}),
        find("times outside a range", {"time": {"$not": hour}}),
        find("two ranges of times", {"$or": [{"time": times.window(0.1, 0.15)}, {"time": times.window(0.8, 0.85)}]}),
        find("range of a series", {"m.host": HOST, "time": hour}),
        find("range of several series", {"m.host": hosts, "time": hour}),
        find("range within $and", {"$and": [{"time": {"$gte": times.at(0.4)}}, {"time": {"$lt": point}}]}),
        find("series or range", {"$or": [{"m.host": HOST}, {"time": times.window(0.5, 0.55)}]}),
        find("range, series and measurement", {"m.host": hosts, "time": hour, "v": {"$gt": 90}}),
        find("$nor of meta", {"$nor": [{"m.rack": 1}, {"m.rack": 2}]}),
        find("$nor of both", {"$nor": [{"m.rack": 1}, {"n": {"$lt": 90}}]}),
        find("$jsonSchema", {"$jsonSchema": {"properties": {"n": {"minimum": 95}}, "required": ["w"]}}),
        find("$comment", {"m.host": HOST, "$comment": "why"}),
    ]


def _on_measurements(times: Times) -> list[Kind]:
    return [
        find("measurement above", {"v": {"$gt": 99}}),
        find("measurement above all", {"v": {"$gt": 1000}}),
        find("measurement above none", {"v": {"$gte": 0}}),
        find("measurement below", {"v": {"$lt": 1}}),
        find("measurement between", {"v": {"$gte": 10, "$lt": 11}}),
        find("measurement equal", {"n": 42}),
        find("measurement unequal", {"flag": {"$ne": True}}),
        find("measurement in", {"n": {"$in": [1, 2, 3]}}),
        find("measurement not in", {"n": {"$nin": list(range(90))}}),
        find("measurement not above", {"v": {"$not": {"$gt": 1}}}),
        find("rising measurement", {"counter": {"$gte": 1100}}),
        find("one rising measurement", {"counter": 500}),
        find("by _id", {"_id": 5000}),
        find("by several _id", {"_id": {"$in": list(range(0, 30_000, 1000))}}),
        find("text", {"s": "alpha"}),
        find("text in", {"s": {"$in": ["alpha", "gamma"]}}),
        find("text by pattern", {"s": {"$regex": "^al"}}),
        find("boolean", {"flag": True}),
        find("exists", {"w": {"$exists": True}}),
        find("does not exist", {"w": {"$exists": False}}),
        find("null", {"w": None}),
        find("$type", {"w": {"$type": "double"}}),
        find("$mod", {"n": {"$mod": [50, 0]}}),
        find("bits", {"n": {"$bitsAllSet": 96}}),
        find("in a sub-document", {"o.a": 9}),
        find("deep in a sub-document", {"o.b.c": {"$lt": 0.5}}),
        find("whole sub-document", {"o": {"a": 3, "b": {"c": 1.5}}}),
        find("element of an array", {"list": 77}),
        find("array $all", {"list": {"$all": [77, 78]}}),
        find("array $size", {"list": {"$size": 3}}),
        find("array $elemMatch", {"list": {"$elemMatch": {"$gt": 97, "$lt": 99}}}),
        find("position in an array", {"list.0": 5}),
        find("date among measurements", {"d": {"$gte": times.at(0.97)}}),
        find("$geoWithin", {"place": {"$geoWithin": {"$geometry": SQUARE}}}),
        find("or of measurements", {"$or": [{"v": {"$lt": 0.5}}, {"n": 99}]}),
        find("or of times and measurements", {"$or": [{"time": times.window(0.5, 0.51)}, {"v": {"$gt": 99.5}}]}),
    ]


def _orders(times: Times) -> list[Kind]:
    hour = times.window(0.5, 0.7)
    return [
        find("by time", sort={"time": 1}),
        find("by time downwards", sort={"time": -1}),
        find("first by time", sort={"time": 1}, limit=10, compares="number"),
        find("latest", sort={"time": -1}, limit=10, compares="number"),
        find("latest one", sort={"time": -1}, limit=1, compares="number"),
        find("latest of a series", {"m.host": HOST}, sort={"time": -1}, limit=1),
        find("latest ten of a series", {"m.host": HOST}, sort={"time": -1}, limit=10),
        find("first of a series", {"m.host": HOST}, sort={"time": 1}, limit=1),
        find("series by time", {"m.host": HOST}, sort={"time": 1}),
        find("series by time downwards", {"m.host": HOST}, sort={"time": -1}),
        find("range by time", {"time": hour}, sort={"time": 1}),
        find("range of a series by time", {"m.host": HOST, "time": hour}, sort={"time": -1}),
        find("range, latest first, limit", {"time": hour}, sort={"time": -1, "_id": 1}, limit=100),
        find("by meta", sort={"m.host": 1}, compares="number"),
        find("by meta, limit", sort={"m.host": 1}, limit=50, compares="number"),
        find("by meta and time", sort={"m.host": 1, "time": 1}),
        find("by meta and time downwards", sort={"m.host": 1, "time": -1}),
        find("by meta and time, limit", sort={"m.host": 1, "time": -1}, limit=100),
        find("by measurement", sort={"v": 1, "_id": 1}),
        find("by measurement, limit", sort={"v": -1, "_id": 1}, limit=20),
        find("by measurement, skip", sort={"v": -1, "_id": 1}, skip=100, limit=20),
        find("by sub-document", sort={"o.a": 1, "_id": 1}, limit=20),
        find("by array", sort={"list": -1, "_id": 1}, limit=20),
        find("limit", limit=10, compares="number"),
        find("limit of a series", {"m.host": HOST}, limit=10, compares="number"),
        find("limit of measurements", {"v": {"$gt": 50}}, limit=100, compares="number"),
        find("skip and limit", skip=1000, limit=10, compares="number"),
    ]


def _options(times: Times) -> list[Kind]:
    series = {"m.host": HOST}
    return [
        find("some fields", projection={"time": 1, "v": 1}),
        find("some fields of a series", series, projection={"time": 1, "v": 1, "_id": 0}),
        find("without fields", projection={"o": 0, "list": 0, "place": 0}),
        find("meta alone", projection={"m": 1, "_id": 0}),
        find("part of meta", projection={"m.host": 1, "_id": 0}),
        find("without meta", projection={"m": 0}),
        find("time alone", projection={"time": 1, "_id": 0}),
        find("parts of fields", projection={"o.a": 1, "list": {"$slice": ["$list", 1]}}),
        find("computed fields", series, projection={"sum": {"$add": ["$v", "$n"]}, "time": 1}),
        find("small batches", series, batchSize=50),
        find("small batches of everything", batchSize=1000),
        find("single batch", series, limit=1, singleBatch=True, compares="number"),
        find("collation", {"s": "ALPHA"}, collation=GERMAN),
        find("collation of meta", {"m.host": "HOST_007"}, collation=GERMAN),
        find("collation and order", series, sort={"s": 1, "_id": 1}, collation=GERMAN),
        find("collation and number", {"v": {"$gt": 99}}, collation=GERMAN),
        find("simple collation", {"s": "alpha"}, collation={"locale": "simple"}),
        find("let", {"$expr": {"$eq": ["$m.host", "$$host"]}}, let={"host": HOST}),
        find("hint $natural", {"time": times.window(0.5, 0.6)}, hint={"$natural": 1}),
        find("hint $natural downwards", {"time": times.window(0.5, 0.6)}, hint={"$natural": -1}),
        find("hint of an index", {**series, "time": times.window(0.5, 0.7)}, hint={"m.host": 1, "time": -1},
             needs_index=True),
        find("hint of the time", {"time": times.window(0.5, 0.7)}, hint={"time": 1}, needs_index=True),
        find("allowDiskUse", sort={"v": 1, "_id": 1}, allowDiskUse=True, limit=1000),
        find("readConcern", series, readConcern={"level": "local"}),
        find("maxTimeMS and comment", series, maxTimeMS=60_000, comment="why"),
    ]  # fmt: skip
