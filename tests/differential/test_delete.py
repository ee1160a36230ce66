"""``delete`` and ``findAndModify`` with ``remove`` through the proxy (U5, U8).

What native 6.0.5 can do is compared with a native collection; deletes by any predicate, which it cannot, with the
same deletes on a plain collection that holds the same documents.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Regex
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from catalog.bson.raw import document, element
from catalog.kernel import BucketState, Limits, parse_measurement
from rewrite.removal import ROWS_AT_ONCE
from tests.support.twins import Twins, masked

NOON = 1_700_000_000_000
TM = {"timeField": "t", "metaField": "m"}
EVERYTHING: dict[str, Any] = {"pipeline": [{"$sort": {"n": 1}}], "cursor": {"batchSize": 100_000}}


def rows_of(database: Any, name: str) -> list[dict[str, Any]]:
    """All documents of a collection, by ``n``."""
    found: list[dict[str, Any]] = database.command({"aggregate": name, **EVERYTHING})["cursor"]["firstBatch"]
    return found


def check_buckets(database: Any, time_field: str = "t") -> None:
    """Rows are numbered in order in every column, summaries are those of the rows, no bucket is empty."""
    for bucket in database.command({"find": "system.buckets.x", "batchSize": 10_000})["cursor"]["firstBatch"]:
        if bucket["control"]["version"] != 1:
            continue
        times = list(bucket["data"][time_field])
        assert times == [str(number) for number in range(len(times))]
        assert times
        assert set(bucket["data"]) == set(bucket["control"]["min"]) == set(bucket["control"]["max"])
        for name, column in bucket["data"].items():
            keys = [int(key) for key in column]
            assert keys == sorted(keys)
            assert keys[-1] < len(times)
            values = [value for value in column.values() if type(value) in (int, float, DatetimeMS)]
            if len(values) == len(column):
                assert bucket["control"]["max"][name] == max(values)
                if name != time_field:
                    assert bucket["control"]["min"][name] == min(values)
        if not time_field:
            # The server itself does not round the start then.
            continue
        start = bucket["control"]["min"][time_field]
        assert int(start) // 1000 % 2**32 == int(bucket["_id"].generation_time.timestamp())


class Pair:
    """The collection behind the proxy, and a plain one with the same documents that tells what is right."""

    def __init__(
        self, twins: Twins, documents: list[dict[str, Any]], *, natively: bool = False, **options: Any
    ) -> None:
        self.virtual = twins.virtual
        self.plain = twins.native
        self.stored = twins.stored
        self.virtual.command({"create": "x", "timeseries": TM, **options})
        self.plain.command({"create": "x", **options})
        for documents_of in [documents[at : at + 1000] for at in range(0, len(documents), 1000)]:
            writer = self.stored if natively else self.virtual
            for database in (writer, self.plain):
                assert database.command({"insert": "x", "documents": documents_of})["n"] == len(documents_of)

    def delete(self, *statements: dict[str, Any], **options: Any) -> int:
        """The same deletes on both; how many documents went."""
        command = {"delete": "x", "deletes": list(statements), **options}
        virtual, plain = self.virtual.command(command, check=False), self.plain.command(command, check=False)
        assert virtual.get("n") == plain.get("n"), command
        assert virtual["ok"] == plain["ok"]
        self.check(statements)
        return int(virtual["n"])

    def check(self, after: Any = None) -> None:
        """The same documents are left, in buckets that are in order."""
        assert rows_of(self.virtual, "x") == rows_of(self.plain, "x"), after
        check_buckets(self.stored)


def documents(count: int, series: int = 3, step_ms: int = 7_000) -> list[dict[str, Any]]:
    """Plain measurements; some without ``w``."""
    made = []
    for n in range(count):
        row: dict[str, Any] = {
            "_id": n,
            "n": n,
            "t": DatetimeMS(NOON + n * step_ms),
            "m": {"a": n % series},
            "v": n % 50,
        }
        if n % 3:
            row["w"] = {"x": n, "l": [n, n % 7]}
        made.append(row)
    return made


# --- what native 6.0.5 can do ---------------------------------------------------------------------------------

NATIVE: list[list[dict[str, Any]]] = [
    [{"q": {"m.a": 1}, "limit": 0}],
    [{"q": {"m.a": {"$in": [0, 1]}}, "limit": 0.0}],
    [{"q": {"m": {"a": 1}}, "limit": 0}],
    [{"q": {"$or": [{"m.a": 0}, {"m.a": 2}]}, "limit": 0}],
    [{"q": {}, "limit": 0}],
    [{"q": {"m.a": "none"}, "limit": 0}],
    [{"q": {"m.a": {"$bad": 1}}, "limit": 0}, {"q": {"m.a": 1}, "limit": 0}],
    [{"q": {"m.a": 1}, "limit": 2}],
    [{"q": {"m.a": 1}}],
    [{"q": 5, "limit": 0}],
    [{"q": {"m.a": 1}, "limit": 0, "foo": 1}],
    [{"q": {"m.a": 1}, "limit": 0, "collation": {"locale": "xx"}}],
    [],
]


def test_u5_deletes_by_the_meta_field(twins: Twins) -> None:
    """Counts are of measurements; errors are the server's."""
    twins.same({"create": "x", "timeseries": TM})
    for statements in NATIVE:
        twins.same({"insert": "x", "documents": documents(12)})
        for ordered in (True, False):
            twins.same({"delete": "x", "deletes": statements, "ordered": ordered})
        native, virtual = twins.both({"aggregate": "x", **EVERYTHING})
        assert virtual["cursor"]["firstBatch"] == native["cursor"]["firstBatch"]
        twins.same({"delete": "x", "deletes": [{"q": {}, "limit": 0}], "writeConcern": {"w": 1}})
    twins.same({"delete": "x", "deletes": [{"q": {"m.a": 1}, "limit": 0}], "writeConcern": {"w": 2}})
    twins.same({"delete": "x", "deletes": [{"q": {"m.a": 1}, "limit": 0}], "foo": 1})


