"""Writes whose write concern is not met hold nobody up, and their clients hear what a server says.

A set with a member that cannot be reached never meets ``w: 2``; it goes on with everything else.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymongo
import pytest
from bson import Binary, Int64, ObjectId
from pymongo.write_concern import WriteConcern

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import RawClient, command, document_of
from tests.support.replica_set import ReplicaSet
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
FOR_LONG = {"w": 2, "wtimeout": 600_000}

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def lonely(server_directory: Path) -> Iterator[MongodProcess]:
    """A primary whose only secondary is not there, and has no vote."""
    chosen = server(MONGOD_VERSION)
    primary = MongodProcess(
        server_directory / "lonely", binary=chosen.binary, replica_set="lonely", environment=chosen.environment
    )
    try:
        primary.start()
        config = primary.shared_client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["members"].append({"_id": 1, "host": "127.0.0.1:1", "votes": 0, "priority": 0})
        primary.shared_client.admin.command("replSetReconfig", config, force=True)
        yield primary
    finally:
        primary.remove()


@pytest.fixture(scope="module")
def lonely_proxy(server_directory: Path, lonely: MongodProcess) -> Iterator[ProxyProcess]:
    """A tsproxy in front of it."""
    with started(ProxyProcess(server_directory / "lonely_proxy", lonely.uri)) as process:
        yield process


@pytest.fixture
def database(lonely: MongodProcess) -> Iterator[str]:
    """With a collection ``ts`` and one of ``hangs``."""
    name = f"waits_{ObjectId()}"
    for each in ("ts", "hangs"):
        lonely.shared_client[name].create_collection(each, timeseries={"timeField": "t", "metaField": "m"})
    yield name
    lonely.shared_client.drop_database(name)


def insert(collection: str, database: str, number: int = 0, **fields: Any) -> dict[str, Any]:
    document = {"t": START, "m": number, "v": number}
    return {"insert": collection, "documents": [document], "$db": database, **fields}


def told(reply: dict[str, Any]) -> dict[str, Any]:
    """What a reply says, without the times of the cluster."""
    return {name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime", "opTime")}


@pytest.mark.parametrize(
    ("waiting", "collections", "series"),
    [(16, 1, "same_series"), (64, 16, "other_series"), (200, 1, "same_series")],
)
def test_others_insert_while_writers_wait(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str, waiting: int, collections: int, series: str
) -> None:
    """Also into the very series that the waiting ones wrote to, and with the same connection count for all."""
    for number in range(collections):
        lonely.shared_client[database].create_collection(
            f"hangs_{number}", timeseries={"timeField": "t", "metaField": "m"}
        )
    hanging = [RawClient(lonely_proxy.port) for _ in range(waiting)]
    try:
        with Client(lonely_proxy.uri) as honest:
            rows = honest[database]["hangs_0" if series == "same_series" else "ts"]
            rows.insert_one({"t": START, "m": 0, "honest": True})
            for number, each in enumerate(hanging):
                each.send(command(insert(f"hangs_{number % collections}", database, writeConcern=FOR_LONG)))
            until = time.monotonic() + 60
            for number in range(100):
                rows.insert_one({"t": START, "m": 0, "honest": True, "n": number})
                assert time.monotonic() < until
            stored = sum(
                lonely.shared_client[database][f"hangs_{number}"].count_documents({"honest": {"$exists": False}})
                for number in range(collections)
            )
            assert stored == waiting
        for each in hanging:
            each.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.socket.recv(1)
    finally:
        for each in hanging:
            each.socket.close()


CONCERNS: Sequence[Mapping[str, Any]] = (
    {"w": 2, "wtimeout": 200},
    {"w": 2, "wtimeout": 1_500},
    {"w": 2, "j": True, "wtimeout": 1_300},
    {"w": 2.0, "wtimeout": 1_300.5},
    {"w": 2, "wtimeout": 1_400, "fsync": False},
    {"w": 3, "wtimeout": 100},
    {"w": "nowhere", "wtimeout": 100},
    {"w": "majority", "wtimeout": 1_500},
    {"w": 1},
    {"j": True},
    {"w": 77},
    {"w": [2]},
    {"w": 2, "nonsense": 1},
)


def test_what_a_client_hears_is_what_a_server_says(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str
) -> None:
    """Twice: of a write concern that was met so far, and of one that is known not to be. All at the same time."""

    def compare(case: tuple[Mapping[str, Any], int]) -> None:
        concern, documents = case
        body = insert("ts", database, writeConcern=concern)
        body["documents"] = body["documents"] * documents
        with RawClient(lonely.port) as direct, RawClient(lonely_proxy.port) as client:
            expected = told(direct.run(body))
            for _ in range(2):
                began = time.monotonic()
                assert told(client.run(body)) == expected, concern
                if "writeConcernError" in expected and expected["writeConcernError"]["code"] == 64:
                    assert time.monotonic() - began >= concern["wtimeout"] / 1000 - 0.05

    cases = [(concern, documents) for concern in CONCERNS for documents in (1, 3)]
    with ThreadPoolExecutor(len(cases)) as threads:
        list(threads.map(compare, cases))


@contextmanager
def default_of(server: MongodProcess, **concern: Any) -> Iterator[None]:
    """The default of the cluster."""
    admin = server.shared_client.admin
    admin.command("setDefaultRWConcern", defaultWriteConcern=concern, writeConcern={"w": 1})
    try:
        yield
    finally:
        admin.command("setDefaultRWConcern", defaultWriteConcern={"w": 1}, writeConcern={"w": 1})


@pytest.mark.parametrize("named", [{}, {"writeConcern": {}}], ids=["nothing", "empty"])
@pytest.mark.parametrize("limit", [1_500, 0])
def test_the_default_of_the_cluster_counts(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str, limit: int, named: dict[str, Any]
) -> None:
    with ExitStack() as stack:
        stack.enter_context(default_of(lonely, w=2, wtimeout=limit))
        waiting = [stack.enter_context(RawClient(lonely_proxy.port)) for _ in range(24)]
        for number, each in enumerate(waiting):
            each.send(command(insert("hangs", database, number, **named)))
        with Client(lonely_proxy.uri, w=1) as honest:
            for number in range(50):
                honest[database].hangs.insert_one({"t": START, "m": number % 24})
        if limit:
            replies = [each.receive() for each in waiting]
            for reply in replies:
                assert reply is not None
                error = document_of(reply)["writeConcernError"]
                shown = {"w": 2, "wtimeout": limit, "provenance": "customDefault"}
                assert (error["code"], error["errInfo"]["writeConcern"]) == (64, shown)


def removal(command_name: str, database: str, x: int, **fields: Any) -> dict[str, Any]:
    """By what is in the buckets."""
    query = {"x": x}
    what = (
        {"query": query, "remove": True} if command_name == "findAndModify" else {"deletes": [{"q": query, "limit": 0}]}
    )
    return {command_name: "ts", **what, "$db": database, **fields}


@pytest.mark.parametrize("limit", [300, 1_500])
@pytest.mark.parametrize("command_name", ["delete", "findAndModify"])
def test_removals_wait_for_the_default_of_the_cluster_once(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str, command_name: str, limit: int
) -> None:
    """Twice: before and after the default is known not to be met."""
    rows = lonely.shared_client[database].ts.with_options(write_concern=WriteConcern(1))
    for _ in range(2):
        rows.insert_many([{"t": START, "m": each, "x": 1} for each in range(3)])
        with (
            default_of(lonely, w=2, wtimeout=limit),
            RawClient(lonely.port) as direct,
            RawClient(lonely_proxy.port) as client,
        ):
            expected = direct.run({"delete": "ts", "deletes": [{"q": {"m": -1}, "limit": 0}], "$db": database})
            began = time.monotonic()
            reply = client.run(removal(command_name, database, 1))
            took = time.monotonic() - began
        assert reply["writeConcernError"] == expected["writeConcernError"]
        assert limit / 1000 - 0.05 <= took < limit / 1000 + 2.5
        assert rows.count_documents({"x": 1}) == (2 if command_name == "findAndModify" else 0)
        rows.delete_many({"m": {"$exists": True}})


@pytest.mark.parametrize(
    "named", [{}, {"writeConcern": {}}, {"writeConcern": {"w": 0}}], ids=["nothing", "empty", "w0"]
)
@pytest.mark.parametrize("command_name", ["delete", "findAndModify"])
def test_removals_that_wait_for_the_default_are_done_and_hold_no_places(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str, command_name: str, named: dict[str, Any]
) -> None:
    """More of them than one client has places; another delete goes on beside them."""
    rows = lonely.shared_client[database].ts.with_options(write_concern=WriteConcern(1))
    count = 40
    rows.insert_many([{"t": START, "m": number, "x": number} for number in range(count + 1)])
    with ExitStack() as stack:
        stack.enter_context(default_of(lonely, w=2, wtimeout=0))
        for number in range(count):
            client = stack.enter_context(RawClient(lonely_proxy.port))
            client.send(command(removal(command_name, database, number, **named)))
        lonely.wait_until(lambda: rows.count_documents({}) == 1, 20)
        honest = stack.enter_context(RawClient(lonely_proxy.port))
        assert honest.run(removal("delete", database, count, writeConcern={"w": 1}))["n"] == 1


def test_a_default_that_is_met_again_confirms_removals_at_once(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str
) -> None:
    """Those that wait for the other one hold up none that wait for this one for long."""
    rows = lonely.shared_client[database].ts.with_options(write_concern=WriteConcern(1))
    rows.insert_many([{"t": START, "m": number, "x": 1} for number in range(8)])
    body = removal("findAndModify", database, 1)
    with ExitStack() as stack:
        with default_of(lonely, w=2, wtimeout=0):
            for _ in range(7):
                stack.enter_context(RawClient(lonely_proxy.port)).send(command(body))
            lonely.wait_until(lambda: rows.count_documents({"x": 1}) == 1, 40)
        reply = stack.enter_context(RawClient(lonely_proxy.port)).run(body)
        assert (reply["ok"], reply.get("writeConcernError")) == (1.0, None)


def test_clients_that_left_are_not_waited_for(lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str) -> None:
    """However many come and go, few commands wait on the backend."""
    for number in range(60):
        with RawClient(lonely_proxy.port) as client:
            client.send(command(insert("hangs", database, writeConcern={"w": 2})))
            if number % 20 == 0:
                time.sleep(0.2)

    def waiting() -> int:
        pipeline: list[dict[str, Any]] = [
            {"$currentOp": {"allUsers": True}},
            {"$match": {"command.$db": database, "active": True}},
        ]
        return len(list(lonely.shared_client.admin.aggregate(pipeline)))

    lonely.wait_until(lambda: waiting() <= 8)


def test_a_secondary_that_comes_back_confirms_what_waited(three: ReplicaSet, proxies: list[ProxyProcess]) -> None:
    process = proxies[0]
    database = f"waits_{ObjectId()}"
    with three.client() as direct:
        direct[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    primary = three.await_primary()
    away = next(member for member in three.members if member is not primary)

    def write(number: int) -> dict[str, Any]:
        with RawClient(process.port, 60.0) as client:
            return client.run(insert("ts", database, number, writeConcern={"w": 3, "wtimeout": 60_000}))

    with ThreadPoolExecutor(20) as threads, Client(process.uri, w=1) as honest:
        away.pause()
        try:
            writers = [threads.submit(write, number) for number in range(20)]
            for number in range(200):
                honest[database].ts.insert_one({"t": START, "m": number})
            assert not any(writer.done() for writer in writers)
        finally:
            away.resume()
        replies = [writer.result() for writer in writers]
    assert [(reply["ok"], reply["n"], reply.get("writeConcernError")) for reply in replies] == [(1.0, 1, None)] * 20


def test_w102_what_was_confirmed_late_is_told_to_other_proxies(three: ReplicaSet, proxies: list[ProxyProcess]) -> None:
    """A measurement without an ``_id`` cannot be looked up."""
    database = f"waits_{ObjectId()}"
    with three.client() as direct:
        direct[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        away = next(member for member in three.members if member is not three.await_primary())
        for each in proxies:
            each.wait_until(lambda each=each: each.metrics().get("tsproxy_peers_linked") == 1)
        session = {"lsid": {"id": Binary(uuid4().bytes, 4)}, "txnNumber": Int64(1)}
        statement = insert("ts", database, writeConcern={"w": 3, "wtimeout": 60_000}, **session)
        with RawClient(proxies[0].port) as one, RawClient(proxies[1].port) as two:
            away.pause()
            try:
                one.send(command(statement))
                time.sleep(2.5)
            finally:
                away.resume()
            replies = [*one.documents(1), two.run(statement), one.run(statement)]
        assert [(reply["n"], reply.get("writeConcernError")) for reply in replies] == [(1, None)] * 3
        assert direct[database].ts.count_documents({}) == 1


@pytest.mark.parametrize("command_name", ["delete", "findAndModify"])
def test_removals_wait_once_and_say_what_a_server_says(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str, command_name: str
) -> None:
    """Of several buckets, by what is in them; a server's own delete by meta beside it (U8)."""
    rows = lonely.shared_client[database].ts

    def compare(case: tuple[int, Mapping[str, Any]]) -> None:
        number, concern = case
        rows.insert_many([{"t": START, "m": f"{number}-{each}", "x": number} for each in range(3)])
        rows.insert_one({"t": START, "m": f"native-{number}"})
        native: dict[str, Any] = {"delete": "ts", "deletes": [{"q": {"m": f"native-{number}"}, "limit": 0}]}
        removal: dict[str, Any] = {"delete": "ts", "deletes": [{"q": {"x": number}, "limit": 0}]}
        if command_name == "findAndModify":
            removal = {"findAndModify": "ts", "query": {"x": number}, "remove": True}
        common = {"$db": database, "writeConcern": concern}
        with RawClient(lonely.port) as direct, RawClient(lonely_proxy.port) as client:
            expected = told(direct.run({**native, **common}))
            began = time.monotonic()
            reply = told(client.run({**removal, **common}))
            took = time.monotonic() - began
        names = ("ok", "code", "errmsg", "writeConcernError")
        assert {name: reply.get(name) for name in names} == {name: expected.get(name) for name in names}, concern
        left = 3 if not expected["ok"] else 2 if command_name == "findAndModify" else 0
        assert rows.count_documents({"x": number}) == left
        if "writeConcernError" in expected and expected["writeConcernError"]["code"] == 64:
            assert took >= concern["wtimeout"] / 1000 - 0.05

    concerns = [each for each in CONCERNS if isinstance(each.get("w", 1), (int, str))]
    with ThreadPoolExecutor(len(concerns)) as threads:
        list(threads.map(compare, enumerate(concerns)))


def test_removals_that_wait_are_done_and_hold_no_places(
    lonely: MongodProcess, lonely_proxy: ProxyProcess, database: str
) -> None:
    """More of them than one client has places; another delete goes on beside them."""
    rows = lonely.shared_client[database].ts
    count = 40
    rows.insert_many([{"t": START, "m": f"{number}-{each}", "x": number} for number in range(count) for each in (0, 1)])
    waiting = [RawClient(lonely_proxy.port) for _ in range(count)]
    try:
        for number, each in enumerate(waiting):
            body = {"delete": "ts", "deletes": [{"q": {"x": number}, "limit": 0}], "$db": database}
            each.send(command({**body, "writeConcern": FOR_LONG}))
        lonely.wait_until(lambda: rows.count_documents({}) == 0, 20)
        rows.insert_one({"t": START, "m": "other", "x": -1})
        with RawClient(lonely_proxy.port) as honest:
            reply = honest.run({"delete": "ts", "deletes": [{"q": {"x": -1}, "limit": 0}], "$db": database})
        assert reply["n"] == 1
        for each in waiting:
            each.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.socket.recv(1)
    finally:
        for each in waiting:
            each.socket.close()
