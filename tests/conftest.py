"""Servers and names that all tests share."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bson import ObjectId
from hypothesis import HealthCheck, settings

from tests.support.expectations import expected_failure, not_started
from tests.support.mongod import MongodProcess
from tests.support.native_differences import LEFT_OUT, ends_the_server, native_difference
from tests.support.proxy import ACCESS, ProxyProcess, started
from tests.support.transports import all_closed_with_their_loop
from tests.support.versions import STANDALONE_ONLY, server
from tests.support.wanted import MONGOD_VERSION, SCALE, SERVER

settings.register_profile(
    "tsproxy",
    max_examples=max(1, int(75 * SCALE)),
    deadline=None,  # the machine may be busy; a slow example is no failure
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tsproxy")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out what servers that are always members of a set cannot be asked, and what native access has not."""
    if ACCESS == "native" and collection_path.name in LEFT_OUT:
        return True
    return True if collection_path.name in STANDALONE_ONLY and not server(MONGOD_VERSION).runs_alone else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expects the failures that the version of the servers brings along."""
    under_wine = server(MONGOD_VERSION).binary.suffix == ".exe"
    for item in items:
        test = f"{item.path.name}::{item.name}"
        why = (under_wine and not_started(test)) or (ACCESS == "native" and ends_the_server(test))
        if why:
            item.add_marker(pytest.mark.xfail(run=False, reason=why))
            continue
        reason = expected_failure(test, SERVER) or (native_difference(test) if ACCESS == "native" else None)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


def pytest_collection() -> None:
    """Looks for no garbage while the tests are read: what is made then stays, and each look would take longer."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leaves the tests themselves, which are never garbage, out of all collections of it."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def closed_transports() -> Iterator[None]:
    """No test leaves a connection open."""
    with all_closed_with_their_loop():
        yield


@pytest.fixture(scope="session")
def scale() -> float:
    """The factor TSPROXY_TEST_SCALE for loops that are no Hypothesis tests."""
    return SCALE


@pytest.fixture(scope="session")
def server_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's servers keep their data and logs."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def mongod_version() -> tuple[int, ...]:
    """The version of ``mongod`` and ``replica_set``, for expectations that depend on it."""
    return SERVER


@pytest.fixture(scope="session")
def mongod(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[MongodProcess]:
    """A standalone mongod, 6.0.5 unless the environment asks for another; ``replica_set`` where it cannot be alone."""
    chosen = server(MONGOD_VERSION)
    if not chosen.runs_alone:
        yield request.getfixturevalue("replica_set")
        return
    standalone = MongodProcess(server_directory / "mongod", binary=chosen.binary, environment=chosen.environment)
    try:
        yield standalone.start()
    finally:
        standalone.remove()


@pytest.fixture(scope="session")
def replica_set(server_directory: Path) -> Iterator[MongodProcess]:
    """A replica set of one mongod, 6.0.5 unless the environment asks for another."""
    chosen = server(MONGOD_VERSION)
    directory = server_directory / "replica_set"
    primary = MongodProcess(directory, binary=chosen.binary, replica_set="rs0", environment=chosen.environment)
    try:
        yield primary.start()
    finally:
        primary.remove()


@pytest.fixture(scope="session")
def proxy(request: pytest.FixtureRequest, server_directory: Path, mongod: MongodProcess) -> Iterator[ProxyProcess]:
    """A tsproxy in front of ``mongod``. A test that stops or kills its proxy starts one of its own."""
    if mongod.replica_set:
        yield request.getfixturevalue("proxy_rs")
        return
    with started(ProxyProcess(server_directory / "proxy", mongod.uri)) as process:
        yield process


@pytest.fixture(scope="session")
def proxy_rs(server_directory: Path, replica_set: MongodProcess) -> Iterator[ProxyProcess]:
    """A tsproxy in front of ``replica_set``."""
    with started(ProxyProcess(server_directory / "proxy_rs", replica_set.uri)) as process:
        yield process


@pytest.fixture
def proxy_uri(proxy: ProxyProcess) -> str:
    """The connection string of ``proxy``."""
    return proxy.uri


@pytest.fixture
def db_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database name that no other test uses; dropped afterwards from the servers that the test used."""
    stem = re.sub(r"\W+", "_", request.node.name)[:30].strip("_")
    name = f"{stem}_{ObjectId()}"
    yield name
    for server_name in ("mongod", "replica_set"):
        if server_name in request.fixturenames:
            used: MongodProcess = request.getfixturevalue(server_name)
            used.shared_client.drop_database(name)
