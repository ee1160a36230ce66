"""``find`` on native collections and through the proxy (Q1–Q5, I11)."""

from __future__ import annotations

from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from tests.support.read_twins import at, collection, compare, fill, refusals
from tests.support.twins import Twins, masked, run

BY_ID = {"_id": 1}

FINDS: list[dict[str, Any]] = [
    {},
    {"filter": {"v": {"$gt": 30}}},
    {"filter": {"m.a": 1}},
    {"filter": {"m": {"a": 1, "tags": ["x", "y1"]}}},
    {"filter": {"m.tags": "y0", "t": {"$gte": at(30), "$lt": at(100)}}},
    {"filter": {"t": at(14)}},
    {"filter": {"t": {"$in": [at(14), at(21), at(22)]}}},
    {"filter": {"$or": [{"v": 3}, {"m.a": 2, "v": {"$lt": 9}}]}},
    {"filter": {"$expr": {"$gt": ["$v", "$o.p"]}, "v": {"$lt": 20}}},
    {"filter": {"w": None}},
    {"filter": {"w": {"$exists": False}}},
    {"filter": {"o.list": 4}},
    {"filter": {"o.p": {"$gte": 4}, "s": "Mid"}},
    {"filter": {"s": {"$regex": "^m", "$options": "i"}}},
    {"filter": {"$comment": "why", "v": {"$mod": [5, 0]}}},
    {"filter": {"nowhere": 1}},
    {"sort": {"t": -1}, "limit": 7},
    {"sort": {"t": 1}, "skip": 3, "limit": 5},
    {"sort": {"m.a": 1, "t": -1}, "limit": 9},
    {"sort": {"v": -1}, "limit": 4.0, "skip": 1.0},
    {"projection": {"v": 1}},
    {"projection": {"_id": 0, "v": 0, "m.tags": 0}},
    {"projection": {"d": {"$add": ["$v", 1]}, "m": 1}},
    {"projection": {"o.list": {"$slice": ["$o.list", 1]}}},
    {"filter": {"$expr": {"$eq": ["$v", "$$n"]}}, "let": {"n": 7}},
    {"limit": 1, "singleBatch": True},
    {"sort": {"_id": -1}, "maxTimeMS": 60_000, "comment": {"a": 1}, "allowDiskUse": True},
    {"hint": {"$natural": 1}},
    {"hint": "_id_"},
    {"readConcern": {"level": "local"}},
    {"tailable": False, "showRecordId": False, "returnKey": False, "min": {}, "max": {}},
]

REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"tailable": True}, 168),
    ({"tailable": True, "awaitData": True}, 168),
    ({"awaitData": True}, 9),
    ({"noCursorTimeout": True}, 168),
    ({"showRecordId": True}, 168),
    ({"returnKey": True}, 168),
    ({"allowPartialResults": True}, 168),
    ({"min": {"v": 1}}, 168),
    ({"max": {"v": 1}}, 168),
    ({"singleBatch": True}, 168),
    ({"singleBatch": True, "limit": 2}, 168),
    ({"ntoreturn": 2}, 5746102),
    ({"projection": {"o.list": {"$slice": 1}}}, 28667),
    ({"projection": {"o.list.$": 1}, "filter": {"o.list": 3}}, 31324),
    ({"projection": {"o.list": {"$elemMatch": {"$gt": 3}}}}, 31275),
    ({"projection": {"o": {"$elemMatch": {"$gt": 3}}}}, 168),
    ({"filter": {"$where": "true"}}, 2),
    ({"filter": {"m": {"$near": [0, 0]}}}, 5626500),
    ({"filter": {"$text": {"$search": "a"}}}, 27),
    ({"filter": {"v": {"$bad": 1}}}, 2),
    ({"filter": {"m.a": {"$bad": 1}}}, 2),
    ({"filter": {"$and": []}}, 2),
    ({"hint": {"meta.a": 1}}, 2),
    ({"hint": {"_id": 1}}, 2),
    ({"hint": "none"}, 2),
    ({"skip": -1}, 51024),
    ({"limit": -1}, 51024),
    ({"filter": 5}, 14),
    ({"unknown": 1}, 40415),
    ({"sort": {"v": 3}}, 15975),
]


def test_rows_and_options(twins: Twins) -> None:
    """Q1–Q4: the same rows, in the order that the command asks for."""
    fill(twins)
    for options in FINDS:
        ordered = options if "sort" in options or "limit" in options else {**options, "sort": BY_ID}
        if "hint" in options:
            ordered = {**options, "sort": BY_ID}
        compare(twins, [{"find": "x", **ordered, "batchSize": 1000}])


def test_refusals(twins: Twins) -> None:
    """Q3–Q5: the same codes."""
    fill(twins, count=5)
    for options, code in REFUSED:
        assert refusals(twins, [{"find": "x", **options}]) == [code], options


@pytest.mark.parametrize(
    "projection",
    [
        {"$v": 1},
        {"": 1},
        {"v.": 1},
        {"v": {"$unheard": 1}},
        {"v": "$$unheard"},
        {"v": 1, "v.x": 1},
        {"v": 1, "w": 0},
        {"v": {}},
    ],
    ids=str,
)
def test_q4_refusals_of_projections_are_worded_the_same(twins: Twins, projection: dict[str, Any]) -> None:
    """Also when the plan of the command is known."""
    twins.same({"create": "p", "timeseries": {"timeField": "t"}})
    for _ in range(3):
        assert twins.same({"find": "p", "projection": projection})["ok"] == 0


