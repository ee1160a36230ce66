"""Fields with an empty name: as the meta field, as the time field, and as one of the measurement (H6, H17, H18).

Servers mistake them or do not survive them, so a plain collection with the same rows tells what is right.
"""

from __future__ import annotations

from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from tests.support.twins import Commands, Twins, exact

NOON = 1_700_000_000_000
META = {"timeField": "t", "metaField": ""}
MEASURED = {"timeField": "t", "metaField": "m"}
TIME = {"timeField": "", "metaField": "m"}
MANY = list(range(1, 30_000))
"""So long that a query with it is never decoded."""

PREDICATES: list[dict[str, Any]] = [
    {"": 1},
    {"": {"$ne": 1}},
    {"": {"$exists": False}},
    {"": None},
    {"": {"$nin": [0]}},
    {"": {"$not": {"$gt": 0}}},
    {"": {"a": 1}},
    {".a": 1},
    {".a": {"$exists": False}},
    {"": 0, "v": {"$gt": 0}},
    {"$and": [{"": {"$lt": 2}}, {"v": {"$gt": 2}}]},
    {"$or": [{"": 0}, {"v": 3}]},
    {"$nor": [{"": 1}, {"v": 2}]},
    {"": 1, "$expr": {"$lt": ["$v", 3]}},
    {"$expr": {"$eq": [{"$getField": ""}, 1]}},
    {"$jsonSchema": {"required": [""]}},
    {"$nor": [{"$jsonSchema": {"properties": {"": {"enum": [1]}}}}]},
    {"inside.": 1},
    {"inside.": {"$ne": 1}},
    {"inside.b..x": {"$exists": False}},
]


def fill(twins: Twins, options: dict[str, str]) -> None:
    """``x``, behind the proxy a time-series collection and natively a plain one."""
    twins.virtual.command({"create": "x", "timeseries": options})
    twins.native.command({"create": "x"})
    rows = []
    for n in range(10):
        named = {"": {"a": n % 2} if n > 7 else n % 3, "m": 0, options["timeField"]: DatetimeMS(NOON + n)}
        rows.append({"_id": n, **named, "v": n, "inside": {"": n % 2, "b": {"": {"x": n}}}})
    if options is META:
        rows += [{"_id": n, "t": DatetimeMS(NOON + n), "v": n} for n in range(10, 12)]
    for database in (twins.virtual, twins.native):
        assert database.command({"insert": "x", "documents": rows})["n"] == len(rows)


def rows_of(database: Commands) -> list[dict[str, Any]]:
    """All rows, by ``_id``."""
    found: list[dict[str, Any]] = database.command({"find": "x", "sort": {"_id": 1}})["cursor"]["firstBatch"]
    return found


def same(twins: Twins, command: dict[str, Any]) -> Any:
    """What a command answers, and leaves, on both."""
    answers = [database.command(command, check=False) for database in (twins.virtual, twins.native)]
    kept = [{name: answer.get(name) for name in ("n", "nModified", "value", "ok", "code")} for answer in answers]
    assert exact(kept[0]) == exact(kept[1]), (command, answers)
    assert rows_of(twins.virtual) == rows_of(twins.native), command
    return kept[0]


@pytest.mark.parametrize("options", [META, MEASURED], ids=["meta", "measured"])
@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_h18_reads_find_what_they_find_in_a_plain_collection(
    twins: Twins, options: dict[str, str], predicate: dict[str, Any]
) -> None:
    fill(twins, options)
    found = twins.native.command({"find": "x", "filter": predicate, "sort": {"v": 1}})["cursor"]["firstBatch"]
    for command in (
        {"find": "x", "filter": predicate, "sort": {"v": 1}},
        {"aggregate": "x", "pipeline": [{"$match": predicate}, {"$sort": {"v": 1}}], "cursor": {}},
    ):
        assert twins.virtual.command(command)["cursor"]["firstBatch"] == found, command
    assert twins.virtual.command({"count": "x", "query": predicate})["n"] == len(found)
    values = twins.virtual.command({"distinct": "x", "key": "v", "query": predicate})["values"]
    assert sorted(values) == [row["v"] for row in found]