# --- deletes by any predicate ---------------------------------------------------------------------------------

PREDICATES: list[dict[str, Any]] = [
    {"v": {"$lt": 5}},
    {"n": 17},
    {"w": {"$exists": False}},
    {"w.x": {"$gte": 100}, "m.a": 1},
    {"w.l": 3},
    {"w.l": {"$elemMatch": {"$gt": 100, "$lt": 110}}},
    {"t": {"$lt": DatetimeMS(NOON + 500_000)}},
    {"t": {"$gte": DatetimeMS(NOON + 1_500_000), "$lte": DatetimeMS(NOON + 1_700_000)}, "m.a": {"$ne": 0}},
    {"$or": [{"v": 7}, {"m.a": 1, "v": {"$mod": [5, 0]}}]},
    {"$nor": [{"v": {"$gt": 3}}]},
    {"$expr": {"$eq": ["$v", {"$multiply": ["$m.a", 10]}]}},
    {"$expr": {"$eq": [{"$size": {"$objectToArray": "$$ROOT"}}, 6]}, "n": {"$gt": 250}},
    {"$jsonSchema": {"required": ["w"], "properties": {"v": {"maximum": 20}}}},
    {"m": {"$in": [{"a": 2}, {"b": 1}]}},
    {"t": {"$type": "date"}, "v": {"$not": {"$gt": 30}}},
    {"missing": None, "v": {"$gt": 45}},
    {"n": {"$gte": 0}},
    {"n": {"$gte": 0}},
]


@pytest.mark.parametrize("natively", [False, True], ids=["buckets_of_the_proxy", "buckets_of_the_server"])
def test_u8_deletes_by_any_predicate(twins: Twins, natively: bool) -> None:
    """One after the other until nothing is left; the server's own buckets are compressed where they are full."""
    pair = Pair(twins, documents(400, step_ms=20_000) + documents_of_one_series(), natively=natively)
    for query in PREDICATES:
        pair.delete({"q": query, "limit": 0})
    assert twins.stored.command({"count": "system.buckets.x"})["n"] == 0


def documents_of_one_series() -> list[dict[str, Any]]:
    """More than fit into one bucket."""
    return [
        {"_id": n, "n": n, "t": DatetimeMS(NOON + n), "m": {"a": 9}, "v": n % 50, "s": f"s{n % 4}"}
        for n in range(1000, 2300)
    ]


