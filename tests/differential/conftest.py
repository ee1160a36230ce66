"""Twins of a native database and one behind the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.twins import Twins


@pytest.fixture(scope="session")
def proxy_client(proxy: ProxyProcess) -> Iterator[MongoClient[dict[str, Any]]]:
    """One client of ``proxy`` for all tests."""
    with proxy.client() as client:
        yield client


@pytest.fixture(scope="session")
def proxy_rs_client(proxy_rs: ProxyProcess) -> Iterator[MongoClient[dict[str, Any]]]:
    """One client of ``proxy_rs`` for all tests."""
    with proxy_rs.client() as client:
        yield client


@pytest.fixture
def twins(mongod: MongodProcess, proxy_client: MongoClient[dict[str, Any]], db_name: str) -> Iterator[Twins]:
    """On a standalone server."""
    pair = Twins(mongod.shared_client, proxy_client, db_name)
    yield pair
    pair.drop()


@pytest.fixture
def set_twins(
    replica_set: MongodProcess, proxy_rs_client: MongoClient[dict[str, Any]], db_name: str
) -> Iterator[Twins]:
    """On a replica set."""
    pair = Twins(replica_set.shared_client, proxy_rs_client, db_name)
    yield pair
    pair.drop()