@pytest.mark.parametrize("options", [META, MEASURED], ids=["meta", "measured"])
@pytest.mark.parametrize("predicate", [{"": 1}, {"": {"$ne": 1}}, {"$or": [{"": 0}, {"v": 3}]}, {".a": 1}], ids=str)
def test_h18_reads_find_it_behind_other_stages(
    twins: Twins, options: dict[str, str], predicate: dict[str, Any]
) -> None:
    fill(twins, options)
    found = twins.native.command({"find": "x", "filter": predicate, "sort": {"v": 1}})["cursor"]["firstBatch"]
    pipelines: list[list[dict[str, Any]]] = [
        [{"$sort": {"v": 1}}, {"$match": predicate}],
        [{"$set": {"w": "$v"}}, {"$match": predicate}, {"$sort": {"w": 1}}, {"$unset": "w"}],
        [{"$match": {"v": {"$gte": 0}}}, {"$match": predicate}, {"$sort": {"v": 1}}],
        [{"$limit": 100}, {"$unset": "w"}, {"$sort": {"v": 1}}, {"$match": predicate}],
    ]
    for pipeline in pipelines:
        reply = twins.virtual.command({"aggregate": "x", "pipeline": pipeline, "cursor": {}})
        assert reply["cursor"]["firstBatch"] == found, pipeline


@pytest.mark.parametrize("options", [META, MEASURED], ids=["meta", "measured"])
@pytest.mark.parametrize("predicate", [each for each in PREDICATES if each.keys() != {"$expr"}], ids=str)
def test_h18_reads_find_it_in_other_pipelines(twins: Twins, options: dict[str, str], predicate: dict[str, Any]) -> None:
    fill(twins, options)
    first: list[dict[str, Any]] = [{"$sort": {"v": 1}}, {"$limit": 1}]
    for stages in ([{"$match": predicate}], [{"$set": {"w": "$v"}}, {"$match": predicate}]):
        union, ordered = {"$unionWith": {"coll": "x", "pipeline": stages}}, [*stages, {"$sort": {"v": 1}}]
        lookup = {"$lookup": {"from": "x", "pipeline": ordered, "as": "found"}}
        inside = {"$unionWith": {"coll": "x", "pipeline": [*first, lookup]}}
        variable = {"$lookup": {**lookup["$lookup"], "let": {"n": "$v"}}}
        pipelines: list[list[dict[str, Any]]] = [
            [*first, union, {"$sort": {"v": 1}}],
            [*first, lookup],
            [*first, variable],
            [*first, inside],
            [{"$facet": {"found": ordered}}],
        ]
        for pipeline in pipelines:
            command = {"aggregate": "x", "pipeline": pipeline, "cursor": {}}
            found, expected = twins.virtual.command(command), twins.native.command(command)
            assert exact(found["cursor"]["firstBatch"]) == exact(expected["cursor"]["firstBatch"]), pipeline


@pytest.mark.parametrize("options", [META, MEASURED], ids=["meta", "measured"])
@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_h18_only_what_matches_is_removed(twins: Twins, options: dict[str, str], predicate: dict[str, Any]) -> None:
    fill(twins, options)
    same(twins, {"findAndModify": "x", "query": predicate, "sort": {"v": 1}, "remove": True})
    same(twins, {"findAndModify": "x", "query": {"v": 8, **predicate}, "remove": True})
    same(twins, {"delete": "x", "deletes": [{"q": {"v": 9, **predicate}, "limit": 1}]})
    same(twins, {"delete": "x", "deletes": [{"q": {**predicate, "v": {"$lt": 6}}, "limit": 0}]})
    same(twins, {"delete": "x", "deletes": [{"q": predicate, "limit": 0, "collation": {"locale": "en"}}]})


