"""A command of one user is recognised when another user sends it; what each may do is checked each time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.proxy import ProxyProcess

NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
DATABASE = "recognised_users"
UNAUTHORIZED = 13
USERS = {"writer": ["readWrite"], "other_writer": ["readWrite"], "reader": ["read"], "nobody": []}


@pytest.fixture
def collections(guarded: GuardedMongod, guarded_proxy: ProxyProcess) -> dict[str, Any]:
    """One collection as each user sees it through the proxy; whoever has not logged in is ``stranger``."""
    with guarded.client() as root:
        root.drop_database(DATABASE)
        root[DATABASE].command("dropAllUsersFromDatabase")
        root[DATABASE].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        root[DATABASE].create_collection("ordinary")
    for name, roles in USERS.items():
        guarded.create_user(DATABASE, name, roles)
    options: dict[str, Any] = {"port": guarded_proxy.port, "authSource": DATABASE, "tz_aware": True}
    clients = {
        name: pymongo.MongoClient("127.0.0.1", username=name, password=PASSWORD, **options) for name in USERS
    } | {"stranger": pymongo.MongoClient("127.0.0.1", guarded_proxy.port)}
    return {name: client[DATABASE] for name, client in clients.items()}


def code_of(act: Any) -> int:
    try:
        act()
    except OperationFailure as error:
        return error.code or 0
    return 0


@pytest.mark.parametrize("name", ["ts", "ordinary"])
def test_what_one_user_may_another_may_not(collections: dict[str, Any], name: str) -> None:
    def insert(user: str, number: int) -> int:
        return code_of(lambda: collections[user][name].insert_one({"_id": f"{user} {number}", "t": NOW, "m": 1}))

    def find(user: str) -> int:
        return code_of(lambda: list(collections[user][name].find({"m": 1}).sort("_id", 1)))

    for number in range(4):
        for user in ("writer", "reader", "nobody", "stranger", "other_writer"):
            allowed = user in ("writer", "other_writer")
            assert insert(user, number) == (0 if allowed else UNAUTHORIZED)
            assert find(user) == (0 if allowed or user == "reader" else UNAUTHORIZED)
    stored = [each["_id"] for each in collections["reader"][name].find({"m": 1})]
    assert sorted(stored) == sorted(f"{user} {number}" for user in ("writer", "other_writer") for number in range(4))
    for database in collections.values():
        database.client.close()
