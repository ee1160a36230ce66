"""Commands that are too large to be analysed answer and delete what small ones would.

Reads are judged by a native collection, deletes by a plain one, which native 6.0 refuses itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64
from bson.datetime_ms import DatetimeMS

from tests.support.twins import Commands, Twins
from tests.support.wanted import SCALE
from tests.support.worst_commands import nested

NOON = 1_700_000_000_000
TM = {"timeField": "t", "metaField": "m"}
DOCUMENTS = [
    {"t": DatetimeMS(NOON + 1000 * n), "m": {"a": n % 7}, "n": n, "x": n % 50, "s": f"s{n % 11}"} for n in range(400)
]


LARGE = 2_000 if SCALE <= 1 else 100_000
"""So many values are more than are analysed; servers take their time for more."""


def filters() -> dict[str, Any]:
    """Predicates that match some rows and not others."""
    arms = [{"x": {"$gt": 1000 + number}} for number in range(LARGE // 60)]
    return {
        "arms in 60 levels": nested({"x": 7}, 60, lambda inner: {"$or": [*arms, inner]}),
        "many arms": {"$or": [{"n": 3 * number} for number in range(3_000)]},
        "arms on meta and rows": {"$or": [{"m.a": 1, "x": number} for number in range(2_000)]},
        "$in": {"x": {"$in": list(range(0, 2 * LARGE, 2))}},
        "$in of meta": {"m": {"$in": [{"a": number} for number in range(3, LARGE)]}},
        "$nin": {"x": {"$nin": list(range(10, LARGE))}},
        "$and": {"$and": [{"n": {"$ne": number}} for number in range(0, 4_000, 3)]},
        "$expr": {"$expr": {"$in": ["$x", list(range(0, 5 * LARGE, 5))]}},
        "of whole rows": {"$expr": {"$gt": [{"$size": {"$objectToArray": "$$ROOT"}}, 4]}, "x": {"$in": [1] * LARGE}},
    }


FILTERS = filters()


def with_rows(databases: list[Commands], *, natively: bool) -> None:
    """The same documents in a collection of measurements behind the proxy and in one that is the judge."""
    virtual, judge = databases
    virtual.command({"create": "x", "timeseries": TM})
    judge.command({"create": "x", "timeseries": TM} if natively else {"create": "x"})
    for database in databases:
        database.command({"insert": "x", "documents": DOCUMENTS})


def numbers(database: Commands) -> list[int]:
    """Which rows there are."""
    found = database.command({"find": "x", "sort": {"n": 1}, "projection": {"_id": 0, "n": 1}, "batchSize": 1000})
    return [row["n"] for row in found["cursor"]["firstBatch"]]


@pytest.fixture
def native(twins: Twins) -> list[Commands]:
    """The proxy's and a native collection."""
    databases = [twins.virtual, twins.native]
    with_rows(databases, natively=True)
    return databases


@pytest.fixture
def plain(twins: Twins) -> list[Commands]:
    """The proxy's and a plain collection."""
    databases = [twins.virtual, twins.native]
    with_rows(databases, natively=False)
    return databases


@pytest.mark.parametrize("name", FILTERS if SCALE > 1 else ("arms in 60 levels", "$in", "$in of meta", "$expr"))
def test_reads_find_what_a_native_collection_finds(native: list[Commands], name: str) -> None:
    query = FILTERS[name]
    projected = {"_id": 0, **{f"f{number}": 1 for number in range(2_000)}, "n": 1, "s": 1}
    answers = []
    for database in native:
        ids = {"find": "x", "filter": query, "sort": {"n": 1}, "projection": projected, "batchSize": 1000}
        rows = database.command(ids)["cursor"]["firstBatch"]
        stages = [
            {"$match": query},
            {"$group": {"_id": "$m.a", "n": {"$sum": 1}, "s": {"$max": "$n"}}},
            {"$sort": {"_id": 1}},
        ]
        groups = database.command({"aggregate": "x", "pipeline": stages, "cursor": {}})["cursor"]["firstBatch"]
        count = database.command({"count": "x", "query": query})["n"]
        values = sorted(database.command({"distinct": "x", "key": "s", "query": query})["values"])
        answers.append((rows, groups, count, values))
    assert answers[0] == answers[1]
    assert 0 < answers[0][2] < len(DOCUMENTS)


