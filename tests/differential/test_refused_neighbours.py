"""What the server refuses in part: rows of several clients in one bucket (W66), some buckets of an insert (W95)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started

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


@pytest.fixture(scope="module")
def in_place(tmp_path_factory: pytest.TempPathFactory, mongod: MongodProcess) -> Iterator[ProxyProcess]:
    directory = tmp_path_factory.mktemp("in_place")
    with started(ProxyProcess(directory, mongod.uri, flags=["--write-strategy", "in_place"])) as process:
        yield process


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("step", ["insert", "update"])
def test_w95_what_a_failed_step_leaves_is_told(
    mongod: MongodProcess, in_place: ProxyProcess, db_name: str, step: str, *, ordered: bool
) -> None:
    """One insert becomes two commands, of which one fails for good; a client that sent all again would double rows."""
    rows = [{"_id": n, "t": START, "m": 1 + n % 2} for n in range(1, 7)]
    step_fails = partial(failing, mongod, 1, failCommands=[step], namespace=f"{db_name}.system.buckets.c")
    with in_place.client(retryWrites=False) as client:
        database = client[db_name]
        database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        database.c.insert_one({"_id": 0, "t": START, "m": 1})
        with step_fails(errorCode=14031):
            reply = database.command({"insert": "c", "documents": rows, "ordered": ordered}, check=False)
        stored = {each["_id"] for each in mongod.shared_client[db_name].c.find()}
        lost = [index for index, row in enumerate(rows) if row["_id"] not in stored]
        assert (reply["ok"], reply.get("n"), len(stored), len(lost)) == (1.0, 3, 4, 3), reply
        told = [(each["index"], each["code"]) for each in reply["writeErrors"]]
        assert told == [(index, 14031) for index in (lost[:1] if ordered else lost)]
        if step == "insert":
            alone = {"insert": "c", "documents": [{"t": START, "m": 9}]}
            with step_fails(errorCode=96):
                refused = database.command(alone, check=False)
            assert (refused["ok"], refused["code"], refused["codeName"]) == (0.0, 96, "OperationFailed")
