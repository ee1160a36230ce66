"""Servers that may be broken: the tests here kill, stop and cut what others share nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fleet_in_parts import FLAGS, IN_PARTS
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started
from tests.support.versions import server as server_of
from tests.support.wanted import MONGOD_VERSION

CHOSEN = server_of(MONGOD_VERSION)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongodProcess]:
    """A replica set of one node, so that writes can be retried and the primary can step down."""
    directory = tmp_path_factory.mktemp("faults") / "mongod"
    server = MongodProcess(
        directory,
        binary=CHOSEN.binary,
        environment=CHOSEN.environment,
        replica_set="rs0",
    )
    try:
        yield server.start()
    finally:
        server.remove()


@contextmanager
def started_alone(directory: Path) -> Iterator[MongodProcess]:
    """A standalone."""
    server = MongodProcess(directory, binary=CHOSEN.binary, environment=CHOSEN.environment)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[MongodProcess]:
    """One of this test's own."""
    with started_alone(tmp_path / "mongod") as server:
        yield server


@pytest.fixture
def fragile(tmp_path: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    """A proxy of this test's own in front of ``backend``."""
    with started(ProxyProcess(tmp_path / "proxy", backend.uri, flags=FLAGS)) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory, backend: MongodProcess) -> Iterator[ProxyProcess]:
    """A proxy that lives through the tests of a module; what happens happens behind it."""
    with started(ProxyProcess(tmp_path_factory.mktemp("steady"), backend.uri, flags=FLAGS)) as proxy:
        yield proxy


@pytest.fixture
def database(request: pytest.FixtureRequest, backend: MongodProcess) -> Iterator[str]:
    """A database with the time-series collection ``c``."""
    name = f"faults_{abs(hash(request.node.nodeid)) % 10**8}"
    with backend.client() as client:
        client.drop_database(name)
        client[name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    yield name
    with backend.client() as client:
        client.drop_database(name)


@pytest.fixture(scope="module", params=["standalone", "replica set"] if CHOSEN.runs_alone else ["replica set"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongodProcess]:
    """Parts are joined by one operation, or in a transaction."""
    if request.param == "replica set":
        yield request.getfixturevalue("backend")
        return
    with started_alone(tmp_path_factory.mktemp("in_parts") / "mongod") as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest, either: MongodProcess) -> Iterator[str]:
    """A database with the time-series collection ``c``."""
    database = f"parts_{abs(hash(request.node.nodeid)) % 10**8}"
    with either.client() as client:
        client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    yield database
    with either.client() as client:
        client.drop_database(database)


@pytest.fixture
def parts_proxy(tmp_path: Path, either: MongodProcess) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(tmp_path / "proxy", either.uri, flags=IN_PARTS)) as proxy:
        yield proxy