@pytest.mark.parametrize("name", FILTERS if SCALE > 1 else ("many arms", "$in of meta", "of whole rows"))
def test_deletes_take_what_they_take_from_a_plain_collection(plain: list[Commands], name: str) -> None:
    virtual, judge = plain
    query = FILTERS[name]
    if "$$ROOT" not in str(query)[:200]:  # a plain collection's documents have one field more
        counted = [database.command({"count": "x", "query": query})["n"] for database in plain]
        assert counted[0] == counted[1]
    first = {"findAndModify": "x", "query": query, "sort": {"n": -1}, "remove": True, "fields": {"_id": 0, "n": 1}}
    assert virtual.command(first)["value"] == judge.command(first)["value"]
    assert numbers(virtual) == numbers(judge)
    one = {"$and": [{"n": {"$gte": 150}}, query]}
    assert [each.command({"delete": "x", "deletes": [{"q": one, "limit": 1}]})["n"] for each in plain] == [1, 1]
    assert len(numbers(virtual)) == len(numbers(judge))
    all_of_them = {"delete": "x", "deletes": [{"q": query, "limit": 0}]}
    virtual.command(all_of_them)
    judge.command(all_of_them)
    assert numbers(virtual) == numbers(judge)


def test_many_statements_do_what_they_do_one_by_one(plain: list[Commands]) -> None:
    """Of measurements and of meta in turn, unordered and with one that is refused among them."""
    statements: list[dict[str, Any]] = [{"q": {"n": number}, "limit": number % 2} for number in range(0, 1_600, 4)]
    statements += [{"q": {"m.a": {"$gt": 5}, "x": number}, "limit": 0} for number in range(50)]
    statements.insert(30, {"q": {"x": {"$unknown": 1}}, "limit": 0})
    replies = [each.command({"delete": "x", "deletes": statements, "ordered": False}, check=False) for each in plain]
    told = [(reply["n"], [(error["index"], error["code"]) for error in reply["writeErrors"]]) for reply in replies]
    assert told[0] == told[1]
    assert told[0][0] > 100
    virtual, judge = plain
    assert numbers(virtual) == numbers(judge)


def test_many_statements_that_the_server_can_do_itself_go_to_it(plain: list[Commands]) -> None:
    statements = [{"q": {"m.a": number}, "limit": 0} for number in range(4, LARGE)]
    for database in plain:
        assert database.command({"delete": "x", "deletes": statements})["n"] == sum(n % 7 >= 4 for n in range(400))
    virtual, judge = plain
    assert numbers(virtual) == numbers(judge)
    too_many = {"delete": "x", "deletes": [{"q": {}, "limit": 0}] * 100_001}
    assert virtual.command(too_many, check=False)["code"] == judge.command(too_many, check=False)["code"]
    assert numbers(virtual) == numbers(judge)


def test_many_updates_of_meta_do_what_they_do_one_by_one(twins: Twins) -> None:
    """Also those with objects in arrays, which 6.0 refuses by itself (U2)."""
    virtual = twins.virtual
    virtual.command({"create": "x", "timeseries": TM})
    virtual.command({"insert": "x", "documents": DOCUMENTS})
    changes = [
        {"q": {"m": {"$in": [{"a": number}]}}, "u": {"$set": {"m.b": number}}, "multi": True} for number in range(400)
    ]
    assert virtual.command({"update": "x", "updates": changes})["n"] == len(DOCUMENTS)
    found = virtual.command({"find": "x", "sort": {"n": 1}, "batchSize": 1000})["cursor"]["firstBatch"]
    assert [row["m"] for row in found] == [{"a": n % 7, "b": n % 7} for n in range(400)]


def test_cursors_of_large_reads_go_on(native: list[Commands]) -> None:
    """With a comment of a size that is not decoded either."""
    virtual, _ = native
    read = {"find": "x", "filter": FILTERS["many arms"], "batchSize": 5, "comment": ["x"] * 20_000}
    cursor = virtual.command(read)["cursor"]
    found = len(cursor["firstBatch"])
    while cursor["id"]:
        more = {"getMore": Int64(cursor["id"]), "collection": "x", "batchSize": 50, "comment": ["x"] * 20_000}
        cursor = virtual.command(more)["cursor"]
        assert cursor["ns"] == f"{virtual.name}.x"
        found += len(cursor["nextBatch"])
    assert found == 134
    small = virtual.command({"find": "x", "batchSize": 5})["cursor"]
    more = {"getMore": Int64(small["id"]), "collection": "x", "comment": ["x"] * 20_000, "batchSize": 1000}
    assert len(virtual.command(more)["cursor"]["nextBatch"]) == len(DOCUMENTS) - 5