def test_hints_in_the_users_schema(twins: Twins) -> None:
    """I11: by name and by key pattern."""
    fill(twins)
    keys: list[dict[str, Any]] = [{"m.a": 1, "t": -1}, {"v": -1}, {"o.p": 1}]
    indexes = [{"key": key, "name": f"i{n}"} for n, key in enumerate(keys)]
    twins.same({"createIndexes": "x", "indexes": indexes})
    hints = [*keys, "i0", "i1", {"$natural": -1}]
    compare(
        twins,
        [{"find": "x", "filter": {"m.a": 1, "v": {"$gt": 3}}, "sort": BY_ID, "hint": hint} for hint in hints],
    )


def test_cursor_has_the_users_namespace(twins: Twins) -> None:
    """C23: ``cursor.ns`` and ``getMore`` are about the collection, not its buckets."""
    fill(twins)
    for size in (0, 1, 7):
        cursor = twins.virtual.command({"find": "x", "batchSize": size, "sort": BY_ID})["cursor"]
        assert cursor["ns"] == f"{twins.virtual.name}.x"
        assert len(cursor["firstBatch"]) == size
        more = twins.virtual.command({"getMore": cursor["id"], "collection": "x"})["cursor"]
        assert more["ns"] == f"{twins.virtual.name}.x"
        assert [row["_id"] for row in cursor["firstBatch"] + more["nextBatch"]] == list(range(40))


@pytest.mark.parametrize("opened", ["x", "system.buckets.x"])
@pytest.mark.parametrize("command", ["find", "aggregate"])
def test_a_cursor_is_continued_by_the_name_that_opened_it(twins: Twins, command: str, opened: str) -> None:
    """C23: the collection and its buckets are two names, and the refused cursor stays open."""
    fill(twins)
    opens = {"find": opened, "batchSize": 1}
    if command == "aggregate":
        opens = {"aggregate": opened, "pipeline": [], "cursor": {"batchSize": 1}}
    others = {"x", "system.buckets.x", "system.buckets.y", "y"} - {opened}
    # Also as commands that were recognised.
    for _ in range(3):
        refusals = []
        for side in (twins.native, twins.virtual):
            cursor_id = side.command(opens)["cursor"]["id"]
            names = [*sorted(others), opened]
            replies = [run(side, {"getMore": cursor_id, "collection": name, "batchSize": 1}) for name in names]
            refusals.append(
                masked(
                    [
                        [reply.get("code"), reply.get("errmsg", name)]
                        for reply, name in zip(replies, names, strict=True)
                    ],
                    side.name,
                )
            )
            assert replies[-1]["cursor"]["id"] == cursor_id
            side.command({"killCursors": opened, "cursors": [cursor_id]})
        assert refusals[0] == refusals[1]


def test_collation_of_the_collection(twins: Twins) -> None:
    """Q10, Q14: strings compare as the collection says, and as the command says."""
    fill(twins, collation={"locale": "en", "strength": 2})
    finds: list[dict[str, Any]] = [
        {"filter": {"s": "MID"}},
        {"filter": {"s": {"$gte": "MID"}}},
        {"filter": {"m.tags": "Y1"}},
        {"filter": {"m.tags": "Y1"}, "collation": {"locale": "simple"}},
    ]
    compare(twins, [{"find": "x", "sort": BY_ID, **find} for find in finds])


def test_collation_of_the_command(twins: Twins) -> None:
    """H3: native 6.0.5 loses rows here; the right answer is that of a plain collection."""
    fill(twins)
    collection(twins, "plain").insert_many(list(collection(twins).find()))
    for operand in ("MID", {"$gte": "MID"}, {"$lt": "MID"}, {"$in": ["LOW", "none"]}):
        command: dict[str, Any] = {"filter": {"s": operand}, "sort": BY_ID, "batchSize": 1000}
        command["collation"] = {"locale": "en", "strength": 2}
        ours, judge = (run(twins.virtual, {"find": name, **command}) for name in ("x", "plain"))
        assert ours["cursor"]["firstBatch"] == judge["cursor"]["firstBatch"] != []


def test_reads_in_transactions_and_snapshots(set_twins: Twins) -> None:
    """X1, X3."""
    fill(set_twins)
    client = set_twins.virtual.client
    with client.start_session() as session, session.start_transaction():
        measured = collection(set_twins)
        assert len(list(measured.find({"m.a": 1}, session=session, batch_size=5))) == 13
        assert sorted(measured.distinct("m.a", session=session)) == [0, 1, 2]
        grouped = measured.aggregate([{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}], session=session)
        assert sorted(row["n"] for row in grouped) == [13, 13, 14]
    with client.start_session(snapshot=True) as session:
        before = len(list(collection(set_twins).find({}, session=session)))
        collection(set_twins).insert_one({"t": at(1), "m": 1})
        assert len(list(collection(set_twins).find({}, session=session))) == before


def test_times_far_from_now_are_read_at_once(twins: Twins) -> None:
    """Q12, H2: a measurement from before 1970 or after 2106 is found by bounds on time as soon as it is written."""
    fill(twins, count=5)
    for far_ms in (-3_600_000 * 24, 2**32 * 1000 + 60_000):
        _, before = twins.both({"find": "x", "filter": {"t": {"$gte": at(-1)}}})
        collection(twins).insert_one({"_id": far_ms, "t": DatetimeMS(far_ms), "m": 1})
        for query in ({"t": {"$lt": at(0)}}, {"t": {"$gt": at(1000)}}):
            found = [row["_id"] for row in collection(twins).find(query)]
            assert (far_ms in found) is ((far_ms < 0) is ("$lt" in query["t"]))
        assert len(before["cursor"]["firstBatch"]) >= 5
        ordered = [row["t"] for row in collection(twins).find().sort("t", 1)]
        assert ordered == sorted(ordered, key=int)
