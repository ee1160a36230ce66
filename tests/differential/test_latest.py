"""The latest measurement of each series by accumulators that sort (Q23)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from bson import Int64

from tests.support.read_twins import NOON_MS, at
from tests.support.twins import Twins, run
from tests.support.wanted import SCALE

GROUPS: dict[str, Any] = {
    "path": "$m.a",
    "whole": "$m",
    "object": {"x": "$m.a", "y": "$m.b"},
    "none": None,
    "column": "$v",
}
BEFORE: dict[str, dict[str, int]] = {
    "": {},
    "path": {"m.a": 1},
    "back": {"m.a": -1},
    "other": {"m.b": 1},
    "column": {"v": 1},
}


def fill(twins: Twins) -> None:
    """Late rows, columns that end early, and times that differ within each series."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    rows: list[dict[str, Any]] = []
    for n in range(120):
        late = 300 if n % 17 == 0 else 0
        row = {"_id": n, "t": at(11 * n - late + n / 1000), "m": {"a": n % 4, "b": n % 3}, "v": n % 7}
        rows.append(row | ({} if n > 90 else {"w": [n, {"k": n}]}))
    for begin in range(0, len(rows), 10):
        twins.same({"insert": "x", "documents": rows[begin : begin + 10], "ordered": False})
    twins.stored.command({"insert": "plain", "documents": rows})


def rows_of(reply: dict[str, Any]) -> list[str]:
    """Without their order, which the groups do not have, and without that of fields (Q2)."""
    return sorted(repr(by_field(row)) for row in reply["cursor"]["firstBatch"])


def by_field(value: Any) -> Any:
    """With the fields of every document in the order of their names."""
    match value:
        case dict():
            return {name: by_field(value[name]) for name in sorted(value)}
        case list():
            return [by_field(element) for element in value]
        case _:
            return value


def check(twins: Twins, pipeline: list[dict[str, Any]]) -> int:
    """Rows as in a plain collection, or the error that native gives; how many rows."""

    def read(name: str) -> dict[str, Any]:
        return {"aggregate": name, "pipeline": pipeline, "cursor": {}}

    native, virtual = run(twins.native, read("x")), run(twins.virtual, read("x"))
    assert (virtual["ok"], virtual.get("code")) == (native["ok"], native.get("code")), pipeline
    if not virtual["ok"]:
        return 0
    assert rows_of(virtual) == rows_of(run(twins.stored, read("plain"))), pipeline
    return len(virtual["cursor"]["firstBatch"])


@pytest.fixture
def has_them(mongod_version: tuple[int, ...]) -> bool:
    """Whether the server knows the accumulators: before 5.2 it refuses them, and the proxy as it does."""
    return mongod_version >= (5, 2)


OUTPUTS: tuple[Any, ...] = ("$v", ["$t", "$w"], "$$ROOT", "$w.k")


def test_q23_accumulators_that_sort(twins: Twins, has_them: bool) -> None:
    """``$top`` and its relatives, for every order, key and number."""
    fill(twins)
    found = 0
    for operator, group, before, direction in itertools.product(("$top", "$bottom"), GROUPS, BEFORE, (1, -1)):
        order = {**BEFORE[before], "t": direction}
        output = OUTPUTS[found % len(OUTPUTS)]
        argument = {"sortBy": order, "output": output}
        found += check(twins, [{"$group": {"_id": GROUPS[group], "v": {operator: argument}}}])
        for n in (1, 2, Int64(1), 1.0):
            several = {f"{operator}N": {**argument, "n": n}}
            found += check(twins, [{"$match": {"m.b": 1}}, {"$group": {"_id": GROUPS[group], "v": several}}])
    assert found > 1000 if has_them else found == 0


def test_q23_several_accumulators(twins: Twins, has_them: bool) -> None:
    fill(twins)
    latest = {"$top": {"sortBy": {"t": -1}, "output": "$v"}}
    last = {"$bottomN": {"sortBy": {"t": 1}, "output": "$w", "n": 1}}
    for other in (last, {"$top": {"sortBy": {"v": 1, "_id": 1}, "output": "$v"}}, {"$sum": 1}, {"$max": "$v"}):
        assert check(twins, [{"$group": {"_id": "$m.a", "v": latest, "w": other}}]) == (4 if has_them else 0)


@pytest.mark.parametrize("direction", [1, -1])
def test_q23_first_and_last_of_a_sort(twins: Twins, direction: int, has_them: bool) -> None:
    fill(twins)
    for operator, n in itertools.product(("$firstN", "$lastN"), (1, 2)):
        group = {"_id": "$m", "v": {operator: {"input": "$v", "n": n}}}
        assert check(twins, [{"$sort": {"t": direction}}, {"$group": group}]) == (12 if has_them else 0)


