"""What the log tells of clients that were turned away."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pymongo
import pytest
from pymongo.errors import OperationFailure

from tests.support.access import GuardedMongod
from tests.support.proxy import ProxyProcess


def test_logins_that_fail_and_connections_that_are_rejected(guarded: GuardedMongod, tmp_path: Path) -> None:
    flags = ["--max-connections-per-address", "4", "--log-level", "debug"]
    proxy = ProxyProcess(tmp_path, guarded.account_uri, flags=flags).start()
    try:
        client = pymongo.MongoClient[dict[str, object]](proxy.uri, username="nobody", password="wrong")
        with client, pytest.raises(OperationFailure):
            client.admin.command("ping")
        proxy.wait_until(lambda: "login failed" in proxy.log)
        assert "127.0.0.1" in proxy.log.partition("login failed")[2].partition("\n")[0]
        assert "client connected" in proxy.log
        with ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            proxy.wait_until(lambda: "client connection rejected" in proxy.log)
        first = proxy.log.splitlines()[0]
        for part in ("starting", "version=", f"pid={proxy.pid}", "max_connections_per_address"):
            assert part in first
        assert "mongodb://tsproxy:***@" in first
    finally:
        proxy.stop()
