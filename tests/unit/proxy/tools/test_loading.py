"""Rows are stored once, also those that were stored before, and those whose outcome was unknown."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
import pytest
from pymongo.errors import OperationFailure

from proxy.tools.grouping import Sendable, sendable
from proxy.tools.loading import Loader
from proxy.tools.rows import Row
from proxy.tools.targets import Fields, connected
from tests.support.mongod import MongodProcess

AT = dt.datetime(2024, 5, 18, tzinfo=dt.UTC)


def rows(count: int, **fields: Any) -> list[Sendable]:
    made = []
    for number in range(count):
        document = {"_id": number, "t": AT + dt.timedelta(seconds=number), "m": number % 7, **fields}
        ready = sendable(Row(bson.encode(document), number, number), lambda entry: bytes(12), number, b"t", b"m")
        assert isinstance(ready, Sendable)
        made.append(ready)
    return made


def test_rows_are_stored_and_found(mongod: MongodProcess, db_name: str) -> None:
    mongod.shared_client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    stored: list[int] = []
    with connected(mongod.uri) as client:
        loader = Loader(client[db_name].ts, Fields(b"t", b"m"), connections=3, batch_rows=20, on_stored=stored.append)
        whole = rows(100)
        assert loader.missing(whole) == (whole, 0)
        sent = loader.send(whole[:60])()
        assert (sent.stored, sent.refused, sum(stored)) == (60, [], 60)
        # A row that occurs twice is missing once.
        assert loader.missing([*whole, whole[3]]) == ([*whole[60:], whole[3]], 60)
        loader.close()
    assert mongod.shared_client[db_name].ts.count_documents({}) == 60


def test_refusals_are_told_by_row_and_errors_of_the_server_are_raised(mongod: MongodProcess, db_name: str) -> None:
    plain = mongod.shared_client[db_name].create_collection("plain", validator={"v": {"$ne": 5}})
    with connected(mongod.uri) as client:
        loader = Loader(client[db_name].plain, Fields(b"t", b"m"), connections=2, batch_rows=10)
        good = rows(20)
        sent = loader.send([*good, *rows(1, v=5)])()
        assert (sent.stored, [row.where for row in sent.refused]) == (20, [0])
        assert plain.count_documents({}) == 20
        loader.close()
        mongod.shared_client[db_name].create_collection("view", viewOn="plain")
        loader = Loader(client[db_name].view, Fields(b"t", b"m"), connections=1, batch_rows=10)
        with pytest.raises(OperationFailure):
            loader.send(good)()
        loader.close()


def test_an_unknown_outcome_is_looked_up(replica_set: MongodProcess, db_name: str) -> None:
    """The server stores the rows and closes the connection instead of a reply."""
    admin = replica_set.shared_client.admin
    replica_set.shared_client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    fail = {"failCommands": ["insert"], "closeConnection": True, "appName": "import"}
    with connected(replica_set.uri + "&appName=import&retryWrites=false") as client:
        loader = Loader(client[db_name].ts, Fields(b"t", b"m"), connections=1, batch_rows=50)
        half = loader.send(rows(30))()
        assert half.stored == 30
        admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": fail})
        try:
            # Thirty of the rows are there already when the batch is looked for.
            sent = loader.send(rows(50))()
        finally:
            admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        loader.close()
    assert sent.stored == 50
    assert replica_set.shared_client[db_name].ts.count_documents({}) == 50