ODD_METAS: tuple[Any, ...] = (
    {"a": 1, "b": 2}, {"b": 2}, {"a": None, "b": 1}, {"a": [1, 2], "b": 1},
    {"a": {"c": 1}}, [{"a": 1}, {"a": 5}], 7, ...,
)  # fmt: skip


def fill_oddly(twins: Twins, first: int) -> None:
    """Series without the path, with nulls and arrays, some rows late; the first minute is ``first``."""
    twins.same({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    rows: list[dict[str, Any]] = []
    for n in range(160):
        late = 4000 if n % 13 == 0 else 0
        meta = ODD_METAS[n % len(ODD_METAS)]
        row = {"_id": n, "t": at(first + 97 * n - late + n / 1000)} | ({} if meta is ... else {"m": meta})
        rows.append(row | {"v": n % 7 if n % 3 else {"k": n}} | ({"w": [n]} if n % 5 else {}))
    for begin in range(0, len(rows), 8):
        command = {"insert": "x", "documents": rows[begin : begin + 8], "ordered": False}
        if begin % 24:
            twins.same(command)
        else:
            # These buckets are the server's.
            twins.native.command(command)
            twins.stored.command(command)
    twins.stored.command({"insert": "plain", "documents": rows})


PICKS: tuple[dict[str, Any], ...] = (
    {"v": {"$first": "$v"}},
    {"v": {"$last": "$v"}, "t": {"$last": "$t"}},
    {"v": {"$first": "$$ROOT"}},
    {"v": {"$first": "$v"}, "n": {"$sum": 1}},
    {"v": {"$first": "$t"}, "w": {"$last": "$w"}},
    {"v": {"$first": "$v"}, "w": {"$max": "$w"}, "m": {"$min": "$m.b"}},
    {"v": {"$first": {"$ifNull": ["$w", "$v.k"]}}, "w": {"$push": "$v"}},
)


UNTIL_1970 = -NOON_MS // 60_000


@pytest.mark.parametrize(
    "first",
    [0, UNTIL_1970 - 400_000, UNTIL_1970 - 97 * 160 + 1, UNTIL_1970 - 8_000],
    ids=["now", "before 1970", "until 1970", "around 1970"],
)
def test_q23_h4_groups_of_a_sort_by_time(twins: Twins, first: int) -> None:
    """Every order, key and pick, with the server's optimiser where it is right; a third of them unless scaled up."""
    fill_oddly(twins, first)
    orders = [{**before, "t": direction} for before in BEFORE.values() for direction in (1, -1)]
    orders += [{"t": direction, **before} for before in BEFORE.values() if before for direction in (1, -1)]
    orders += [{"v": 1, "_id": 1}, {"m.a": 1, "_id": -1}]
    found = 0
    every = 1 if SCALE > 1 else 3
    for order, group, picked in itertools.islice(itertools.product(orders, GROUPS.values(), PICKS), None, None, every):
        found += check(twins, [{"$sort": order}, {"$group": {"_id": group, **picked}}])
        for chosen in ({"m.b": {"$gte": 1}}, {"t": {"$lt": at(first + 9000)}}):
            found += check(twins, [{"$match": chosen}, {"$sort": order}, {"$group": {"_id": group, **picked}}])
    assert found > 5000 // every


@pytest.mark.parametrize(
    "argument",
    [
        {"sortBy": {"t": -1}}, {"output": "$v"}, {"sortBy": {"t": -1}, "output": "$v", "more": 1}, 5,
        {"sortBy": {"t": 5}, "output": "$v"}, {"sortBy": 1, "output": "$v"},
        {"sortBy": {"t": -1}, "output": "$$nothing"}, {"sortBy": {"t": -1}, "output": {"$divide": [1, 0]}},
        {"sortBy": {"t": -1}, "output": {"$divide": ["$v", "$none"]}},
    ],
)  # fmt: skip
def test_q23_refusals(twins: Twins, argument: Any) -> None:
    """Worded by the backend, for the same arguments."""
    fill(twins)
    for operator in ("$top", "$bottom"):
        check(twins, [{"$group": {"_id": "$m", "v": {operator: argument}}}])
    for n in (0, -1, "a", 1):
        several = {**argument, "n": n} if isinstance(argument, dict) else argument
        check(twins, [{"$group": {"_id": "$m", "v": {"$topN": several}}}])


def test_q23_one_bucket_of_each_series_is_unpacked(twins: Twins) -> None:
    fill(twins)
    group = {"$group": {"_id": "$m.a", "v": {"$top": {"sortBy": {"t": -1}, "output": "$v"}}}}
    command = {"aggregate": "x", "pipeline": [group], "cursor": {}}
    told = twins.virtual.command({"explain": command, "verbosity": "executionStats"})
    unpacked = next(at for at, stage in enumerate(told["stages"]) if "$_internalUnpackBucket" in stage)
    assert told["stages"][unpacked - 1]["nReturned"] == 4