def test_u8_more_matches_than_are_searched_for_at_once(twins: Twins) -> None:
    """In buckets that other measurements share, and in one where the meta value alone does not select."""
    count = ROWS_AT_ONCE + ROWS_AT_ONCE // 2
    rows = [{"_id": n, "n": n, "t": DatetimeMS(NOON + n * 100), "m": {"a": n % 3}, "v": n % 40} for n in range(count)]
    pair = Pair(twins, rows)
    assert pair.delete({"q": {"v": {"$lt": 35}}, "limit": 0}) > ROWS_AT_ONCE
    assert pair.delete({"q": {"v": {"$gte": 0}, "m.a": 1}, "limit": 0}) > 0


def test_h10_names_that_occur_twice(twins: Twins) -> None:
    """The measurement behind the deleted one takes its place in the bucket."""

    def twice(*values: int) -> RawBSONDocument:
        return RawBSONDocument(document([element(b"a", b"\x10" + value.to_bytes(4, "little")) for value in values]))

    twins.virtual.command({"create": "x", "timeseries": TM})
    objects = [twice(), twice(1), twice(1, 2), twice(3, 4), twice(1, 3), twice(1, 2, 3)]
    for number, (gone, stays) in enumerate(permutations(objects, 2)):
        values = [*range(98), gone, stays]
        rows = [{"_id": n, "t": DatetimeMS(NOON + n), "m": number, "x": value} for n, value in enumerate(values)]
        twins.virtual.command({"insert": "x", "documents": rows})
        assert (
            twins.virtual.command({"delete": "x", "deletes": [{"q": {"_id": 98, "m": number}, "limit": 1}]})["n"] == 1
        )
        assert twins.stored.command({"count": "x", "query": {"m": number, "x": stays}})["n"] == 1
        assert twins.stored.command({"count": "x", "query": {"m": number}})["n"] == 99


@pytest.mark.parametrize("rows", [1, 9])
def test_h10_buckets_of_a_server_with_such_names_are_left_as_they_are(twins: Twins, rows: int) -> None:
    """Their summaries have these names, and an append would replace them."""
    twice = RawBSONDocument(document([element(b"p", b"\x02\3\0\0\0zz\0"), *[element(b"c", b"\x10\1\0\0\0")] * 2]))
    twins.virtual.command({"create": "x", "timeseries": TM})
    twins.stored.command({"insert": "x", "documents": [{"_id": 0, "t": DatetimeMS(NOON), "m": 1, "o": twice}]})
    more = [{"_id": n, "t": DatetimeMS(NOON + n), "m": 1, "o": {"c": 0}, "a.b": n} for n in range(1, 1 + rows)]
    assert twins.virtual.command({"insert": "x", "documents": more})["n"] == rows
    assert twins.stored.command({"count": "x", "query": {"m": 1}})["n"] == 1 + rows
    assert twins.stored.command({"count": "x", "query": {"o": twice}})["n"] == 1


def test_u8_single_deletes(twins: Twins) -> None:
    """``limit: 1`` takes one of the matches, an equal one if there are equal ones."""
    pair = Pair(twins, documents(60))
    for n in (3, 3, 59, 0, 60):
        pair.delete({"q": {"n": n}, "limit": 1})
    virtual = twins.virtual.command({"delete": "x", "deletes": [{"q": {"v": {"$gt": 10}}, "limit": 1}]})
    assert virtual["n"] == 1
    assert len(rows_of(twins.virtual, "x")) == 56
    for _ in range(60):
        twins.virtual.command({"delete": "x", "deletes": [{"q": {}, "limit": 1}]})
    assert rows_of(twins.virtual, "x") == []
    assert twins.stored.command({"count": "system.buckets.x"})["n"] == 0


def test_u8_statements_of_all_kinds_in_one_command(twins: Twins) -> None:
    """Ordered commands stop at the first error, unordered ones go on."""
    pair = Pair(twins, documents(120))
    bad = {"q": {"v": {"$bad": 1}}, "limit": 0}
    statements = ({"q": {"m.a": 0}, "limit": 0}, {"q": {"v": 7}, "limit": 0}, bad, {"q": {"n": 40}, "limit": 1})
    pair.delete(*statements, ordered=True)
    pair.delete(*statements, ordered=False)
    reply = twins.virtual.command({"delete": "x", "deletes": [bad, bad], "ordered": False})
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(0, 2), (1, 2)]
    refused = twins.virtual.command(
        {"delete": "x", "deletes": [{"q": {"v": 1}, "limit": 0}], "writeConcern": {"w": 2}}, check=False
    )
    assert (refused["ok"], refused["code"]) == (0, 2)


