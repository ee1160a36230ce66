"""How full buckets get when measurements do not come in the order of their times (W50)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pymongo import MongoClient

from tests.support.mongod import MongodProcess
from tests.support.parts import wait_until_joined

DAY = dt.datetime(2024, 5, 17, tzinfo=dt.UTC)
HOURS = 4
MINUTES = 60 * HOURS


def two_days_interleaved() -> list[dict[str, Any]]:
    """One series whose measurements alternate between two days."""
    times = [dt.timedelta(days=day, minutes=minute) for minute in range(MINUTES) for day in (0, 1)]
    return [{"t": DAY + offset, "m": "a", "v": number} for number, offset in enumerate(times)]


def buckets_of(client: MongoClient[dict[str, Any]], server: MongodProcess, database: str) -> int:
    """Insert through ``client`` and count in the server."""
    client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    measurements = two_days_interleaved()
    for start in range(0, len(measurements), 20):
        client[database].c.insert_many(measurements[start : start + 20])
    stored = wait_until_joined(server.shared_client[database]["system.buckets.c"])
    assert server.shared_client[database].c.count_documents({}) == len(measurements)
    client.drop_database(database)
    return stored


def test_each_hour_has_one_bucket_where_a_native_collection_has_one_for_each_measurement(
    proxy_client: MongoClient[dict[str, Any]], mongod: MongodProcess, db_name: str
) -> None:
    """W44, W50: 6.0.5 never comes back to a bucket that it left."""
    assert buckets_of(proxy_client, mongod, db_name) == 2 * HOURS
    assert buckets_of(mongod.shared_client, mongod, db_name) == 2 * MINUTES
