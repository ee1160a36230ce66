"""A replica set of three and proxies in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """Three mongods 6.0.5."""
    members = ReplicaSet(tmp_path_factory.mktemp("three"))
    try:
        yield members.start()
    finally:
        members.remove()


@pytest.fixture(scope="module")
def proxies(three: ReplicaSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of ``three``."""
    started = [ProxyProcess(tmp_path_factory.mktemp(f"proxy{number}"), three.uri) for number in (1, 2)]
    try:
        yield [proxy.start() for proxy in started]
    finally:
        for proxy in started:
            proxy.stop()


@pytest.fixture(scope="module")
def proxies_uri(proxies: list[ProxyProcess]) -> str:
    """Both proxies in one connection string."""
    return f"mongodb://{','.join(proxy.address for proxy in proxies)}/"
