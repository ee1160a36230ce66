"""Inserts in sessions, next to those of the server itself: errors, times, transactions (W90, W102)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import Binary, Int64, ObjectId, Timestamp

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started
from tests.support.twins import masked
from tests.support.wire import WireClient

TIMESERIES = {"timeField": "t", "metaField": "m"}
START = datetime(2024, 5, 1, tzinfo=UTC)
Reply = Mapping[str, Any]


@pytest.fixture(scope="module")
def native(replica_set: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    flags = ["--timeseries-access", "native"]
    with started(ProxyProcess(tmp_path_factory.mktemp("native"), replica_set.uri, flags=flags)) as process:
        yield process


def row(**fields: Any) -> dict[str, Any]:
    return {"_id": ObjectId(), "t": START, "m": 1, **fields}


def new_session() -> dict[str, Any]:
    return {"lsid": {"id": Binary(uuid4().bytes, 4)}}


def insert(wire: WireClient, name: str, *documents: Any, **fields: Any) -> Reply:
    return wire.command({"insert": "x", "documents": list(documents), "$db": name, **fields})


def test_w90_errors_have_all_fields_of_the_server(
    replica_set: MongodProcess, native: ProxyProcess, db_name: str
) -> None:
    """In a collection that is an ordinary one now, which the proxy does not know yet."""
    told = []
    for number, port in enumerate((replica_set.port, native.port)):
        name = f"{db_name}_{number}"
        database = replica_set.shared_client[name]
        with WireClient(port) as wire:
            database.create_collection("x", timeseries=TIMESERIES)
            assert insert(wire, name, row())["n"] == 1
            database.x.drop()
            database.create_collection("x", validator={"a": {"$ne": 5}})
            database.x.create_index("u", unique=True, sparse=True)
            database.x.insert_one({"_id": 1, "u": 1})
            replies = [
                insert(wire, name, *documents, ordered=len(documents) == 1)
                for documents in (
                    [{"_id": 1}],
                    [{"_id": 2, "a": 5}],
                    [{"_id": 3, "u": 1}, {"_id": 4}, {"_id": 5, "a": 5}, {"_id": 4}],
                )
            ]
        told.append([masked({"n": reply["n"], "errors": reply["writeErrors"]}, name) for reply in replies])
        replica_set.shared_client.drop_database(name)
    assert told[0] == told[1]
    # Their order is another one with 5.0.
    in_order = list if replica_set.shared_client.server_info()["versionArray"][0] > 5 else sorted
    fields = [[in_order(error) for reply in replies for error in reply["errors"]] for replies in told]
    assert fields[0] == fields[1]
    assert "keyValue" in fields[0][0]
    assert "errInfo" in fields[0][1]


def times_of(reply: Reply) -> tuple[Any, Any]:
    return reply["operationTime"], reply["$clusterTime"]["clusterTime"]


@pytest.mark.parametrize("kind", ["native", "buckets"])
def test_w90_no_reply_is_older_than_what_it_tells(
    replica_set: MongodProcess, native: ProxyProcess, proxy_rs: ProxyProcess, db_name: str, kind: str
) -> None:
    """Clients read what they have written from any member that has reached the time of the reply."""
    replica_set.shared_client[db_name].create_collection("x", timeseries=TIMESERIES)
    for port in (replica_set.port, native.port if kind == "native" else proxy_rs.port):
        with WireClient(port) as wire:
            written, retry = row(), {**new_session(), "txnNumber": Int64(1)}
            first = insert(wire, db_name, written, **retry)
            again = insert(wire, db_name, written, **retry)
            refused = insert(wire, db_name, {"m": 1})
        assert [first["n"], again["n"], len(refused["writeErrors"])] == [1, 1, 1]
        assert times_of(first) <= times_of(again) <= times_of(refused)


def test_w90_so_it_is_if_the_retry_comes_through_another_proxy(
    replica_set: MongodProcess, native: ProxyProcess, tmp_path: Path, db_name: str
) -> None:
    replica_set.shared_client[db_name].create_collection("x", timeseries=TIMESERIES)
    flags = ["--timeseries-access", "native"]
    with (
        started(ProxyProcess(tmp_path, replica_set.uri, flags=flags)) as other,
        WireClient(native.port) as wire,
        WireClient(other.port) as another,
    ):
        for _ in range(2):  # the second time, the proxies have been linked
            written, retry = row(), {**new_session(), "txnNumber": Int64(1)}
            first = insert(wire, db_name, written, **retry)
            again = insert(another, db_name, written, **retry)
            assert [first["n"], again["n"]] == [1, 1]
            assert times_of(first) <= times_of(again)
        assert replica_set.shared_client[db_name].x.count_documents({}) == 2


def test_an_insert_after_no_time_is_refused(
    replica_set: MongodProcess, native: ProxyProcess, proxy_rs: ProxyProcess, db_name: str
) -> None:
    replica_set.shared_client[db_name].create_collection("x", timeseries=TIMESERIES)
    told = []
    for port in (replica_set.port, native.port, proxy_rs.port):
        with WireClient(port) as wire:
            reply = insert(wire, db_name, row(), readConcern={"afterClusterTime": Timestamp(0, 0)})
            told.append((reply["ok"], reply.get("errmsg")))
    assert told == [(0, "afterClusterTime cannot be a null timestamp")] * 3


@pytest.fixture(params=["mongod", "native", "buckets"])
def port(request: pytest.FixtureRequest, replica_set: MongodProcess) -> int:
    """The server itself, or a proxy."""
    if request.param == "mongod":
        return replica_set.port
    found: ProxyProcess = request.getfixturevalue("native" if request.param == "native" else "proxy_rs")
    return found.port


def begin(wire: WireClient, name: str, session: Reply, number: int) -> Reply:
    """A transaction that has changed a document of an ordinary collection; its fields."""
    fields = {**session, "txnNumber": Int64(number), "autocommit": False}
    update = {"update": "plain", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}], "$db": name}
    assert wire.command({**update, **fields, "startTransaction": True})["n"] == 1
    return fields


def is_free(wire: WireClient, name: str) -> bool:
    """Whether another client can change that document, because no transaction has."""
    update = {"update": "plain", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"b": 1}}}], "$db": name}
    return wire.command({**update, "maxTimeMS": 500}).get("n") == 1


def test_w102_documents_whose_statement_id_is_minus_one_are_no_statements(
    replica_set: MongodProcess, port: int, db_name: str
) -> None:
    """They are stored each time; the others only once. A server ends if one bucket gets two documents of these."""
    database = replica_set.shared_client[db_name]
    database.create_collection("x", timeseries=TIMESERIES)
    session = new_session()
    with WireClient(port) as wire:
        for number, rows in enumerate(([row(m="a")], [row(m="a"), row(m="b"), row(m="c")])):
            ids = [-1, 3, -1][: len(rows)]
            fields: dict[str, Any] = {"txnNumber": Int64(1 + number), "stmtIds": ids, "ordered": False}
            assert [insert(wire, db_name, *rows, **session, **fields).get("n") for _ in range(2)] == [len(rows)] * 2
    assert database.x.count_documents({}) == 2 + 5
    assert database.x.count_documents({"m": "b"}) == 1


@pytest.mark.parametrize("known", [False, True])
def test_w102_a_newer_number_ends_the_transaction_of_the_session(
    replica_set: MongodProcess, port: int, db_name: str, known: bool
) -> None:
    """Also if the proxy recognises the first command of the transaction, or it comes over another connection."""
    database = replica_set.shared_client[db_name]
    database.create_collection("x", timeseries=TIMESERIES)
    database.plain.insert_one({"_id": 1})
    with WireClient(port) as wire, WireClient(port) as other:
        for number in range(1, 9, 2):
            session = new_session()
            if known:
                assert insert(wire, db_name, row(), **session, txnNumber=Int64(number))["n"] == 1
            fields = begin(wire if number < 5 else other, db_name, session, number + 1)
            assert not is_free(other, db_name)
            for _ in range(2):
                assert insert(wire, db_name, row(), **session, txnNumber=Int64(number + 2))["n"] == 1
            assert is_free(other, db_name)
            ended = wire.command({"commitTransaction": 1, "$db": "admin", **fields})
            assert ended["code"] == (225 if port == replica_set.port else 251)
        assert database.plain.find_one() == {"_id": 1, "b": 4}


def test_w102_numbers_up_to_that_of_the_transaction_are_refused(
    replica_set: MongodProcess, port: int, db_name: str
) -> None:
    database = replica_set.shared_client[db_name]
    database.create_collection("x", timeseries=TIMESERIES)
    database.plain.insert_one({"_id": 1})
    session = new_session()
    with WireClient(port) as wire:
        fields = begin(wire, db_name, session, 5)
        codes = [insert(wire, db_name, row(), **session, txnNumber=Int64(number)).get("code") for number in (4, 5)]
        assert codes == [225, 217]
        assert wire.command({"commitTransaction": 1, "$db": "admin", **fields})["ok"] == 1
        assert insert(wire, db_name, row(), **session, txnNumber=Int64(6))["n"] == 1
    assert database.plain.find_one() == {"_id": 1, "a": 1}
    assert database.x.count_documents({}) == 1
