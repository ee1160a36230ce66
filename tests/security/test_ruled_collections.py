"""Collections by rule are created with the rights of the client, and hidden ones stay hidden for low rights."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.proxy import ProxyProcess, started

ROW = {"t": dt.datetime(2024, 5, 18, tzinfo=dt.UTC), "v": 1}


@pytest.fixture(scope="module")
def ruled(server_directory: Path, guarded: GuardedMongod) -> Iterator[ProxyProcess]:
    flags = ["--create-as-timeseries", "ruled*.* -> timeField=t", "--hide-bucket-collections", "true"]
    with started(ProxyProcess(server_directory / "ruled_guarded", guarded.account_uri, flags=flags)) as process:
        yield process


@pytest.fixture
def name(guarded: GuardedMongod) -> Iterator[str]:
    made = f"ruled{ObjectId()}"
    yield made
    guarded.shared_client[made].command("dropAllUsersFromDatabase")
    guarded.shared_client[made].command("dropAllRolesFromDatabase")
    guarded.shared_client.drop_database(made)


def client_of(proxy: ProxyProcess, database: str, user: str) -> pymongo.MongoClient[dict[str, Any]]:
    return proxy.client(username=user, password=PASSWORD, authSource=database)


def types(guarded: GuardedMongod, name: str) -> dict[str, str]:
    return {entry["name"]: entry["type"] for entry in guarded.shared_client[name].list_collections()}


def test_a_client_that_may_not_create_gets_the_backends_refusal(
    guarded: GuardedMongod, ruled: ProxyProcess, name: str
) -> None:
    guarded.create_user(name, "reader", ["read"])
    guarded.create_user(name, "writer", ["readWrite"])
    with client_of(ruled, name, "reader") as reader:
        with pytest.raises(OperationFailure) as refused:
            reader[name].cpu.insert_one(dict(ROW))
        assert refused.value.code == 13
        with pytest.raises(OperationFailure) as refused:
            reader[name].command("create", "cpu")
        assert refused.value.code == 13
        assert types(guarded, name) == {}
        with client_of(ruled, name, "writer") as writer:
            writer[name].cpu.insert_one(dict(ROW))
        assert types(guarded, name)["cpu"] == "timeseries"
        # Hidden names are left out for users that may list only what they may read.
        assert reader[name].list_collection_names() == ["cpu"]
        listed = reader[name].command("listCollections", nameOnly=True, authorizedCollections=True)
        assert [entry["name"] for entry in listed["cursor"]["firstBatch"]] == ["cpu"]


def test_one_who_has_not_logged_in_creates_nothing(guarded: GuardedMongod, ruled: ProxyProcess, name: str) -> None:
    with ruled.client() as stranger, pytest.raises(OperationFailure) as refused:
        stranger[name].cpu.insert_one(dict(ROW))
    assert refused.value.code in (13, 51003)
    assert types(guarded, name) == {}


@pytest.mark.parametrize("roles", [[], ["read"]], ids=["nothing", "read"])
def test_refusals_do_not_tell_what_exists(
    guarded: GuardedMongod, ruled: ProxyProcess, name: str, roles: list[str]
) -> None:
    """The same words as natively, for a name that exists and for one that does not; the rule is not shown."""
    guarded.create_user(name, "agent", roles)
    guarded.shared_client[name].salaries.insert_one({"a": 1})
    with (
        client_of(ruled, name, "agent") as through,
        pymongo.MongoClient(guarded.uri, username="agent", password=PASSWORD, authSource=name) as direct,
    ):
        for collection in ("salaries", "nothing"):
            for command in (
                {"insert": collection, "documents": [dict(ROW)]},
                {"createIndexes": collection, "indexes": [{"key": {"a": 1}, "name": "a"}]},
                {"create": collection},
            ):
                said = []
                for client in (direct, through):
                    reply = client[name].command(command, check=False, session=None)
                    said.append((reply["code"], re.sub(r"lsid: .*", "", reply["errmsg"])))
                assert said[0][0] == 13
                assert said[1] == said[0]


def test_a_right_to_one_collection_suffices_for_it(guarded: GuardedMongod, ruled: ProxyProcess, name: str) -> None:
    privileges = [
        {"resource": {"db": name, "collection": "old"}, "actions": ["insert", "find"]},
        {"resource": {"db": name, "collection": "new"}, "actions": ["insert", "find", "createCollection"]},
    ]
    guarded.shared_client[name].command("createRole", "narrow", privileges=privileges, roles=[])
    guarded.create_user(name, "agent", [{"role": "narrow", "db": name}])
    guarded.shared_client[name].create_collection("old")
    with client_of(ruled, name, "agent") as agent:
        agent[name].old.insert_one({"no": "time"})
        agent[name].new.insert_one(dict(ROW))
        with pytest.raises(OperationFailure) as refused:
            agent[name].other.insert_one(dict(ROW))
    assert refused.value.code == 13
    assert types(guarded, name)["new"] == "timeseries"
    assert types(guarded, name)["old"] == "collection"
    assert "other" not in types(guarded, name)
