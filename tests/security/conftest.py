"""Servers with access control, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.access import GuardedMongod
from tests.support.proxy import ProxyProcess


@pytest.fixture(scope="session")
def guarded(server_directory: Path) -> Iterator[GuardedMongod]:
    """A standalone mongod with access control on."""
    server = GuardedMongod(server_directory / "guarded", arguments=["--auth"])
    try:
        server.start()
        server.create_accounts()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def guarded_proxy(server_directory: Path, guarded: GuardedMongod) -> Iterator[ProxyProcess]:
    """A tsproxy in front of ``guarded``, with the documented least role and roles that age fast."""
    server = ProxyProcess(
        server_directory / "guarded_proxy", guarded.account_uri, flags=["--roles-refresh-seconds", "1"]
    )
    try:
        yield server.start()
    finally:
        server.stop()