def test_u8_collation_let_and_hint(twins: Twins) -> None:
    """The collection's collation counts unless the statement brings its own."""
    rows = [{"_id": n, "n": n, "t": DatetimeMS(NOON + n), "m": n % 2, "s": "aAbBcC"[n % 6]} for n in range(60)]
    pair = Pair(twins, rows, collation={"locale": "en", "strength": 2})
    assert pair.delete({"q": {"s": "A"}, "limit": 0}) == 20
    assert pair.delete({"q": {"s": "b"}, "limit": 0, "collation": {"locale": "simple"}}) == 10
    assert pair.delete({"q": {"$expr": {"$eq": ["$n", "$$wanted"]}}, "limit": 0}, let={"wanted": 4}) == 1
    twins.virtual.command({"createIndexes": "x", "indexes": [{"key": {"m": 1, "t": -1}, "name": "mt"}]})
    command = {"delete": "x", "deletes": [{"q": {"n": {"$lt": 12}}, "limit": 0, "hint": {"m": 1, "t": -1}}]}
    expected = sum(row["n"] < 12 for row in rows_of(twins.virtual, "x"))
    assert twins.virtual.command(command)["n"] == expected > 0
    missing = {"delete": "x", "deletes": [{"q": {"n": 30}, "limit": 0, "hint": "none"}]}
    assert twins.virtual.command(missing)["writeErrors"][0]["code"] == 2


def test_u8_without_a_meta_field(twins: Twins) -> None:
    twins.virtual.command({"create": "x", "timeseries": {"timeField": "t"}})
    twins.virtual.command({"insert": "x", "documents": documents(20)})
    assert twins.virtual.command({"delete": "x", "deletes": [{"q": {"v": {"$gte": 10}}, "limit": 0}]})["n"] == 10
    assert [row["n"] for row in rows_of(twins.virtual, "x")] == list(range(10))
    check_buckets(twins.stored)


def test_w33_meta_that_is_missing_null_or_nested_stays_as_it_is(twins: Twins) -> None:
    metas: list[Any] = [
        None,
        {"b": {"y": 1, "x": [1, {"d": 1}]}, "a": 1},
        [1, 2],
        "s",
        5,
        {},
        Int64(5),
        Decimal128("5"),
    ]
    rows = [{"n": n, "t": DatetimeMS(NOON + n), "v": n, "m": metas[n % 8]} for n in range(32)]
    rows += [{"n": n, "t": DatetimeMS(NOON + n), "v": n} for n in range(40, 44)]
    twins.virtual.command({"create": "x", "timeseries": TM})
    twins.virtual.command({"insert": "x", "documents": rows})
    before = rows_of(twins.virtual, "x")
    doomed = {"v": {"$in": [1, 6, 7, 8, 9, 10, 19, 20, 21, 22, 42]}}
    assert twins.virtual.command({"delete": "x", "deletes": [{"q": doomed, "limit": 0}]})["n"] == 11
    assert rows_of(twins.virtual, "x") == [row for row in before if row["n"] not in doomed["v"]["$in"]]
    check_buckets(twins.stored)


@pytest.mark.parametrize("fields", [("$t", "$m"), ("", "x"), ("control", "data"), ("meta", "control"), ("_id", "meta")])
def test_c3_odd_names_of_time_and_meta_field(twins: Twins, fields: tuple[str, str]) -> None:
    time, meta = fields
    options = {"timeField": time, "metaField": meta}
    twins.virtual.command({"create": "x", "timeseries": options})
    rows = [{"n": n, time: DatetimeMS(NOON + n), meta: n % 2, "v": n} for n in range(12)]
    twins.virtual.command({"insert": "x", "documents": rows})
    assert twins.virtual.command({"delete": "x", "deletes": [{"q": {"v": {"$gte": 9}}, "limit": 0}]})["n"] == 3
    assert twins.virtual.command({"delete": "x", "deletes": [{"q": {"v": 0}, "limit": 1}]})["n"] == 1
    left = twins.virtual.command({"find": "x"})["cursor"]["firstBatch"]
    assert sorted(row["n"] for row in left) == list(range(1, 9))
    check_buckets(twins.stored, time)


