"""``aggregate`` on native collections and through the proxy (Q1, Q5, C23, Q20-Q24)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from pymongo.errors import OperationFailure

from tests.support.proxy import ProxyProcess
from tests.support.read_twins import at, collection, compare, fill, refusals
from tests.support.twins import Twins, masked, run

BY_ID: dict[str, Any] = {"$sort": {"_id": 1}}

PIPELINES: list[list[dict[str, Any]]] = [
    [BY_ID],
    [{"$match": {"m.a": 1}}, {"$count": "n"}],
    [{"$count": "n"}],
    [{"$match": {"v": {"$gt": 100}}}, {"$count": "n"}],
    [{"$group": {"_id": "$m.a", "n": {"$sum": 1}, "high": {"$max": "$v"}, "low": {"$min": "$w"}}}, BY_ID],
    [{"$group": {"_id": {"a": "$m.a"}, "n": {"$count": {}}, "until": {"$max": "$t"}}}, BY_ID],
    [{"$group": {"_id": None, "n": {"$sum": 2}, "avg": {"$avg": "$v"}}}],
    [{"$match": {"m.a": {"$ne": 1}}}, {"$group": {"_id": "$m", "n": {"$sum": 1}}}, BY_ID],
    [{"$sort": {"m.a": 1, "t": -1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}, BY_ID],
    [{"$sort": {"t": 1}}, {"$group": {"_id": "$m.a", "last": {"$last": "$$ROOT"}}}, BY_ID],
    [{"$match": {"t": {"$lt": at(150)}}}, {"$sort": {"t": -1}}, {"$limit": 3}],
    [
        {"$match": {"t": {"$gte": at(10), "$lt": at(200)}, "m.a": 1}},
        {"$group": {"_id": {"$dateTrunc": {"date": "$t", "unit": "hour"}}, "v": {"$avg": "$v"}}},
        BY_ID,
    ],
    [{"$unwind": "$o.list"}, {"$match": {"o.list": {"$lt": 5}}}, {"$sort": {"_id": 1, "o.list": 1}}],
    [{"$addFields": {"v": {"$mod": ["$v", 2]}}}, {"$match": {"v": 1}}, BY_ID],
    [{"$project": {"v": 1, "t": 1}}, {"$match": {"v": {"$lte": 3}}}, BY_ID],
    [{"$match": {"v": {"$gte": 1}}}, {"$project": {"o": {"p": 0}}}, BY_ID],
    [{"$match": {"v": {"$gte": 1}}}, {"$project": {"_id": {"a": 0}}}, {"$sort": {"v": 1, "_id": 1}}],
    [{"$match": {"v": {"$gte": 1}}}, {"$project": {"o": Decimal128("0")}}, BY_ID],
    [{"$match": {"v": {"$gte": 1}}}, {"$project": {"o": {"p": 0}}}, {"$group": {"_id": None, "s": {"$sum": "$v"}}}],
    [{"$group": {"_id": {"$let": {"vars": {"CURRENT": "$m"}, "in": "$m.a"}}, "n": {"$sum": 1}}}, BY_ID],
    [{"$group": {"_id": {"$map": {"input": ["$m"], "as": "CURRENT", "in": "$a"}}, "n": {"$sum": 1}}}, BY_ID],
    [{"$group": {"_id": {"$const": "$m"}, "n": {"$sum": 1}}}],
    [{"$unset": ["m.tags", "o"]}, {"$match": {"m.a": 2}}, BY_ID],
    [{"$replaceRoot": {"newRoot": {"_id": "$_id", "m": "$m.a"}}}, {"$match": {"m": 1}}, BY_ID],
    [{"$facet": {"a": [{"$match": {"m.a": 1}}, {"$count": "n"}], "b": [{"$group": {"_id": None}}]}}],
    [{"$sortByCount": "$m.a"}, {"$sort": {"count": 1, "_id": 1}}],
    [{"$bucket": {"groupBy": "$v", "boundaries": [0, 10, 100]}}],
    [
        {"$setWindowFields": {"partitionBy": "$m.a", "sortBy": {"t": 1}, "output": {"n": {"$documentNumber": {}}}}},
        BY_ID,
    ],
    [{"$sample": {"size": 1000}}, BY_ID],
    [{"$unionWith": {"coll": "x", "pipeline": [{"$match": {"m.a": 1}}]}}, {"$sort": {"_id": 1, "v": 1}}, {"$limit": 9}],
    [
        {"$match": {"v": {"$lt": 6}}},
        {"$lookup": {"from": "x", "localField": "v", "foreignField": "o.p", "as": "j"}},
        {"$project": {"n": {"$size": "$j"}}},
        BY_ID,
    ],
    [
        {"$match": {"v": 1}},
        {
            "$graphLookup": {
                "from": "x",
                "startWith": "$v",
                "connectFromField": "v",
                "connectToField": "o.list",
                "as": "g",
                "maxDepth": 2,
            }
        },
        {"$project": {"n": {"$size": "$g"}}},
    ],
    [{"$redact": {"$cond": [{"$eq": ["$v", 3]}, "$$KEEP", "$$PRUNE"]}}],
    [{"$limit": 3}, {"$count": "n"}],
    [{"$skip": 38}, {"$count": "n"}],
    [{"$densify": {"field": "v", "range": {"step": 0.5, "bounds": [0, 2]}}}, {"$sort": {"v": 1}}, {"$limit": 4}],
    [{"$collStats": {}}, {"$project": {"ns": 1}}],
]

REFUSED: list[tuple[list[Any], int]] = [
    ([{"$collStats": {"count": {}}}], 166),
    ([{"$planCacheStats": {}}], 40602),
    ([{"$out": "x"}], 166),
    ([{"$merge": {"into": "x"}}], 166),
    ([{"$geoNear": {"near": [0, 0], "distanceField": "d"}}], 5892921),
    ([{"$match": {"$where": "true"}}], 2),
    ([{"$match": {"$text": {"$search": "a"}}}], 17313),
    ([{"$match": {"m": {"$near": [0, 0]}}}], 5626500),
    ([{"$bad": 1}], 40324),
    ([{"$match": {"m.a": {"$bad": 1}}}], 2),
    ([{"$group": {"_id": "$m.a", "n": {"$bad": 1}}}], 15952),
    ([{"$count": ""}], 40157),
    ([{"$limit": 0}], 15958),
    ([{}], 40323),
    ([5], 14),
]


def test_pipelines(twins: Twins) -> None:
    """The same rows from every kind of stage."""
    fill(twins)
    compare(twins, [{"aggregate": "x", "pipeline": p, "cursor": {"batchSize": 1000}} for p in PIPELINES])


@pytest.mark.parametrize("number", [1, Int64(1), Int64(3), 2.0, Decimal128("2")])
def test_sums_have_the_type_of_a_server(twins: Twins, number: object) -> None:
    """Q22. A comparison of decoded replies takes an int and a long for equal."""
    fill(twins)
    group = {"$group": {"_id": "$m.a", "n": {"$sum": number}}}
    reply = twins.same({"aggregate": "x", "pipeline": [group, BY_ID], "cursor": {}})
    native = twins.native.command({"aggregate": "x", "pipeline": [group, BY_ID], "cursor": {}})
    types = [[type(each["n"]) for each in told["cursor"]["firstBatch"]] for told in (reply, native)]
    assert types[0] == types[1]
    assert types[0]


def test_refusals(twins: Twins) -> None:
    """C23, Q5."""
    fill(twins, count=3)
    for pipeline, code in REFUSED:
        assert refusals(twins, [{"aggregate": "x", "pipeline": pipeline, "cursor": {}}]) == [code], pipeline
    assert refusals(twins, [{"aggregate": "x", "pipeline": []}, {"aggregate": "x", "cursor": {}}]) == [9, 40414]


def test_results_go_into_other_collections(twins: Twins) -> None:
    """C23: ``$out`` and ``$merge`` read from a time-series collection."""
    fill(twins)
    for stage in ({"$out": "copy"}, {"$merge": {"into": "copy"}}):
        compare(twins, [{"aggregate": "x", "pipeline": [{"$match": {"m.a": 1}}, stage], "cursor": {}}])
        compare(twins, [{"find": "copy", "sort": {"_id": 1}}])


def test_views_on_measurements(twins: Twins) -> None:
    """C25."""
    fill(twins)
    twins.same({"create": "high", "viewOn": "x", "pipeline": [{"$match": {"v": {"$gte": 35}}}]})
    compare(
        twins,
        [
            {"find": "high", "sort": {"_id": 1}},
            {"aggregate": "high", "pipeline": [{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}, BY_ID], "cursor": {}},
            {"count": "high"},
        ],
    )


def test_joins_with_other_collections(twins: Twins) -> None:
    """C25: from and to, and nested."""
    fill(twins)
    fill(twins, "y", 10)
    twins.same({"insert": "plain", "documents": [{"_id": n, "a": n % 3} for n in range(6)]})
    inner = [{"$match": {"$expr": {"$eq": ["$m.a", "$$a"]}}}, {"$count": "n"}]
    nested = {"$lookup": {"from": "y", "let": {"a": "$m.a"}, "pipeline": inner, "as": "j"}}
    pipelines: list[list[dict[str, Any]]] = [
        [{"$lookup": {"from": "y", "let": {"a": "$a"}, "pipeline": inner, "as": "j"}}, BY_ID],
        [{"$lookup": {"from": "x", "pipeline": [{"$match": {"v": 3}}, nested], "as": "j"}}, BY_ID],
        [{"$unionWith": {"coll": "y", "pipeline": [{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}]}}, BY_ID],
    ]
    compare(twins, [{"aggregate": "plain", "pipeline": p, "cursor": {}} for p in pipelines])
    local = [
        {"$match": {"v": {"$lt": 5}}},
        {"$lookup": {"from": "plain", "localField": "v", "foreignField": "_id", "as": "j"}},
    ]
    compare(twins, [{"aggregate": "x", "pipeline": [*local, nested, BY_ID], "cursor": {}}])


@pytest.mark.parametrize(
    "group",
    [
        {"_id": {"a": "$m.a"}, "high": {"$max": "$v"}},
        {"_id": "$m.a", "tags": {"$max": "$m.tags"}},
        {"_id": "$m.a", "more": {"$max": {"$add": ["$v", 1]}}},
        {"_id": "$m.a", "high": {"$max": "$o"}, "low": {"$min": "$o"}},
        {"_id": "$m.a", "high": {"$max": "$o.list"}},
    ],
)
def test_groups_that_native_gets_wrong(twins: Twins, group: dict[str, Any]) -> None:
    """H4: the right answer is that of a plain collection."""
    fill(twins)
    collection(twins, "plain").insert_many(list(collection(twins).find()))
    pipeline = [{"$group": group}, BY_ID]
    ours, judge = (
        run(twins.virtual, {"aggregate": name, "pipeline": pipeline, "cursor": {}}) for name in ("x", "plain")
    )
    assert ours["cursor"]["firstBatch"] == judge["cursor"]["firstBatch"]


COLUMNS: dict[str, list[Any]] = {
    "numbers": [3, 1.5, Int64(7), -2],
    "nulls among numbers": [None, 5, None, 4],
    "nulls alone": [None, None],
    "null then nothing": [None, ...],
    "often missing": [..., 5, ..., 4],
    "strings": ["b", "B", 5],
    "dates and flags above documents": [{"a": 1}, True, {"b": 2}, at(3)],
    "documents": [{"a": 2, "b": 1}, {"a": 1, "b": 2}],
    "documents above numbers": [{"a": 1}, 5, {"b": 1}, 6],
    "arrays": [[1, 9], [2, 3]],
    "documents with nulls": [{"a": None}, {"a": 2}, {"b": 5}, ..., {"a": 7}],
    "documents of documents": [{"a": {"c": 1}}, {"a": {"b": 2}}],
    "documents of mixed values": [{"a": {"c": 1}}, {"a": 9}, {"a": "x"}],
    "documents and arrays of them": [{"a": 8}, [{"a": 9}, {"a": 1}], {"a": 3}],
    "documents above nothing": [{"a": 3}, None, {"a": 4}],
    "ids and bytes": [ObjectId(bytes(12)), b"", b"\0"],
}
"""What one series measures, one after the other; the others measure numbers."""


@pytest.mark.parametrize("kind", COLUMNS)
def test_h4_extremes_are_those_of_a_plain_collection(twins: Twins, kind: str) -> None:
    """H4: headers merge documents and arrays and hold nulls, so not every header can tell.

    Also for a predicate behind the group that would drop a wrong value, for batches of one, and where the group that no
    header tells comes last.
    """
    twins.virtual.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    odd = [{"t": at(n), "m": 150} | ({} if value is ... else {"v": value}) for n, value in enumerate(COLUMNS[kind])]
    rows = [{"t": at(n), "m": n, "v": n} for n in range(150)] + odd
    rows = [{"_id": n, **row} for n, row in enumerate(rows)]
    for name in ("x", "plain"):
        twins.virtual.command({"insert": name, "documents": rows})
    groups = [{"high": {"$max": path}, "low": {"$min": path}, "n": {"$sum": 1}} for path in ("$v", "$v.a")]
    for group in ({"high": {"$max": "$v"}}, {"low": {"$min": "$v.a"}}, *groups):
        for key in ("$m", None):
            for stages in ([BY_ID], [{"$match": {name: {"$gte": 3} for name in group if name != "n"}}, BY_ID]):
                command = {"pipeline": [{"$group": {"_id": key, **group}}, *stages]}
                for cursor in ({}, {"batchSize": 1}, {"batchSize": 0}):
                    ours, judge = (
                        every_row(twins, {"aggregate": name, **command, "cursor": cursor}) for name in ("x", "plain")
                    )
                    assert ours == judge, (kind, command, cursor)


@pytest.mark.parametrize("more", [{"readConcern": {"level": "local"}}, {"collation": {"locale": "en"}}])
def test_distant_times_of_relayed_inserts_are_found(twins: Twins, more: dict[str, Any]) -> None:
    """Q12: such inserts are not for the catalog, but their times are known to reads."""
    create = {name: value for name, value in more.items() if name == "collation"}
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}, **create})
    later = {"count": "x", "query": {"t": {"$gt": at(60 * 24 * 365)}}}
    earliest = [{"$sort": {"t": -1}}, {"$group": {"_id": "$m", "i": {"$first": "$_id"}}}, BY_ID]
    for number, minutes in enumerate((0, 60 * 24 * 365 * 105, -60 * 24 * 365 * 60)):
        document = {"_id": number, "t": at(minutes), "m": number}
        concern = {} if create else more
        twins.same({"insert": "x", "documents": [document], **concern})
        twins.same(later)
        twins.same({"aggregate": "x", "pipeline": earliest, "cursor": {}})


def every_row(twins: Twins, command: dict[str, Any]) -> list[Any]:
    """All batches of a cursor."""
    cursor = twins.virtual.command(command)["cursor"]
    found = list(cursor["firstBatch"])
    while cursor["id"]:
        cursor = twins.virtual.command({"getMore": cursor["id"], "collection": command["aggregate"]})["cursor"]
        found += cursor["nextBatch"]
    return found


def test_times_far_from_now(twins: Twins) -> None:
    """H2: no row is lost to a bound before 1970 or after 2106."""
    fill(twins, count=10)
    for operand in ({"$gte": at(-60 * 24 * 365 * 60)}, {"$lt": at(60 * 24 * 365 * 120)}, {"$gt": at(-30_000_000)}):
        assert run(twins.virtual, {"count": "x", "query": {"t": operand}})["n"] == 10, operand


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("key", [{"key": "m.loc"}, {}])
def test_h11_geo_near_with_the_name_of_the_index_on_id(
    proxy: ProxyProcess, db_name: str, key: dict[str, Any], *, wrapped: bool
) -> None:
    """Natively it ends the server's process."""
    near = {"near": {"type": "Point", "coordinates": [0.0, 0.0]}, "distanceField": "d", "spherical": True, **key}
    aggregate = {"aggregate": "x", "pipeline": [{"$geoNear": near}], "cursor": {}, "hint": "_id_"}
    with proxy.client() as client:
        database = client[db_name]
        database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        database.x.insert_one({"t": at(0), "m": {"loc": {"type": "Point", "coordinates": [1.0, 2.0]}}})
        database.x.create_index({"m.loc": "2dsphere"}, name="near")
        with pytest.raises(OperationFailure, match="hint provided does not correspond") as refused:
            database.command({"explain": aggregate, "verbosity": "queryPlanner"} if wrapped else aggregate)
        assert refused.value.code == 2
        assert database.x.count_documents({}) == 1


