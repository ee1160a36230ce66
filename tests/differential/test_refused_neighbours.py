"""Inserts of clients whose measurements share a bucket with some that the server refuses (W66)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

START = datetime(2024, 1, 1, tzinfo=UTC)
WRITERS, ROWS = 4, 60
REFUSED = {"v": [1]}
"""An array, which an index of measurements does not allow."""


def _insert(collection: Any, number: int, more: dict[str, Any], outcomes: dict[str, list[Any]]) -> None:
    for row in range(ROWS):
        time = START + timedelta(seconds=row, milliseconds=number)
        document = {"_id": ObjectId(), "t": time, "m": 1, "w": number * ROWS + row, **more}
        try:
            collection.insert_one(document)
        except OperationFailure as error:
            outcomes["refused" if more else "failed"].append((error.code, str((error.details or {}).get("errmsg"))))
        else:
            outcomes["stored"].append(document["w"])


@pytest.mark.parametrize("bad", [1, 4])
def test_w66_only_the_writer_of_what_is_refused_fails(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, bad: int
) -> None:
    told = {}
    for uri in (mongod.uri, proxy.uri):
        outcomes: dict[str, list[Any]] = {"stored": [], "failed": [], "refused": []}
        with MongoClient[dict[str, Any]](uri) as client, ThreadPoolExecutor(WRITERS + bad) as threads:
            client[db_name].drop_collection("c")
            collection = client[db_name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
            collection.create_index([("v", 1)])
            for number in range(WRITERS):
                threads.submit(_insert, collection, number, {}, outcomes)
            for number in range(bad):
                threads.submit(_insert, collection, WRITERS + number, REFUSED, outcomes)
            threads.shutdown()
            found = sorted(each["w"] for each in collection.find({}, {"w": 1}))
        assert found == sorted(outcomes["stored"])
        told[uri] = {name: sorted(values) for name, values in outcomes.items()}
    native, proxied = told.values()
    assert proxied == native
    assert (len(native["stored"]), native["failed"], len(native["refused"])) == (WRITERS * ROWS, [], bad * ROWS)