def test_u8_times_outside_of_32_bits(twins: Twins) -> None:
    """Ids do not tell such times (Q12, H2)."""
    years = [-2_000_000_000_000, -60_000, 0, NOON, 4_200_000_000_000, 5_000_000_000_000]
    rows = [{"_id": n, "n": n, "t": DatetimeMS(years[n % 6] + n * 1000), "m": {"a": n % 2}, "v": n} for n in range(60)]
    pair = Pair(twins, rows)
    pair.delete({"q": {"t": {"$gte": DatetimeMS(4_500_000_000_000)}}, "limit": 0})
    pair.delete({"q": {"t": {"$lt": DatetimeMS(-100_000)}, "m.a": 1}, "limit": 0})
    pair.delete({"q": {"t": {"$gte": DatetimeMS(-1_000_000)}, "v": {"$lt": 20}}, "limit": 0})
    pair.delete({"q": {"t": {"$lte": DatetimeMS(4_600_000_000_000)}}, "limit": 0})
    assert rows_of(twins.virtual, "x") == []


ODD_VALUES: list[Any] = [
    None, True, 1, 2.5, float("nan"), Int64(2**40), Decimal128("1.10"), "a", "", [], [1, "b", None], {"y": 1},
    {"y": {"z": 2}}, {}, ObjectId("65920080ec272d4b84376907"), Regex("a", "i"), b"\x00\x01", DatetimeMS(-5),
]  # fmt: skip


def random_query(choose: random.Random, depth: int = 0) -> dict[str, Any]:
    """A predicate on ``n``, ``t``, ``m``, ``v`` and what lies below."""
    scalars = [value for value in ODD_VALUES if not isinstance(value, Regex)]
    paths = ("v", "w", "v.y", "w.y.z", "m", "m.a", "w.0")
    kind = choose.randrange(10 if depth < 2 else 7)
    path = choose.choice(paths)
    if kind == 0:
        return {path: {"$exists": choose.random() < 0.5}}
    if kind == 1:
        return {path: choose.choice(scalars)}
    if kind == 2:
        return {path: {choose.choice(["$gt", "$gte", "$lt", "$lte", "$ne"]): choose.choice(scalars)}}
    if kind == 3:
        return {path: {"$in": choose.sample(scalars, 3)}}
    if kind == 4:
        return {path: {"$type": choose.choice(["number", "string", "array", "object", "null"])}}
    if kind == 5:
        return {"t": {choose.choice(["$gt", "$gte", "$lt", "$lte"]): DatetimeMS(NOON + choose.randrange(8_000_000))}}
    if kind == 6:
        return {"n": {"$mod": [choose.randrange(2, 9), 0]}}
    return {choose.choice(["$and", "$or", "$nor"]): [random_query(choose, depth + 1) for _ in range(2)]}