@pytest.mark.parametrize("options", [META, MEASURED], ids=["meta", "measured"])
def test_h18_long_queries_and_variables(twins: Twins, options: dict[str, str]) -> None:
    """Those that are never decoded, too."""
    fill(twins, options)
    greater = {"$expr": {"$gt": ["$v", "$$least"]}}
    variables = {"let": {"least": 2}}
    assert same(twins, {"findAndModify": "x", "query": {"": {"$in": MANY}}, "sort": {"v": -1}, "remove": True})["value"]
    assert same(twins, {"delete": "x", "deletes": [{"q": {"": {"$in": MANY}, **greater}, "limit": 0}], **variables})[
        "n"
    ]
    assert same(twins, {"delete": "x", "deletes": [{"q": {"": {"$nin": MANY}, "v": {"$lt": 2}}, "limit": 0}]})["n"]
    assert same(twins, {"delete": "x", "deletes": [{"q": {"": 0, **greater}, "limit": 0}], **variables})["n"]


def test_h18_an_order_by_it_is_refused_alike(twins: Twins) -> None:
    fill(twins, META)
    same(twins, {"findAndModify": "x", "sort": {"v": -1}, "query": {"": 1}, "remove": True, "fields": {"v": 1}})
    fields = {"findAndModify": "x", "query": {"": 1}, "remove": True, "fields": {"": 1}}
    assert same(twins, fields)["code"] == 40352


@pytest.mark.parametrize(
    "query",
    [{}, {"": 1}, {"": 7}, {".a": 1}, {"v": 3}, {"t": {"$gt": DatetimeMS(NOON + 4)}}, {"$or": [{"": 1}, {"": 0}]}],
)
def test_h17_deletes_do_not_end_the_server(twins: Twins, query: dict[str, Any]) -> None:
    fill(twins, META)
    same(twins, {"delete": "x", "deletes": [{"q": query, "limit": 0}]})


def test_h17_updates_do_not_end_the_server(twins: Twins) -> None:
    """Those that a server refuses natively end it as well."""
    fill(twins, META)

    def updated(query: dict[str, Any], change: Any, **options: Any) -> Any:
        statement = {"q": query, "u": change, "multi": True, **options}
        answer = twins.virtual.command({"update": "x", "updates": [statement]}, check=False)
        return answer["n"] if "writeErrors" not in answer else answer["writeErrors"][0]["code"]

    assert updated({"": 1}, {"$set": {"": 5}}) == 3
    assert updated({".a": 1}, {"$rename": {".a": ".b"}}) == 1
    assert updated({"": 7}, {"$set": {"": 5}}) == 0
    assert updated({}, {"$unset": {".b": 1}}) == 12
    assert updated({"v": 1}, {"$set": {"": 5}}) == 72
    assert updated({"": 5}, {"$set": {"v": 5}}) == 72
    assert updated({"": 5}, [{"$set": {"v": 5}}]) == 72
    assert updated({}, {"$set": {"": 9}}, multi=False) == 72
    changed = {row["_id"]: row.get("") for row in rows_of(twins.virtual)}
    assert changed == {0: 0, 1: 5, 2: 2, 3: 0, 4: 5, 5: 2, 6: 0, 7: 5, 8: {"a": 0}, 9: {}, 10: None, 11: None}


def test_h17_updates_of_buckets_whose_time_has_no_name(twins: Twins) -> None:
    """They are not checked as ordinary writes are (H6)."""
    fill(twins, TIME)
    update = {"update": "x", "updates": [{"q": {"m": 0}, "u": {"$set": {"m": {"k": 1}}}, "multi": True}]}
    assert twins.virtual.command(update)["n"] == 10
    buckets = twins.stored.command({"find": "system.buckets.x"})["cursor"]["firstBatch"]
    assert [bucket["meta"] for bucket in buckets] == [{"k": 1}] * len(buckets)


def test_h17_what_only_the_server_could_execute_is_refused(twins: Twins) -> None:
    fill(twins, META)
    statements: list[dict[str, Any]] = [
        {"update": "x", "updates": [{"q": {}, "u": {"$set": {"": 1}}, "multi": True, "unheard": 1}]},
        {"update": "x", "updates": [{"q": {"": {"$in": MANY}}, "u": {"$set": {"": 1}}, "multi": True}]},
        {"delete": "x", "deletes": [{"q": {}, "limit": 0, "unheard": 1}]},
    ]
    for command in statements:
        assert twins.virtual.command(command, check=False)["ok"] == 0
    assert len(rows_of(twins.virtual)) == 12
