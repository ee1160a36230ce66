"""Buckets equal to those that a server makes of the same measurements: a table of cases (W3-W47)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import (
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    encode,
)
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from catalog.kernel.rollover import RolloverReason
from tests.support.kernel_driver import KernelCollection, bucket_forms, stored_rows
from tests.support.kernels import KERNELS
from tests.support.mongod import MongodProcess

START_MS = 1_714_521_600_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NAN, INFINITY = float("nan"), float("inf")

FIELD: dict[str, list[Any]] = {
    "int and double": [1, 1.0, Int64(1), 2],
    "double and int": [1.0, 1],
    "zeros": [0.0, -0.0],
    "NaN among numbers": [1, NAN, INFINITY, -INFINITY],
    "NaN first": [NAN, 1],
    "decimals": [Decimal128("1.00"), 1, Decimal128("0.1"), 0.1],
    "double and decimal": [0.1, Decimal128("0.1")],
    "NaN of both kinds": [Decimal128("NaN"), NAN, 1],
    "beyond doubles": [2**53, 2.0**53, Int64(2**53 + 1), Int64(2**63 - 1), 2.0**63, Decimal128("1E+400")],
    "strings": ["b", "A", "a", "B", "é", ""],
    "strings with NUL": ["a\0b", "a", "a\0"],
    "binaries": [Binary(b"abc", 0), Binary(b"z", 5), Binary(b"zz", 128), Binary(b"zz", 0)],
    "regexes": [Regex("a", "i"), Regex("a", ""), Regex("b", "")],
    "code": [Code("b"), Code("a")],
    "code with scope": [Code("a", {"x": 1}), Code("a", {"x": 2}), Code("a", {"x": 0, "y": 1}), Code("b", {})],
    "references": [DBRef("a", 1), DBRef("b", 1)],
    "timestamps": [Timestamp(1, 1), Timestamp(2**32 - 1, 0), Timestamp(0, 0)],
    "booleans": [True, False],
    "ids": [ObjectId("ff" * 12), ObjectId("00" * 12)],
    "dates": [DatetimeMS(0), DatetimeMS(-(10**12))],
    "ends of everything": [MinKey(), MinKey()],
    "last of everything": [MaxKey(), MaxKey()],
    "null and numbers": [1, None, 3],
    "null alone": [None, None],
    "objects": [{"a": 1, "b": {"c": 5}}, {"a": 3, "b": {"c": 2, "d": 7}}, {"b": {"c": 9}}],
    "empty objects": [{}, {"a": 1}, {}],
    "nested empty objects": [{"a": {}}, {"a": {"b": 1}}, {"a": {}}],
    "arrays": [[1, 5, 3], [4, 2], [0, 9, 9, 9]],
    "empty arrays": [[], [1], []],
    "objects in arrays": [[[], {}], [[1], {"a": 1}], [[0, {"": 2}], {"": 1}]],
    "object, array, scalar": [{}, [], 1, {"a": 1}],
    "empty names inside": [{"": 1, "a": 2}, {"a": 1, "": {"": 1}}],
    "types that change below": [{"a": 1}, {"a": "x"}, {"a": [1]}],
}
METAS: list[Any] = [
    1, 1.0, Int64(1), "a", "A", None, True, {}, [], [1, 2], [2, 1], NAN, Decimal128("1.0"), Regex("a"), MinKey(),
    Code("a", {"b": 1}), Timestamp(1, 1), {"b": 1, "a": [{"d": 1, "c": 2}]}, {"a": [{"c": 2, "d": 1}], "b": 1},
    {"$a": 1, "a.b": 2}, ["x"], Binary(b"x", 4), DatetimeMS(0),
]  # fmt: skip
ODD = {"a.b": 1, "$x": 3, "0": 4, "a$b": 5, "$": 6, "$[]": 7, "": 8, "control": 9, "meta": 10, "data": 11, "_id": 12}


def at(*offsets_ms: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"t": DatetimeMS(START_MS + offset_ms), **fields} for offset_ms in offsets_ms]


def singly(documents: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[document] for document in documents]


SERIES: dict[str, list[list[dict[str, Any]]]] = {
    "metas": [at(5_000, m=meta, f=1) for meta in METAS] * 2 + [at(5_000, f=1)] * 2,
    "metas in one command": [[document for meta in METAS for document in at(5_000, 6_000, m=meta)] + at(7_000)],
    "odd names": [at(5_000, **ODD), at(5_000, **{**ODD, "x.y": {"q.r": 1}}), at(5_000, **{"a.b": {"q": 1}})],
    "odd names and meta": [at(5_000, m=1, **ODD), at(4_000, 6_000, m=1, **ODD)],
    "names that come and go": singly([*at(5_000, a=1), *at(1, b="x"), *at(2, a=0, c=[1]), *at(3), *at(4, b="a", d={})]),
    "edges of the span": singly(at(30_000, HOUR_MS - 1, 0, HOUR_MS, 2 * HOUR_MS - 1, HOUR_MS - 1)),
    "backward": singly(at(30_000, -1, 0, -HOUR_MS, 30_000)),
    "backward in one command": [at(30_000, -1, 0, -HOUR_MS, 30_000, 5 * HOUR_MS, 5 * HOUR_MS - 1)],
    "after 2038 and 2106": singly([{"t": DatetimeMS(ms)} for ms in (2_200_000_000_000, 4_733_856_012_345, 0, 10**14)]),
    "size, row by row": singly(at(*range(600), v="x" * 500)),
    "size, in one command": [at(*range(600), v="x" * 500)],
    "size, in commands of 100": [at(*range(100), v="x" * 500)] * 6,
    "large ones": singly([*at(1, v="x" * 200_000), *at(2, v="x"), *at(3, v="x" * 127_950), *at(4, v="x" * 300)]),
    "count": [at(*range(2_500), v=1)],
    "count, in commands of 300": [at(*range(300), v=1, w=2.5)] * 4,
    "many columns": [at(5_000, **{f"f{i}": i for i in range(300)}), at(5_000, **{f"f{i}": -i for i in range(150)})],
    "schema and time at once": singly([*at(0, f=1), *at(2 * HOUR_MS, f="x"), *at(0, f=1)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def database(mongod: MongodProcess) -> Iterator[Database[Any]]:
    """Two collections for all cases: making collections is what takes time."""
    name = f"buckets_{ObjectId()}"
    database = mongod.shared_client[name]
    for collection in ("native", "kernel"):
        database.create_collection(collection, timeseries={"timeField": "t", "metaField": "m"})
    yield database
    mongod.shared_client.drop_database(name)


def hold(database: Database[Any], kernel: Any, commands: list[list[dict[str, Any]]]) -> KernelCollection:
    """Inserts into both and compares every bucket."""
    for name in ("native", "kernel"):
        database["system.buckets." + name].delete_many({})  # the server then opens new buckets (W72)
    collection = KernelCollection(kernel, database["system.buckets.kernel"])
    for documents in commands:
        encoded = [encode(document) for document in documents]
        reply = database.command({"insert": "native", "documents": list(map(RawBSONDocument, encoded))})
        assert reply["n"] == len(documents)
        collection.insert(encoded)
    assert bucket_forms(database, "native") == bucket_forms(database, "kernel")
    assert not stored_rows(database, "native") - stored_rows(database, "kernel")
    return collection


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("kind", FIELD)
def test_values_of_one_field(database: Database[Any], kernel: Any, kind: str) -> None:
    """W20 to W26, W47: as single inserts, in one command, and backwards."""
    documents = [*({"t": DatetimeMS(START_MS), "f": value} for value in FIELD[kind])]
    for commands in ([[document] for document in documents], [documents], [documents[::-1]]):
        hold(database, kernel, commands)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("kind", SERIES)
def test_series_of_measurements(database: Database[Any], kernel: Any, kind: str) -> None:
    """W3, W10, W31 to W35, W40 to W46."""
    hold(database, kernel, SERIES[kind])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_rows_per_bucket_and_reasons(database: Database[Any], kernel: Any) -> None:
    """W41, W46: 233 rows fit when sent at once, 245 one by one, and both figures are the server's."""
    for kind, rows, reason in (
        ("size, in one command", [233, 233, 134], RolloverReason.SIZE),
        ("size, row by row", [245, 245, 110], RolloverReason.SIZE),
        ("count", [1000, 1000, 500], RolloverReason.COUNT),
    ):
        collection = hold(database, kernel, SERIES[kind])
        counted = [sum(n for _, n in form[-1]) for form in bucket_forms(database, "native").elements()]
        assert sorted(counted, reverse=True) == rows
        assert collection.reasons[reason] == 2


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("time_field", ["$t", "_id", "0", "meta", "$", "control", "t$x", "long time name"])
def test_time_fields_of_any_name(mongod: MongodProcess, db_name: str, kernel: Any, time_field: str) -> None:
    """W108: and the other fields of the collection beside them."""
    database = mongod.shared_client[db_name]
    for name in ("native", "kernel"):
        database.create_collection(name, timeseries={"timeField": time_field, "metaField": "m"})
    collection = KernelCollection(kernel, database["system.buckets.kernel"], time_field=time_field)
    for offset_ms, content in ((5_000, {"v": 1}), (6_000, {"v": 0, "m": [1]}), (7_000, {"v": 3}), (8_000, {"m": [1]})):
        document = encode({**content, time_field: DatetimeMS(START_MS + offset_ms)})
        database.command({"insert": "native", "documents": [RawBSONDocument(document)]})
        collection.insert([document])
    native = bucket_forms(database, "native", time_field=time_field)
    assert native == bucket_forms(database, "kernel", time_field=time_field)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_collections_without_meta_field(mongod: MongodProcess, db_name: str, kernel: Any) -> None:
    """W30: all measurements are one series, and a field called like somebody's meta is a column."""
    database = mongod.shared_client[db_name]
    for name in ("native", "kernel"):
        database.create_collection(name, timeseries={"timeField": "t"})
    collection = KernelCollection(kernel, database["system.buckets.kernel"], meta_field=None)
    for documents in ([*at(1, m="x"), *at(2, m="y")], at(3, m=1), at(4, **{"": 1}), at(5, meta=1)):
        encoded = [encode(document) for document in documents]
        database.command({"insert": "native", "documents": list(map(RawBSONDocument, encoded))})
        collection.insert(encoded)
    assert bucket_forms(database, "native", meta_field=None) == bucket_forms(database, "kernel", meta_field=None)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_before_1970_starts_are_earlier_than_the_measurements(mongod: MongodProcess, db_name: str, kernel: Any) -> None:
    """W32: 6.0.5 rounds up here and opens a bucket for every measurement; the kernel rounds down, as 8.0 does.

    What the server reads out of both is the same.
    """
    database = mongod.shared_client[db_name]
    for name in ("native", "kernel"):
        database.create_collection(name, timeseries={"timeField": "t", "metaField": "m"})
    collection = KernelCollection(kernel, database["system.buckets.kernel"])
    documents = [{"_id": place, "t": DatetimeMS(ms)} for place, ms in enumerate((-30_000, -20_000, -10_000, -90_000))]
    for document in documents:
        database.native.insert_one(document)
        collection.insert([encode(document)])
    assert database["system.buckets.native"].count_documents({}) == 4
    starts = [bucket["control"]["min"]["t"] for bucket in database["system.buckets.kernel"].find()]
    assert sorted(start.minute for start in starts) == [58, 59]
    for condition in ({}, {"t": {"$lt": DatetimeMS(-15_000)}}, {"t": DatetimeMS(-30_000)}):
        found = [sorted(row["_id"] for row in database[name].find(condition)) for name in ("native", "kernel")]
        assert found[0] == found[1]
