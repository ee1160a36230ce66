"""Which stored buckets are asked for (W50, W126-W128)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from bson import Int64, ObjectId, decode, encode
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.backend.bucket_store import MongoBucketStore, reopening_query
from proxy.backend.driver_calls import DriverCalls
from proxy.backend.service import ServicePool
from tests.support.mongod import MongodProcess

X = VirtualCollection(Namespace("d", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
META = b"\x10\x05\0\0\0"


def test_w50_buckets_that_may_take_a_measurement_are_bounded_by_their_id() -> None:
    query = reopening_query(X, [(META, 7_200_000), (b"", 7_300_000)], 1000)
    assert decode(encode(query))["$or"] == [{"meta": {"$in": [5]}}, {"meta": {"$exists": False}}]
    assert (query["_id"]["$gte"].generation_time.timestamp(), query["_id"]["$lte"].generation_time.timestamp()) == (
        3600,
        7300,
    )
    assert query["data.t.999"] == {"$exists": False}
    assert query["control.closed"] == {"$ne": True}


@pytest.mark.parametrize("time_ms", [-1, 3_599_999, (1 << 32) * 1000])
def test_q12_ids_bound_nothing_outside_of_1970_to_2106(time_ms: int) -> None:
    assert "_id" not in reopening_query(X, [(b"\x12" + bytes(Int64(1).to_bytes(8, "little")), time_ms)], 1000)


@asynccontextmanager
async def store_of(server: MongodProcess) -> AsyncIterator[tuple[MongoBucketStore, float]]:
    """A store that only reads, and a deadline."""
    async with aclosing(DriverCalls(lambda: AsyncMongoClient(server.uri))) as calls:
        none: Any = None
        unused = ServicePool(none, None, None, 5.0)
        parts, rows = cast(Any, NothingJoined), cast(Any, NothingWritten)
        yield (
            MongoBucketStore(unused, calls, none, sends_uuid=True, max_count=1000, parts=parts, rows=rows),
            asyncio.get_running_loop().time() + 20,
        )


FAR = b"\x09" + struct.pack("<q", -(2**62))
NO_UTF8 = b"\x02" + struct.pack("<i", 3) + b"\xff\xfe\0"


@pytest.mark.parametrize("value", [FAR, NO_UTF8], ids=["a date beyond the calendar", "a string that is no UTF-8"])
async def test_w127_the_looks_decode_no_values_of_clients(mongod: MongodProcess, db_name: str, value: bytes) -> None:
    """What is asked for after an unknown outcome, before reopening and by the search for parts, whatever rows hold."""
    native = mongod.shared_client[db_name]
    native.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    element = value[:1] + b"m\0" + value[1:] + value[:1] + b"v\0" + value[1:]
    rows = [b"\x09t\0" + struct.pack("<q", 1_714_521_600_000 + late) + element for late in (0, 86_400_000)]
    native.x.insert_many([RawBSONDocument(struct.pack("<i", len(row) + 5) + row + b"\0") for row in rows])
    identities = [each["_id"] for each in native["system.buckets.x"].find({}, {"_id": 1})]
    x = VirtualCollection(Namespace(db_name, "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
    async with store_of(mongod) as (store, deadline):
        wanted = [each.binary for each in identities]
        assert (await store.fetch(x, wanted, deadline)).keys() == set(wanted)
        assert await store.stored_until_ms(x, deadline) == 1_714_608_000_000
        part = next(native["system.buckets.x"].find_raw_batches({"_id": identities[0]}))
        copied = part.replace(identities[0].binary, identities[0].binary[:9] + b"abc", 1)
        native["system.buckets.x"].insert_one(RawBSONDocument(copied))
        assert await store.find_parts(x, 0, deadline) == [sorted([wanted[0], wanted[0][:9] + b"abc"])]
        family = await store.fetch_family(x, wanted[0], [wanted[0][:9]], deadline)
        assert sorted(each[9:21] for each in family) == sorted([wanted[0], wanted[0][:9] + b"abc"])


async def test_a_collection_that_has_another_time_field_by_now_is_an_error(mongod: MongodProcess, db_name: str) -> None:
    native = mongod.shared_client[db_name]
    native.create_collection("x", timeseries={"timeField": "t"})
    native.x.insert_one({"t": datetime(2024, 5, 1, tzinfo=UTC)})
    before = VirtualCollection(Namespace(db_name, "x"), TimeseriesOptions("s", None, Granularity.SECONDS, 3600, 60))
    async with store_of(mongod) as (store, deadline):
        with pytest.raises(CommandError, match="no start"):
            await store.stored_until_ms(before, deadline)


START, LATER = (seconds.to_bytes(4, "big") for seconds in (1_714_521_600, 1_714_525_200))


def stored_as(*ids: bytes, meta: object = "a", version: int = 1) -> list[dict[str, Any]]:
    """Buckets of one row."""
    times = [{"t": datetime.fromtimestamp(int.from_bytes(each[:4], "big"), UTC)} for each in ids]
    return [
        {
            "_id": ObjectId(each),
            "control": {"version": version, "min": time, "max": time},
            "meta": meta,
            "data": {"t": {"0": time["t"]}},
        }
        for each, time in zip(ids, times, strict=True)
    ]


async def test_parts_are_found_in_whatever_segment_they_lie(mongod: MongodProcess, db_name: str) -> None:
    """A bucket and its parts have the start, the place and the meta value in common."""
    native = mongod.shared_client[db_name]
    native.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    parts = [START + segment + b"plc" + counter for segment in (b"\0\1", b"\0\7") for counter in (bytes(3), b"\0\0\2")]
    others = [LATER + b"\0\1plc" + bytes(3), LATER + b"\0\2plc" + bytes(3)]
    alone = START + b"\0\1pld" + bytes(3)
    packed = START + b"\0\2pld" + bytes(3)
    another = START + b"\0\3plc" + bytes(3)
    documents = [*stored_as(*parts[::-1], alone), *stored_as(*others, meta=1), *stored_as(another, meta=2)]
    documents += stored_as(packed, version=2)
    native["system.buckets.x"].insert_many(documents, bypass_document_validation=True)
    x = VirtualCollection(Namespace(db_name, "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
    async with store_of(mongod) as (store, deadline):
        assert sorted(await store.find_parts(x, 0, deadline)) == [parts, others]
        since_ms = int.from_bytes(LATER, "big") * 1000
        assert await store.find_parts(x, since_ms, deadline) == [others]
        assert await store.find_parts(x, since_ms + 1000, deadline) == []


async def test_the_family_of_a_bucket_has_no_others(mongod: MongodProcess, db_name: str) -> None:
    """Between its parts of two segments lie those of very many others."""
    native = mongod.shared_client[db_name]
    native.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    prefixes = [START + segment + b"plc" for segment in (b"\0\1", b"\0\2", b"\0\4")]
    family = [prefix + counter for prefix in prefixes for counter in (bytes(3), b"\0\0\2", b"\xff\xff\xff")]
    others = [START + segment + place + bytes(3) for segment in (b"\0\1", b"\0\2") for place in (b"plb", b"pld")]
    native["system.buckets.x"].insert_many(stored_as(*family, *others), bypass_document_validation=True)
    x = VirtualCollection(Namespace(db_name, "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
    async with store_of(mongod) as (store, deadline):
        found = await store.fetch_family(x, family[0], prefixes, deadline)
        assert sorted(each[9:21] for each in found) == family
        second = await store.fetch_family(x, family[0], prefixes[1:2], deadline)
        assert [each[9:21] for each in second] == family[3:6]
        of_any_segment = await store.fetch_family(x, family[0], [], deadline)
        assert sorted(each[9:21] for each in of_any_segment) == family


class NothingWritten:
    @staticmethod
    def writes(collection: VirtualCollection) -> None:
        raise AssertionError


class NothingJoined:
    prepare_join = direct_writes = None
