"""Retried removals: each client has its own record at the backend, and nobody else's (W103, X2)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId
from bson.binary import Binary
from bson.int64 import Int64

from tests.support.access import GuardedMongod
from tests.support.logged_in import logged_in
from tests.support.proxy import ProxyProcess

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TAKE_FIRST = {"findAndModify": "ts", "query": {"v": {"$gte": 0}}, "sort": {"v": 1}, "remove": True}
DELETE_FIRST = {"delete": "ts", "deletes": [{"q": {"v": {"$gte": 0}}, "limit": 1}]}


def retryable(command: dict[str, Any], session: Binary, number: int) -> dict[str, Any]:
    return {**command, "lsid": {"id": session}, "txnNumber": Int64(number)}


def new_session() -> Binary:
    return Binary(uuid4().bytes, 4)


@pytest.fixture
def database(guarded_set: GuardedMongod) -> Iterator[str]:
    """With ten measurements, and the users alice and bob who may read and write."""
    name = f"retried_{ObjectId()}"
    native = guarded_set.shared_client[name]
    native.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    native.ts.insert_many([{"t": START, "m": 1, "v": value, "secret": f"of {value}"} for value in range(10)])
    for user in ("alice", "bob"):
        guarded_set.create_user(name, user, ["readWrite"])
    yield name
    native.command("dropAllUsersFromDatabase")
    guarded_set.shared_client.drop_database(name)


def left(guarded_set: GuardedMongod, database: str) -> list[int]:
    return sorted(each["v"] for each in guarded_set.shared_client[database].ts.find())


async def test_a_retry_says_what_the_first_try_said(
    guarded_set: GuardedMongod, guarded_set_proxy: ProxyProcess, database: str
) -> None:
    """Under the least role, also across a restart of the proxy: its sessions hang on its account alone."""
    session = new_session()
    for number, command in enumerate((TAKE_FIRST, DELETE_FIRST, {**TAKE_FIRST, "fields": {"v": 1}}), 1):
        replies = []
        for restarts in (False, False, True):
            if restarts:
                guarded_set_proxy.restart()
            async with logged_in(guarded_set_proxy.port, "alice", database, database) as alice:
                reply = await alice.run(retryable(command, session, number))
                assert reply["ok"] == 1, reply
                replies.append((reply.get("n"), reply.get("value"), reply.get("lastErrorObject")))
        assert replies[0] == replies[1] == replies[2]
        assert len(left(guarded_set, database)) == 10 - number


async def test_the_session_of_another_user_tells_nothing(
    guarded_set: GuardedMongod, guarded_set_proxy: ProxyProcess, database: str
) -> None:
    session = new_session()
    port = guarded_set_proxy.port
    async with (
        logged_in(port, "alice", database, database) as alice,
        logged_in(port, "bob", database, database) as bob,
    ):
        taken = [(await each.run(retryable(TAKE_FIRST, session, 1)))["value"]["v"] for each in (alice, bob)]
        assert taken == [0, 1]
        assert [(await each.run(retryable(DELETE_FIRST, session, 2)))["n"] for each in (alice, bob)] == [1, 1]
        assert len(left(guarded_set, database)) == 6
        # Nor does a number that none can be greater than keep the other one out.
        huge = await bob.run(retryable(DELETE_FIRST, session, 2**63 - 1))
        assert huge["n"] == 1
        assert (await alice.run(retryable(DELETE_FIRST, session, 3)))["n"] == 1
        assert len(left(guarded_set, database)) == 4


async def test_another_collection_with_the_same_number_tells_nothing(
    guarded_set: GuardedMongod, guarded_set_proxy: ProxyProcess, database: str
) -> None:
    """What was removed from one collection is shown to nobody who asks for another."""
    native = guarded_set.shared_client[database]
    native.create_collection("other", timeseries={"timeField": "t", "metaField": "m"})
    native.other.insert_one({"t": START, "m": 1, "v": 100})
    session = new_session()
    async with logged_in(guarded_set_proxy.port, "alice", database, database) as alice:
        assert (await alice.run(retryable(TAKE_FIRST, session, 1)))["value"]["v"] == 0
        reply = await alice.run(retryable({**TAKE_FIRST, "findAndModify": "other"}, session, 1))
        assert reply["value"]["v"] == 100


async def test_users_whose_names_read_alike_are_two(
    guarded_set: GuardedMongod, guarded_set_proxy: ProxyProcess, database: str
) -> None:
    """``a@b`` of ``c`` and ``a`` of ``b@c``: inserts and removals with one session and number are two statements."""
    session = new_session()
    users = [("a@b", f"c{database}"), ("a", f"b@c{database}")]
    row = {"t": START, "m": 9, "v": -1}
    for name, source in users:
        guarded_set.create_user(source, name, [{"role": "readWrite", "db": database}])
    try:
        for name, source in users:
            async with logged_in(guarded_set_proxy.port, name, source, database) as user:
                inserted = await user.run(
                    retryable({"insert": "ts", "documents": [{**row, "_id": name}]}, session, 1),
                )
                assert inserted["n"] == 1
                removed = await user.run(retryable(TAKE_FIRST, session, 2))
                assert removed["ok"] == 1, removed
        stored = [each["_id"] for each in guarded_set.shared_client[database].ts.find({"m": 9})]
        assert sorted(stored) == ["a", "a@b"]
        assert left(guarded_set, database) == [-1, -1, *range(2, 10)]
    finally:
        for _, source in users:
            guarded_set.shared_client[source].command("dropAllUsersFromDatabase")
