"""``$expr`` that compares a field with a constant: rows, errors and buckets looked at (Q19, H2, H3)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from tests.support.mongod import MongodProcess
from tests.support.proxy import ACCESS, ProxyProcess
from tests.support.twins import Commands, Twins, run
from tests.support.wanted import SERVER

HOUR_MS = 3_600_000
FAR_MS = (-(10**11), -500, 0, 500, HOUR_MS, 2**32 * 1000 - 500, 2**32 * 1000 + 5_000, 5 * 10**12)
SCALARS: list[Any] = [
    1, 2.5, -3, Int64(7), float("nan"), None, ..., "a", "Mid", "$x", True, False, ObjectId(bytes(12)), b"x",
    Decimal128("2.5"), Timestamp(5, 1), MinKey(), MaxKey(),
]  # fmt: skip
MIXED: list[Any] = [
    *SCALARS,
    [1, 9],
    [],
    [{"a": 2}],
    {"a": 1},
    {"a": {"b": 3}},
    {"0": 4},
    DatetimeMS(1_000_000_000_000),
]
SHAPING: list[list[dict[str, Any]]] = [
    [{"$sort": {"t": 1}}],
    [{"$addFields": {"z": "$v"}}, {"$sort": {"t": 1}}],
    [{"$set": {"v": "$o", "t": {"$add": ["$t", 5]}}}],
    [{"$project": {"t": 1, "v": 1, "m": 1}}],
    [{"$project": {"t": "$v", "v": "$t", "m": 1, "u": 1}}],
    [{"$project": {"v": 1}}],
    [{"$unset": ["t", "o.a"]}],
    [{"$match": {"v": {"$gte": 1}}}, {"$addFields": {"v": 1}}],
]
PATHS = ["$t", "$t", "$t", "$v", "$v", "$v.a", "$v.0", "$o", "$o.a", "$o.a.b", "$m", "$u", "$none", "$t.x", "$_id"]


def ago(hours: Any) -> dict[str, Any]:
    """So long before the command runs."""
    return {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": hours}}


class Generator:
    """Predicates with ``$expr``, the same for a seed; ``now_ms`` is when the newest measurement was made."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self._random = random.Random(seed)
        self._now_ms = now_ms

    def _time(self) -> DatetimeMS:
        return DatetimeMS(self._now_ms - self._random.randrange(6 * HOUR_MS))

    def _constant(self) -> Any:
        constants: list[Any] = [
            "$$NOW", ago(self._random.randrange(4)), ago(Int64(2)), ago(100), {"$subtract": ["$$NOW", 1.5e7]},
            {"$subtract": ["$$NOW", {"$multiply": [2, 3600, 1000]}]}, {"$add": [HOUR_MS, ago(3)]},
            {"$dateTrunc": {"date": ago(1), "unit": "hour"}}, self._time(), {"$literal": self._time()},
            "$$since", "$$lately", "$$number", "$$text", "$$nothing", "$$object", "$$object.a", "$$undefined",
            {"$dateAdd": {"startDate": "$$since", "unit": "hour", "amount": -1}},
            *(DatetimeMS(self._random.choice(FAR_MS)) for _ in range(3)),
            {"$toDate": self._random.choice([Int64(500), Int64(-5000), Int64(2**32 * 1000), "2020-01-01", "bad", 5])},
            {"$dateFromString": {"dateString": self._random.choice(["2020-01-01", "bad"])}},
            {"$dateFromParts": {"year": self._random.choice([1960, 1970, 2024, 2200])}},
            ago("bad"), {"$dateSubtract": {"startDate": 5, "unit": "hour", "amount": 1}},
            {"$dateSubtract": {"startDate": "$$NOW", "unit": "year", "amount": 100}},
            {"$add": [1, 1.5]}, {"$divide": [1, 0]}, {"$divide": [7, 2]}, {"$add": [1, None]}, {"$mod": [7, 4]},
            {"$concat": ["a", ""]}, {"$toInt": "5"}, {"$toLong": "$$NOW"}, {"$subtract": ["a", 1]}, "$$REMOVE",
            {"$literal": "$x"}, {"$literal": {"a": 1}}, {"$literal": [1, 9]}, [], [1, 9], {}, {"a": 1}, "$m",
            *(value for value in SCALARS if value is not ... and value != "$x"),
        ]  # fmt: skip
        return self._random.choice(constants)

    def _expression(self, depth: int = 0) -> dict[str, Any]:
        chance = self._random.random()
        if depth < 2 and chance < 0.25:
            operator = self._random.choice(["$and", "$and", "$or"])
            return {operator: [self._expression(depth + 1) for _ in range(self._random.randrange(1, 4))]}
        if depth < 2 and chance < 0.3:
            return {"$not": [self._expression(depth + 1)]}
        if chance > 0.8:
            return self._of_meta()
        operands = [self._random.choice(PATHS), self._constant()]
        if self._random.random() < 0.4:
            operands.reverse()
        return {self._random.choice(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne", "$cmp"]): operands}

    def _of_meta(self) -> dict[str, Any]:
        """An expression of the meta field, which may fail for some rows, or not be reached."""
        expressions: list[dict[str, Any]] = [
            {"$in": ["$m", [1, self._constant(), 3]]}, {"$in": [{"$ifNull": ["$m.x", 2]}, ["$m", None]]},
            {"$ne": [{"$type": "$m"}, self._constant()]}, {"$not": [{"$eq": ["$m", 2]}]},
            {"$gt": [{"$divide": [6, {"$subtract": ["$m", self._random.choice([2, 9])]}]}, 1]},
            {"$lt": ["$m", "$m.a"]}, {"$in": [1, "$m"]},
        ]  # fmt: skip
        return self._random.choice(expressions)

    def predicate(self) -> dict[str, Any]:
        """One of a ``$match``."""
        expression = {"$expr": self._expression()}
        other: dict[str, Any] = self._random.choice([{"m": 2}, {"u": {"$gt": 20}}, {"t": {"$lt": self._time()}}])
        return dict(
            self._random.choice(
                [expression, expression, {**expression, **other}, {"$and": [expression, other]},
                 {"$or": [expression, other]}, {"$nor": [expression]}]
            )
        )  # fmt: skip

    def command(self) -> tuple[dict[str, Any], Callable[[str], dict[str, Any]]]:
        """A predicate, and the read with it of a collection."""
        predicate = self.predicate()
        before: list[Any] = self._random.choice([[], [], [], [], *SHAPING])
        behind: list[Any] = self._random.choice(
            [[], [], [{"$match": self.predicate()}], [{"$group": {"_id": "$m", "n": {"$sum": "$_id"}}}],
             [{"$sort": {"t": 1}}], [{"$addFields": {"t": {"$add": ["$t", 1]}}}, {"$match": self.predicate()}]]
        )  # fmt: skip
        let = {
            "since": self._random.choice([self._time(), DatetimeMS(0), DatetimeMS(500)]), "lately": ago(1), "number": 4,
            "text": self._random.choice(["a", {"$literal": "$x"}, [1]]), "nothing": None, "object": {"a": self._time()},
        }  # fmt: skip
        pipeline = [*before, {"$match": predicate}, *behind]

        def read(name: str) -> dict[str, Any]:
            return {"aggregate": name, "pipeline": pipeline, "cursor": {"batchSize": 10_000}, "let": let}

        def found(name: str) -> dict[str, Any]:
            return {"find": name, "filter": predicate, "batchSize": 10_000, "let": let}

        return predicate, self._random.choice([read, read, read, found])


def rows_of(now_ms: int) -> dict[str, list[dict[str, Any]]]:
    """By collection: rows of every kind and late ones; times for which bucket ids wrap; times that nearly do; none."""
    chance = random.Random(5)
    pools: dict[int, list[Any]] = {1: [1, 2.5, -3, Int64(7), 10], 2: MIXED, 3: [1, 2, ..., None]}
    mixed = []
    for n in range(500):
        row = {
            "_id": n,
            "t": DatetimeMS(now_ms - chance.randrange(6 * HOUR_MS)),
            "m": chance.choice((1, 2, 3)),
            "u": n % 50,
        }
        value, inner = chance.choice(pools[row["m"]]), chance.choice(pools[row["m"]])
        row |= {} if value is ... else {"v": value}
        row |= {} if inner is ... else {"o": {"a": inner} if chance.random() < 0.7 else inner}
        mixed.append(row)
    full = [
        {"_id": 1000 + n, "t": DatetimeMS(now_ms - 6 * HOUR_MS + n * 1000), "m": 4, "v": n % 9, "o": {"a": n}}
        for n in range(2100)
    ]
    far = [{"_id": n, "t": DatetimeMS(time_ms), "m": n % 2, "v": n} for n, time_ms in enumerate((*FAR_MS, now_ms))]
    near_ms = (0, 500, HOUR_MS, 2 * HOUR_MS, now_ms, 2**32 * 1000 - 2 * HOUR_MS, 2**32 * 1000 - 2000)
    near = [{"_id": n, "t": DatetimeMS(time_ms), "m": n % 2, "v": n} for n, time_ms in enumerate(near_ms)]
    return {"mixed": [*full, *mixed], "far": far, "near": near, "empty": []}


class Collections:
    """The same rows in native collections, behind the proxy, and in plain ones."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self.now_ms = int(time.time() * 1000)
        for name, rows in rows_of(self.now_ms).items():
            self.twins.same({"create": name, "timeseries": {"timeField": "t", "metaField": "m"}})
            twins.stored.command({"create": f"{name}_plain"})
            for at in range(0, len(rows), 50):
                batch = rows[at : at + 50]
                self.twins.same({"insert": name, "documents": batch, "ordered": False})
                twins.stored.command({"insert": f"{name}_plain", "documents": batch})

    def check(self, predicate: Any, name: str, read: Callable[[str], dict[str, Any]]) -> bool:
        """Errors as native, rows as in a plain collection; true if there are some."""
        native, virtual = run(self.twins.native, read(name)), run(self.twins.virtual, read(name))
        # 5.0 evaluates expressions of the meta field for other rows than 6.0 and the proxy do.
        outcomes_differ = (virtual["ok"], virtual.get("code")) != (native["ok"], native.get("code"))
        assert not outcomes_differ or SERVER < (6,), (name, read(name), virtual, native)
        if not virtual["ok"]:
            return False
        judge = run(self.twins.stored, read(f"{name}_plain"))
        if not judge["ok"] or ACCESS == "native":
            # An ordinary collection may read a row that natively no bucket is unpacked for; with native access the
            # rows are the server's, right (H2-H4) or wrong.
            judge = native
        assert by_field(virtual) == by_field(judge), (name, read(name), predicate)
        return bool(virtual["cursor"]["firstBatch"])


def by_field(reply: dict[str, Any]) -> list[str]:
    """The rows without their order, and without that of their fields (Q2)."""
    return sorted(repr(sorted(row.items())) for row in reply["cursor"]["firstBatch"])


@pytest.fixture(scope="module")
def collections(mongod: MongodProcess, proxy: ProxyProcess, mongod_version: tuple[int, ...]) -> Iterator[Collections]:
    """Open buckets, late rows, and, from 6.0 on, compressed buckets on both sides."""
    name = f"expressions_{ObjectId()}"
    with mongod.client() as direct, proxy.client() as through:
        twins = Twins(direct, through, name)
        made = Collections(twins)
        for side in (twins.native, twins.stored) if mongod_version >= (6,) else ():
            stored = direct[side.name]["system.buckets.mixed"]
            proxy.wait_until(lambda stored=stored: stored.count_documents({"control.version": 2}) > 0)
        yield made
        twins.drop()


@pytest.mark.parametrize("seed", range(4))
def test_q19_rows_and_errors(collections: Collections, seed: int, scale: float) -> None:
    """Constants of all kinds on either side, nested; ``let``; times for which bounds wrap; empty collections."""
    generator = Generator(seed, collections.now_ms)
    found = 0
    for case in range(int(120 * max(1, scale))):
        predicate, read = generator.command()
        name = ("mixed", "mixed", "far", "near", "empty")[case % 5]
        found += collections.check(predicate, name, read)
    assert found > 20


LAST_HOUR: list[dict[str, Any]] = [
    {"$gte": ["$t", ago(1)]},
    {"$lt": [{"$subtract": ["$$NOW", HOUR_MS]}, "$t"]},
    {"$and": [{"$gte": ["$t", "$$lately"]}, {"$lte": ["$t", "$$NOW"]}]},
    {"$gte": ["$t", {"$dateTrunc": {"date": ago(1), "unit": "minute"}}]},
    {"$and": [{"$gte": ["$t", ago(1)]}, {"$eq": ["$m", 1]}]},
]


def examined(database: Commands, command: dict[str, Any]) -> int:
    """Buckets that were read for it."""
    told = database.command({"explain": command, "verbosity": "executionStats"})
    first = told["stages"][0]["$cursor"] if "stages" in told else told
    return int(first["executionStats"]["totalDocsExamined"])


@pytest.mark.parametrize("expression", LAST_HOUR)
def test_q19_the_last_hour_is_a_range_of_buckets(
    twins: Twins, expression: dict[str, Any], mongod_version: tuple[int, ...]
) -> None:
    """As many buckets are read as natively, also for each document of a join; before 6.0 all of them."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    now_ms = int(time.time() * 1000)
    rows = [{"_id": n, "t": DatetimeMS(now_ms - n * HOUR_MS), "m": n % 2, "v": n} for n in range(100)]
    twins.same({"insert": "x", "documents": rows[::-1]})
    match = {"$match": {"$expr": expression}}
    command = {"aggregate": "x", "pipeline": [match], "cursor": {}, "let": {"lately": ago(1)}}
    assert examined(twins.virtual, command) == (natively := examined(twins.native, command))
    assert natively < 10 if mongod_version >= (6,) else natively == len(rows)
    twins.same({"insert": "plain", "documents": [{"_id": 1, "hours": 1}, {"_id": 2, "hours": 3}]})
    since = {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": "$$hours"}}
    inner = [{"$match": {"$expr": {"$gte": ["$t", since]}}}, match, {"$sort": {"_id": 1}}]
    lookup = {"$lookup": {"from": "x", "let": {"hours": "$hours"}, "pipeline": inner, "as": "rows"}}
    joined = {
        "aggregate": "plain",
        "pipeline": [lookup, {"$sort": {"_id": 1}}],
        "cursor": {},
        "let": {"lately": ago(1)},
    }
    assert twins.same(joined)["cursor"]["firstBatch"]


def test_q19_measurements_are_bound_too(twins: Twins) -> None:
    """Nothing is unpacked where no summary reaches the constant."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    twins.same({"insert": "x", "documents": [{"t": DatetimeMS(n), "m": n, "v": n, "o": {"a": n}} for n in range(50)]})
    for expression in (
        {"$gt": ["$v", 48]},
        {"$eq": [48, "$v"]},
        {"$lte": [{"$add": [40, 8]}, "$v"]},
        {"$gte": ["$o.a", 48]},
    ):
        command = {"aggregate": "x", "pipeline": [{"$match": {"$expr": expression}}], "cursor": {}}
        told = twins.virtual.command({"explain": command, "verbosity": "executionStats"})
        assert told["stages"][0]["$cursor"]["executionStats"]["nReturned"] <= 2, expression
