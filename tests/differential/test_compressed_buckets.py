"""Buckets that take no more rows are stored as small as native ones, and read the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import DatetimeMS, Int64, ObjectId
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from catalog.background.compressing import replacement
from catalog.bson.codec import encode
from catalog.kernel import bucket_id, compressed, parse_measurement
from catalog.parts import bucket_of
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started

START_MS = 1_714_521_600_000
OPTIONS = {"timeField": "t", "metaField": "m", "granularity": "hours"}


@pytest.fixture
def compresses(mongod_version: tuple[int, ...]) -> bool:
    """Whether the server knows compressed buckets."""
    return mongod_version >= (6,)


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"t": DatetimeMS(START_MS + 1000 * row), "m": row % 2, "_id": ObjectId(), "v": round((row * row % 977) / 10, 1)}
        for row in range(count)
    ]


def compressed_bytes(buckets: Collection[Any]) -> int:
    pipeline: list[dict[str, Any]] = [
        {"$match": {"control.version": 2}},
        {"$group": {"_id": None, "n": {"$sum": {"$bsonSize": "$$ROOT"}}}},
    ]
    return int(next(buckets.aggregate(pipeline))["n"])


@pytest.mark.parametrize(("batch", "strategy"), [(1000, "in_place"), (50, "in_place"), (50, "in_parts")])
def test_full_buckets_are_compressed(
    mongod: MongodProcess, tmp_path: Path, db_name: str, batch: int, strategy: str, compresses: bool
) -> None:
    """W6, W9, W80, W81, W130; before 6.0 they stay as they are."""
    sent = rows(4500)
    own = ProxyProcess(tmp_path, mongod.uri, flags=["--write-strategy", strategy])
    with started(own) as proxy, proxy.client() as through, mongod.client() as direct:
        for name, client in (("ours", through), ("native", direct)):
            database = client[db_name]
            database.create_collection(name, timeseries=OPTIONS)
            for at in range(0, len(sent), batch):
                database[name].insert_many(sent[at : at + batch])
        stored = direct[db_name]["system.buckets.ours"]
        full = 4 if compresses else 0
        proxy.wait_until(lambda: stored.count_documents({"control.version": 2}) == full)
        # Those that grow in parts are joined once nothing comes for them any more.
        proxy.wait_until(lambda: stored.count_documents({"control.version": 1}) == 6 - full)
        for client in (through, direct):
            read = list(client[db_name]["ours"].find().sort("t", 1))
            assert read == list(direct[db_name]["native"].find().sort("t", 1))
        if not compresses:
            return
        sizes = [compressed_bytes(direct[db_name][f"system.buckets.{name}"]) for name in ("ours", "native")]
        assert sizes[0] <= 1.1 * sizes[1]
        sections = [
            client[db_name].command("collStats", name)["timeseries"]
            for client, name in ((through, "ours"), (direct, "native"))
        ]
        for name in ("numBytesUncompressed", "numCompressedBuckets", "numUncompressedBuckets"):
            assert sections[0][name] == pytest.approx(sections[1][name], rel=0.01), name
        assert sections[0]["numBytesCompressed"] == sizes[0]


def test_compressed_buckets_are_changed_and_deleted_from(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, compresses: bool
) -> None:
    with proxy.client() as through, mongod.client() as direct:
        database = through[db_name]
        database.create_collection("x", timeseries=OPTIONS)
        sent = rows(2100)
        database["x"].insert_many(sent)
        stored = direct[db_name]["system.buckets.x"]
        proxy.wait_until(lambda: stored.count_documents({"control.version": 2}) == (2 if compresses else 0))
        assert database["x"].delete_many({"v": {"$lt": 10}}).deleted_count == sum(row["v"] < 10 for row in sent)
        database["x"].insert_one({"t": DatetimeMS(START_MS + 5500), "m": 0, "v": 50.0})
        left = sorted(row["_id"] for row in sent if row["v"] >= 10)
        assert sorted(row["_id"] for row in direct[db_name]["x"].find({"_id": {"$in": left}})) == left
        assert database["x"].count_documents({}) == len(left) + 1


@pytest.mark.parametrize(("meta", "changed"), [("a", "A"), (1, 1.0), (Int64(1), 1.0), ({"x": Int64(2)}, {"x": 2.0})])
def test_a_change_that_compares_equal_is_a_change(
    mongod: MongodProcess, db_name: str, meta: object, changed: object
) -> None:
    """W130: neither a collation nor equal numbers make another bucket the one that was compressed."""
    database = mongod.shared_client[db_name]
    database.create_collection("x", timeseries=OPTIONS, collation={"locale": "en", "strength": 2})
    odd = {"": 1, "a.b": {"$c.d": {"": 2}}, "$x": [{"$literal": 3}], "$set": "$v", "$$ROOT": None}
    sent = [{**row, "m": meta, **odd} for row in rows(50)]
    measurements = [parse_measurement(encode(row), b"t", b"m") for row in sent]
    document = bucket_of(bucket_id(START_MS, bytes(8)), b"t", b"m", measurements[0].meta, START_MS, measurements)
    smaller = compressed(document, b"t")
    assert smaller is not None
    buckets = database["system.buckets.x"]
    statement = RawBSONDocument(replacement(document, smaller))
    buckets.insert_one(RawBSONDocument(document))
    buckets.update_one({}, {"$set": {"meta": changed}})
    database.command("update", buckets.name, updates=[statement])
    (stored,) = buckets.find({})
    assert encode({"": stored["meta"]}) == encode({"": changed})
    assert [row["v"] for row in database["x"].find().sort("t", 1)] == [row["v"] for row in sent]
    buckets.replace_one({}, RawBSONDocument(document))
    buckets.update_one({}, {"$set": {"control.closed": True}})
    assert database.command("update", buckets.name, updates=[statement])["n"] == 0
    buckets.replace_one({}, RawBSONDocument(document))
    assert database.command("update", buckets.name, updates=[statement])["n"] == 1
    raw_buckets: Collection[Any] = buckets.with_options(CodecOptions(document_class=RawBSONDocument))
    assert [bytes(each.raw) for each in raw_buckets.find({})] == [smaller]
