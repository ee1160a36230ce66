"""Failover with access control on: a login ends with the primary it was made on, and drivers make it anew."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from bson import ObjectId

from tests.support.access import least_role
from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet
from tests.topology.test_replica_set import Writers

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def guarded_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """Three members and access control."""
    folder = tmp_path_factory.mktemp("guarded_set")
    key = folder / "key"
    key.write_text(base64.b64encode(os.urandom(90)).decode())
    key.chmod(0o600)
    members = ReplicaSet(folder, size=3, arguments=["--keyFile", str(key)], login="root:root@")
    try:
        members.start()
        primary = members.await_primary()
        with pymongo.MongoClient[Any](f"mongodb://{primary.address}/?directConnection=true") as first:
            first.admin.command("createUser", "root", pwd="root", roles=["root"])
        with members.client() as root:
            role = least_role()
            root.admin.command(role)
            root.admin.command("createUser", "tsproxy", pwd="x", roles=[role["createRole"]])
            root.admin.command("createUser", "writer", pwd="x", roles=["readWriteAnyDatabase"])
        yield members
    finally:
        members.remove()


@pytest.fixture(scope="module")
def login_uri(guarded_set: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProxyProcess, str]]:
    """A proxy with the least role, and how a writer connects to it."""
    account = guarded_set.uri.replace("root:root@", "tsproxy:x@") + "&authSource=admin"
    proxy = ProxyProcess(tmp_path_factory.mktemp("guarded_set_proxy"), account)
    try:
        proxy.start()
        yield proxy, f"mongodb://writer:x@{proxy.address}/?authSource=admin"
    finally:
        proxy.stop()


@pytest.mark.parametrize("collection", ["ts", "plain"])
def test_step_down_is_survived_by_clients_that_log_in(
    collection: str, guarded_set: ReplicaSet, login_uri: tuple[ProxyProcess, str]
) -> None:
    proxy, uri = login_uri
    database = f"guarded_{ObjectId()}"
    with pymongo.MongoClient[Any](uri, serverSelectionTimeoutMS=30_000) as client:
        client[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        with Writers(uri, database, collection) as writers:
            writers.progress(proxy)
            before = guarded_set.await_primary()
            guarded_set.step_down()
            guarded_set.await_primary(other_than=before)
            writers.progress(proxy)
        stored = [document["_id"] for document in client[database][collection].find({}, {"_id": 1})]
    assert len(stored) == len(set(stored)), "nothing twice"
    assert set(writers.acknowledged) <= set(stored), "nothing lost"
    assert len(writers.errors) <= len(writers.threads), [repr(error) for error in writers.errors]
