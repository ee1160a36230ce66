"""The Node driver with two proxies in its connection string, with and without a login."""

from __future__ import annotations

import json

import pytest
from bson import ObjectId

from tests.support.node import CLIENTS, node
from tests.support.replica_set import ReplicaSet

pytestmark = [pytest.mark.drivers, pytest.mark.timeout(700)]


def run(members: ReplicaSet, uri: str) -> None:
    members.heal()
    database = f"node_{ObjectId()}"
    result = json.loads(node(CLIENTS / "cluster.mjs", uri, members.uri, database, timeout=180))
    with members.client() as client:
        client.drop_database(database)
    assert result == {
        "topology": "Sharded",
        "streams": True,
        "proxiesUsed": 2,
        "drained": True,
        "seenInside": 1,
        "seenOutside": 0,
        "stored": ["counter", "kept"],
        "changes": ["watched", "while away", "after the step-down"],
        "errors": [],
        "inserted": 0,
        "updated": 0,
        "left": 0,
    }


def test_cluster_of_proxies(three: ReplicaSet, proxies_uri: str) -> None:
    """Pools, cursors, transactions, change streams, streaming heartbeats; nobody notices a step-down."""
    run(three, proxies_uri)


def test_cluster_of_proxies_with_a_login(guarded_set: ReplicaSet, login_uri: str) -> None:
    """As before, logged in."""
    run(guarded_set, login_uri)
