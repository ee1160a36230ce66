"""Replica sets of three, with and without access control, and proxies in front of them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from tests.support.access import least_role
from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """Three mongods 6.0.5."""
    members = ReplicaSet(tmp_path_factory.mktemp("three"))
    try:
        yield members.start()
    finally:
        members.remove()


def _two_proxies(folders: pytest.TempPathFactory, name: str, uri: str) -> Iterator[list[ProxyProcess]]:
    started = [ProxyProcess(folders.mktemp(f"{name}{number}"), uri) for number in (1, 2)]
    try:
        yield [proxy.start() for proxy in started]
    finally:
        for proxy in started:
            proxy.stop()


@pytest.fixture(scope="session")
def proxies(three: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of ``three``."""
    yield from _two_proxies(tmp_path_factory, "proxy", three.uri)


@pytest.fixture(scope="session")
def proxies_uri(proxies: list[ProxyProcess]) -> str:
    """Both proxies in one connection string."""
    return f"mongodb://{','.join(proxy.address for proxy in proxies)}/"


@pytest.fixture(scope="session")
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
            # Two proxies must be able to find one another.
            role["privileges"].append({"resource": {"cluster": True}, "actions": ["inprog"]})
            root.admin.command(role)
            root.admin.command("createUser", "tsproxy", pwd="x", roles=[role["createRole"]])
            root.admin.command("createUser", "writer", pwd="x", roles=["readWriteAnyDatabase", "dbAdminAnyDatabase"])
        yield members
    finally:
        members.remove()


@pytest.fixture(scope="session")
def guarded_proxies(guarded_set: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of ``guarded_set``, with what the documents ask of their account."""
    account = guarded_set.uri.replace("root:root@", "tsproxy:x@") + "&authSource=admin"
    yield from _two_proxies(tmp_path_factory, "guarded_proxy", account)


@pytest.fixture(scope="session")
def login_uri(guarded_proxies: list[ProxyProcess]) -> str:
    """How a writer connects to both."""
    return f"mongodb://writer:x@{','.join(proxy.address for proxy in guarded_proxies)}/?authSource=admin"
