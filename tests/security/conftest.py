"""Servers with access control, shared by the tests of this folder."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.access import GuardedMongod
from tests.support.proxy import ProxyProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION


@pytest.fixture(scope="session")
def guarded(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[GuardedMongod]:
    """A standalone mongod with access control on; ``guarded_set`` where it cannot be alone."""
    chosen = server(MONGOD_VERSION)
    if not chosen.runs_alone:
        yield request.getfixturevalue("guarded_set")
        return
    standalone = GuardedMongod(
        server_directory / "guarded",
        binary=chosen.binary,
        environment=chosen.environment,
        arguments=["--auth"],
    )
    try:
        standalone.start()
        standalone.create_accounts()
        yield standalone
    finally:
        standalone.remove()


@pytest.fixture(scope="session")
def guarded_proxy(
    request: pytest.FixtureRequest, server_directory: Path, guarded: GuardedMongod
) -> Iterator[ProxyProcess]:
    """A tsproxy in front of ``guarded``, with the documented least role and roles that age fast."""
    if guarded.replica_set:
        yield request.getfixturevalue("guarded_set_proxy")
        return
    process = ProxyProcess(
        server_directory / "guarded_proxy", guarded.account_uri, flags=["--roles-refresh-seconds", "1"]
    )
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture(scope="session")
def guarded_set(server_directory: Path) -> Iterator[GuardedMongod]:
    """A replica set of one mongod with access control on: writes can be retried."""
    chosen = server(MONGOD_VERSION)
    folder = server_directory / "guarded_set"
    folder.mkdir()
    key = folder / "key"
    key.write_text(base64.b64encode(os.urandom(90)).decode())
    key.chmod(0o600)
    member = GuardedMongod(
        folder / "member",
        binary=chosen.binary,
        environment=chosen.environment,
        replica_set="rs0",
        arguments=["--keyFile", str(key)],
    )
    try:
        member.start()
        member.create_accounts()
        yield member
    finally:
        member.remove()


@pytest.fixture(scope="session")
def guarded_set_proxy(server_directory: Path, guarded_set: GuardedMongod) -> Iterator[ProxyProcess]:
    """A tsproxy in front of ``guarded_set``, with the documented least role; tests may restart it."""
    process = ProxyProcess(
        server_directory / "guarded_set_proxy", guarded_set.account_uri, flags=["--roles-refresh-seconds", "1"]
    )
    try:
        yield process.start()
    finally:
        process.stop()
