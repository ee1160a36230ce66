"""Writes that wait for their write concern while another primary is elected; drivers send them again once (W104)."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64, ObjectId

from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient
from tests.support.replica_set import ReplicaSet

pytestmark = pytest.mark.timeout(300)

Client = pymongo.MongoClient[dict[str, Any]]

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@pytest.fixture
def database(three: ReplicaSet) -> Iterator[str]:
    """With a collection ``ts`` that all members have."""
    name = f"election_{ObjectId()}"
    with three.client(w=3) as client:
        client[name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    yield name
    with three.client() as client:
        client.drop_database(name)


@contextmanager
def alone(members: ReplicaSet) -> Iterator[Client]:
    """A client straight to the primary, which cannot replicate until it is no longer the primary; then they elect."""
    primary = members.await_primary()
    others = [member for member in members.members if member is not primary]
    uri = f"mongodb://{primary.address}/?directConnection=true"
    with Client(uri) as client:
        for other in others:
            other.pause()
        try:
            yield client
            primary.wait_until(lambda: not is_primary(client))
        finally:
            for other in others:
                other.resume()
    members.heal()


def wait_for_rows(members: ReplicaSet, primary: Client, database: str, count: int) -> None:
    """Wait until the primary has written, or is too slow for that and no primary any more."""
    members.members[0].wait_until(
        lambda: primary[database].ts.count_documents({"x": 1}) == count or not is_primary(primary)
    )


def is_primary(client: Client) -> bool:
    """What the server says of itself."""
    return bool(client.admin.command("hello")["isWritablePrimary"])


def retryable(body: dict[str, Any], database: str) -> dict[str, Any]:
    session = {"id": Binary(uuid.uuid4().bytes, 4)}
    return {**body, "lsid": session, "txnNumber": Int64(1), "writeConcern": {"w": "majority"}, "$db": database}


@pytest.mark.parametrize(
    "body",
    [
        {"delete": "ts", "deletes": [{"q": {"x": 1}, "limit": 1}]},
        {"findAndModify": "ts", "query": {"x": 1}, "remove": True},
    ],
    ids=lambda body: next(iter(body)),
)
def test_a_single_removal_is_confirmed_by_the_next_primary(
    three: ReplicaSet, proxies: list[ProxyProcess], database: str, body: dict[str, Any]
) -> None:
    with three.client(w=3) as client:
        client[database].ts.insert_many([{"t": START, "m": 1, "x": x} for x in (1, 1, 2)])
    with ThreadPoolExecutor(1) as threads, RawClient(proxies[0].port, 120.0) as client:
        with alone(three) as primary:
            reply = threads.submit(client.run, retryable(body, database))
            wait_for_rows(three, primary, database, 1)
        said = reply.result()
    assert (said["ok"], said.get("code"), said.get("writeConcernError")) == (1.0, None, None), said
    assert said["value"]["x"] == 1 if "findAndModify" in body else said["n"] == 1
    with three.client() as client:
        assert client[database].ts.count_documents({}) == 2


@pytest.mark.parametrize("rows", [1, 3])
def test_an_insert_that_is_sent_again_is_confirmed_by_the_next_primary(
    three: ReplicaSet, proxies: list[ProxyProcess], database: str, rows: int
) -> None:
    documents = [{"_id": ObjectId(), "t": START, "m": number, "x": 1} for number in range(rows)]
    body = retryable({"insert": "ts", "documents": documents}, database)
    with ThreadPoolExecutor(1) as threads, RawClient(proxies[0].port, 120.0) as client:
        with alone(three) as primary:
            reply = threads.submit(client.run, body)
            wait_for_rows(three, primary, database, rows)
        first = reply.result()
        assert first["ok"] == 1.0 or "RetryableWriteError" in first["errorLabels"]
        said = client.run(body)
    assert (said["ok"], said.get("n"), said.get("writeConcernError")) == (1.0, rows, None), said
    with three.client() as client:
        assert client[database].ts.count_documents({}) == rows


def test_an_insert_without_an_id_is_not_stored_twice(
    three: ReplicaSet, proxies: list[ProxyProcess], database: str
) -> None:
    """Nothing tells whether the next primary has this very measurement, so each retry gets an error."""
    body = retryable({"insert": "ts", "documents": [{"t": START, "m": 1, "x": 1}]}, database)
    with ThreadPoolExecutor(1) as threads, RawClient(proxies[0].port, 120.0) as client:
        with alone(three) as primary:
            reply = threads.submit(client.run, body)
            wait_for_rows(three, primary, database, 1)
        said = [reply.result(), client.run(body), client.run(body)]
    with three.client() as client:
        stored = client[database].ts.count_documents({})
    assert stored <= 1
    assert stored or not any(each["ok"] and each.get("n") for each in said)
