"""Reads of users with the roles ``read`` and ``readWrite``, which do not include buckets: through the view (Q25)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from catalog.bson.codec import CODEC
from rewrite.commands.distinct_on_view import IS_KNOWN
from tests.support.access import PASSWORD, GuardedMongod
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess

DATABASE = "through_the_view"
USERS = {"reader": "read", "writer": "readWrite"}
METAS: list[Any] = [
    *({"a": n % 7, "b": {"c": n, "d": f"d{n % 3}"}} for n in range(20)),
    {"a": None},
    {"b": 1},
    {"a": [1, 2, [3]]},
    {"a": []},
    {"a": {"x": 1}},
    {"a": [{"q": 1}, {"q": [2, 3]}, 4]},
    None,
    "text",
    5,
    [1, "two", {"a": 8}],
    ...,
]
"""Meta values; ``...`` is none."""
KEYS = ["m.a", "m.b", "m.b.c", "m.b.d", "m.a.q", "m.a.0", "m.a.x", "m.nothing", "m", "v", "t", "s"]
QUERIES: list[dict[str, Any]] = [
    {},
    {"m.b.d": "d1"},
    {"m.a": {"$gt": 2}},
    {"$or": [{"m.a": 1}, {"m.b": 1}]},
    {"v": {"$lt": 50}},
    {"m.a": 1, "t": {"$gte": DatetimeMS(1_700_000_300_000)}},
    {"m.a": "none"},
]
Databases = dict[str, tuple[Database[Any], Database[Any]]]


@pytest.fixture(scope="module")
def databases(guarded: GuardedMongod, guarded_proxy: ProxyProcess) -> Iterator[Databases]:
    """For each user, the same collection directly and through the proxy."""
    with guarded.client() as root:
        root.drop_database(DATABASE)
        root[DATABASE].command("dropAllUsersFromDatabase")
        root[DATABASE].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        choice = random.Random(1)
        rows = []
        for n in range(600):
            meta = choice.choice(METAS)
            row = {"_id": n, "t": DatetimeMS(1_700_000_000_000 + 1000 * n), "v": n % 100, "s": f"s{n % 4}"}
            rows.append(row if meta is ... else {**row, "m": meta})
        root[DATABASE].x.insert_many(rows)
        root[DATABASE].create_collection("known", timeseries={"timeField": "t", "metaField": "m"})
        known = [row for row in rows if row.get("m") is not None]
        root[DATABASE].known.insert_many(known)
    clients = []
    found = {}
    for name, role in USERS.items():
        guarded.create_user(DATABASE, name, [role])
        user: dict[str, Any] = {"username": name, "password": PASSWORD, "authSource": DATABASE}
        pair = [
            pymongo.MongoClient[Any](LOOPBACK, port, directConnection=True, **user)
            for port in (guarded.port, guarded_proxy.port)
        ]
        clients += pair
        direct, proxied = (client.get_database(DATABASE, codec_options=CODEC) for client in pair)
        found[name] = direct, proxied
    yield found
    for client in clients:
        client.close()
    guarded.shared_client.drop_database(DATABASE)


def values(database: Database[Any], command: dict[str, Any]) -> tuple[list[str], list[str]]:
    reply = database.command(command)
    assert (reply["ok"], type(reply["ok"])) == (1, int), "C26"
    return sorted(map(repr, reply["values"])), sorted(reply)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("key", KEYS)
def test_q25_distinct_values_are_those_of_the_server(databases: Databases, user: str, key: str) -> None:
    direct, proxied = databases[user]
    for query in QUERIES:
        command = {"distinct": "x", "key": key, "query": query}
        for more in ({}, {"comment": "again", "maxTimeMS": 10_000}):
            assert values(proxied, {**command, **more}) == values(direct, {**command, **more}), (key, query)


@pytest.mark.parametrize("query", [{}, {"m": 5}, {"m": {"$gt": 3}}, {"m.a": 1}, {"v": 1}])
def test_q25_whole_meta_values_of_which_none_is_missing(databases: Databases, query: dict[str, Any]) -> None:
    direct, proxied = databases["reader"]
    command = {"distinct": "known", "key": "m", "query": query}
    assert values(proxied, command) == values(direct, command)


def unpacks(database: Database[Any], command: dict[str, Any]) -> bool:
    told = database.command({"explain": command, "verbosity": "queryPlanner"})
    return any("$_internalUnpackBucket" in stage for stage in told["stages"])


def test_q25_headers_are_enough(databases: Databases) -> None:
    """The server's own plan for a distinct unpacks every row."""
    direct, proxied = databases["reader"]
    for query in ({}, {"m.b.d": "d1"}):
        command = {"distinct": "x", "key": "m.a", "query": query}
        assert (unpacks(direct, command), unpacks(proxied, command)) == (True, False)
    command = {"distinct": "x", "key": "m.a", "query": {"v": 1}}
    assert unpacks(proxied, command)
    guess = {"aggregate": "known", "pipeline": [{"$group": {"_id": "$m"}}, IS_KNOWN], "cursor": {}}
    assert not unpacks(direct, guess)


def test_other_reads_are_the_servers_own(databases: Databases) -> None:
    direct, proxied = databases["writer"]
    by_id = {"$sort": {"_id": 1}}
    group = {"$group": {"_id": "$m.b.d", "n": {"$sum": 1}, "high": {"$max": "$v"}}}
    reads: list[dict[str, Any]] = [
        {"find": "x", "filter": {"m.a": 3}, "sort": {"_id": 1}, "batchSize": 1000},
        {"find": "x", "filter": {"v": 7}, "sort": {"t": -1}, "limit": 3},
        {"count": "x"},
        {"count": "x", "query": {"m.a": 3}},
        {"aggregate": "x", "pipeline": [group, by_id], "cursor": {}},
        {"aggregate": "x", "pipeline": [{"$match": {"m.a": 1}}, {"$count": "n"}], "cursor": {}},
    ]
    for read in reads:
        assert proxied.command(read) == direct.command(read)


def test_who_may_not_read_at_all_is_refused_as_by_the_server(databases: Databases, guarded: GuardedMongod) -> None:
    guarded.create_user(DATABASE, "nobody", [])
    _, through = databases["reader"]
    user: dict[str, Any] = {"username": "nobody", "password": PASSWORD, "authSource": DATABASE}
    refusals = []
    for port in (guarded.port, through.client.address[1] if through.client.address else 0):
        with pymongo.MongoClient[Any](LOOPBACK, port, directConnection=True, **user) as client:
            reply = client[DATABASE].command({"distinct": "x", "key": "m.a"}, check=False)
            refusals.append((reply["code"], reply["errmsg"].partition("lsid")[0]))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] == 13