@pytest.mark.parametrize(
    "pipeline",
    [[{"$limit": 1}, {"$merge": "copied"}], [{"$out": "copied"}], [{"$count": "n"}], [{"$collStats": {"count": {}}}]],
    ids=["$merge", "$out", "$count", "$collStats"],
)
@pytest.mark.parametrize("of", ["its buckets", "another collection"])
def test_c23_a_view_has_no_uuid(twins: Twins, pipeline: list[dict[str, Any]], of: str) -> None:
    """The field is a client's guard: what names another collection must write nothing."""
    fill(twins)
    replies = []
    for side, stored in ((twins.native, twins.native), (twins.virtual, twins.stored)):
        buckets = stored.command({"listCollections": 1, "filter": {"name": "system.buckets.x"}})
        uuid = buckets["cursor"]["firstBatch"][0]["info"]["uuid"] if of == "its buckets" else Binary(bytes(16), 4)
        command = {"aggregate": "x", "pipeline": pipeline, "cursor": {}, "collectionUUID": uuid}
        replies.append([masked(run(side, each), side.name) for each in (command, {**command, "explain": True})])
        assert replies[-1][0]["ok"] == 0
        names = stored.command({"listCollections": 1, "filter": {"name": "copied"}})
        assert not names["cursor"]["firstBatch"]
    assert replies[1] == replies[0]
