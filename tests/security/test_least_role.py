"""What the least role of the proxy's account is enough for, besides the daily work that every other test here does."""

from __future__ import annotations

import datetime as dt

import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.proxy import ProxyProcess

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TIMESERIES = {"timeField": "t", "metaField": "m"}


def test_w72_collection_dropped_behind_the_proxys_back(
    guarded: GuardedMongod, guarded_proxy: ProxyProcess, mongod_version: tuple[int, ...]
) -> None:
    """Nothing is acknowledged that nobody can read, and the name is free again after a drop.

    Before 6.0 the least role leaves an empty plain collection of buckets: to drop it takes ``applyOps``.
    """
    database = f"behind_{ObjectId()}"
    native = guarded.shared_client[database]
    native.create_collection("ts", timeseries=TIMESERIES)
    guarded.create_user(database, "writer", ["readWrite"])
    try:
        with guarded_proxy.client(username="writer", password=PASSWORD, authSource=database) as client:
            series = client[database].ts
            series.insert_one({"t": START, "m": 1})
            native.drop_collection("ts")
            with pytest.raises(OperationFailure) as refused:
                series.insert_one({"t": START, "m": 2})
            assert refused.value.code == 26
            left = [name for name in native.list_collection_names() if name != "system.views"]
            assert left == ([] if mongod_version >= (6,) else ["system.buckets.ts"])
            assert all(native[name].count_documents({}) == 0 for name in left)
            native.drop_collection("ts")
            client[database].create_collection("ts", timeseries=TIMESERIES)
            series.insert_one({"t": START, "m": 3})
            assert [each["m"] for each in series.find()] == [3]
    finally:
        native.command("dropAllUsersFromDatabase")
        guarded.shared_client.drop_database(database)