def random_rows(choose: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Measurements of mixed types, many without some field."""
    for n in range(count):
        row: dict[str, Any] = {
            "n": n,
            "t": DatetimeMS(NOON + choose.randrange(8_000_000)),
            "m": {"a": choose.randrange(4)},
        }
        for name in ("v", "w", "a.b", "$x"):
            if choose.random() < 0.6:
                row[name] = choose.choice(ODD_VALUES)
        yield row


def test_u8_random_deletes(twins: Twins, scale: float) -> None:
    """Random predicates on random measurements, against a plain collection; every survivor stays as it was."""
    choose = random.Random(7)
    for _ in range(max(1, int(2 * scale))):
        rows = list(random_rows(choose, 300))
        twins.virtual.command({"create": "x", "timeseries": TM})
        twins.virtual.command({"insert": "x", "documents": rows})
        twins.native.command({"insert": "x", "documents": [{"_id": row["n"], **row} for row in rows]})
        before = {row["n"]: row for row in rows_of(twins.virtual, "x")}
        for _ in range(12):
            query = random_query(choose)
            command = {"delete": "x", "deletes": [{"q": query, "limit": 0}]}
            virtual, plain = twins.virtual.command(command, check=False), twins.native.command(command, check=False)
            assert virtual["n"] == plain["n"], query
            left = rows_of(twins.virtual, "x")
            assert [row["n"] for row in left] == [row["_id"] for row in rows_of(twins.native, "x")], query
            assert all(sorted(map(str, row.items())) == sorted(map(str, before[row["n"]].items())) for row in left)
        check_buckets(twins.stored)
        for database in (twins.virtual, twins.native):
            database.command({"drop": "x"})


# --- others at the same time ----------------------------------------------------------------------------------


def test_u8_measurements_that_others_append_meanwhile_are_never_lost(twins: Twins, scale: float) -> None:
    """Writers go on inserting into the buckets that are repacked; what does not match stays, all of it."""
    twins.virtual.command({"create": "x", "timeseries": TM})
    rounds = max(10, int(20 * scale))
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            for number in range(rounds):
                rows = [
                    {"n": writer * 1_000_000 + number * 10 + k, "t": DatetimeMS(NOON + number), "m": 1, "odd": k % 2}
                    for k in range(10)
                ]
                assert twins.virtual.command({"insert": "x", "documents": rows, "ordered": False})["n"] == 10
        except BaseException as failure:  # noqa: BLE001  (reported by the test's own thread)
            failures.append(failure)

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in writers:
        thread.start()
    removed = 0
    while any(thread.is_alive() for thread in writers):
        statement = {"q": {"odd": 1}, "limit": 0}
        removed += twins.virtual.command({"delete": "x", "deletes": [statement]})["n"]
    for thread in writers:
        thread.join()
    assert not failures
    removed += twins.virtual.command({"delete": "x", "deletes": [{"q": {"odd": 1}, "limit": 0}]})["n"]
    assert removed == 3 * rounds * 5
    left = [row["n"] for row in rows_of(twins.virtual, "x")]
    assert left == [w * 1_000_000 + k for w in range(3) for k in range(0, rounds * 10, 2)]
    check_buckets(twins.stored)


# --- findAndModify and retryable writes -----------------------------------------------------------------------


def test_u8_find_and_remove(twins: Twins) -> None:
    """The removed measurement is returned, in the order of ``sort``, through ``fields``."""
    pair = Pair(twins, documents(40))
    commands: list[dict[str, Any]] = [
        {"query": {"v": {"$gt": 5}}, "sort": {"n": 1}},
        {"query": {"v": {"$gt": 5}}, "sort": {"n": -1}, "fields": {"v": 1, "_id": 0}},
        {"query": {"n": 12}, "fields": {"w": 0}},
        {"query": {"n": 12}},
        {"query": {"w.l": 3}, "sort": {"t": -1}, "new": False, "upsert": False},
        {"sort": {"m.a": -1, "n": 1}},
        {"query": {"v": {"$bad": 1}}},
    ]
    for options in commands:
        command = {"findAndModify": "x", "remove": True, **options}
        virtual, plain = twins.virtual.command(command, check=False), twins.native.command(command, check=False)
        replies = masked(virtual, twins.virtual.name), masked(plain, twins.native.name)
        assert replies[0] == replies[1], command
        assert list(replies[0]) == list(replies[1])
        pair.check(command)
    update = {"findAndModify": "x", "query": {}, "update": {"$set": {"m": 1}}}
    refused = twins.virtual.command(update, check=False)
    assert refused["code"] == 166


@pytest.mark.parametrize("concern", [{}, {"w": "majority"}, {"w": 3, "wtimeout": 50}], ids=str)
def test_u8_a_removal_that_matches_nothing_waits_and_tells_the_time(set_twins: Twins, concern: dict[str, Any]) -> None:
    """What a causally consistent session reads next must be as new as the search, on any member."""
    Pair(set_twins, documents(5))
    command = {"findAndModify": "x", "remove": True, "query": {"n": 99}, "writeConcern": concern}
    virtual, plain = (twin.command(command, check=False) for twin in (set_twins.virtual, set_twins.native))
    assert {"$clusterTime", "operationTime"} <= plain.keys()
    assert list(virtual) == list(plain)
    wrong = [reply.get("writeConcernError", {}).get("code") for reply in (virtual, plain)]
    assert wrong == [100 if concern.get("w") == 3 else None] * 2


def with_session(database: Any, command: dict[str, Any], number: int, session: Any) -> dict[str, Any]:
    """A retryable write."""
    return dict(database.command({**command, "txnNumber": Int64(number)}, check=False, session=session))


def test_x2_single_deletes_are_retryable(set_twins: Twins) -> None:
    """The same command twice removes as much as once and says the same; multi deletes are refused (X2)."""
    Pair(set_twins, documents(60))
    virtual = set_twins.virtual
    session = virtual.client.start_session()
    one = {"q": {"v": {"$lt": 20}}, "limit": 1}
    for number, (command, count) in enumerate(
        [
            ({"delete": "x", "deletes": [one, one, one]}, 3),
            ({"delete": "x", "deletes": [{"q": {"n": 45}, "limit": 1}]}, 1),
            ({"delete": "x", "deletes": [{"q": {"n": 999}, "limit": 1}]}, 0),
        ]
    ):
        before = len(rows_of(virtual, "x"))
        replies = [with_session(virtual, command, number + 1, session) for _ in range(2)]
        assert [reply.get("n") for reply in replies] == [count, count], replies
        assert len(rows_of(virtual, "x")) == before - count
    refused = with_session(virtual, {"delete": "x", "deletes": [{"q": {"v": 1}, "limit": 0}]}, 9, session)
    assert refused["writeErrors"][0]["code"] == 72
    old = with_session(virtual, {"delete": "x", "deletes": [one]}, 2, session)
    assert old["code"] == 225


def test_x2_a_retried_find_and_remove_returns_what_it_removed(set_twins: Twins) -> None:
    """From the image that the server keeps, also when the bucket is gone with its last measurement."""
    Pair(set_twins, documents(6))
    virtual = set_twins.virtual
    session = virtual.client.start_session()
    for number in range(1, 8):
        command = {"findAndModify": "x", "remove": True, "sort": {"n": 1}, "fields": {"n": 1, "m": 1}}
        first, second = (with_session(virtual, command, number, session) for _ in range(2))
        assert first["value"] == second["value"]
        assert first["lastErrorObject"] == second["lastErrorObject"] == {"n": int(number <= 6)}
        assert len(rows_of(virtual, "x")) == max(0, 6 - number)


def test_w90_replies_on_a_replica_set(set_twins: Twins) -> None:
    """Fields in the server's order, also when nothing was removed."""
    Pair(set_twins, documents(6))
    for query in ({"v": 3}, {"v": 99}):
        reply = set_twins.virtual.command({"delete": "x", "deletes": [{"q": query, "limit": 0}]})
        assert list(reply) == ["n", "electionId", "opTime", "ok", "$clusterTime", "operationTime"]
    unsatisfied = {"delete": "x", "deletes": [{"q": {"v": 4}, "limit": 0}], "writeConcern": {"w": 5, "wtimeout": 1}}
    reply = set_twins.virtual.command(unsatisfied, check=False)
    assert (reply["n"], reply["writeConcernError"]["code"]) == (1, 100)


def test_a_late_copy_of_an_append_finds_no_room_in_a_bucket_that_lost_rows(twins: Twins) -> None:
    """W127, U8: what was sent twice is applied once, although the rows were numbered anew in between."""
    Pair(twins, [{"n": number, "m": 1, "t": DatetimeMS(NOON + number), "_id": number} for number in range(3)])
    (bucket,) = twins.stored.command({"find": "system.buckets.x"})["cursor"]["firstBatch"]
    state = BucketState.from_document(encode(bucket), b"t", b"m", 3_600_000, Limits())
    late = parse_measurement(encode({"_id": 3, "t": DatetimeMS(NOON + 3), "m": 1, "n": 3}), b"t", b"m")
    assert state.try_stage(late) == 0
    statement = RawBSONDocument(state.prepare([late]))
    append = {"update": "system.buckets.x", "updates": [statement]}
    assert twins.stored.command(append)["n"] == 1
    assert twins.virtual.command({"delete": "x", "deletes": [{"q": {"n": 0}, "limit": 1}]})["n"] == 1
    assert twins.stored.command(append)["n"] == 0
    assert [row["n"] for row in rows_of(twins.virtual, "x")] == [1, 2, 3]
    # Later measurements go to another bucket.
    twins.virtual.command({"insert": "x", "documents": [{"n": 4, "m": 1, "t": DatetimeMS(NOON + 4)}]})
    assert [row["n"] for row in rows_of(twins.virtual, "x")] == [1, 2, 3, 4]
    check_buckets(twins.stored)
