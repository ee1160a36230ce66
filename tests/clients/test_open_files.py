"""A proxy that may open few files: clients get errors instead of waiting, and the status listener answers."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.upstream.file_limit import OWN, clients_within
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, program, started
from tests.support.raw_wire import RawClient

SOFT, HARD = 80, 120
CLIENTS = clients_within(HARD)


class FewFiles(ProxyProcess):
    """It may open ``SOFT`` files, or ``HARD`` if it asks for more."""

    def command(self) -> list[str]:
        return limited(super().command())


def limited(arguments: list[str]) -> list[str]:
    return ["/bin/bash", "-c", f'ulimit -Sn {SOFT}; ulimit -Hn {HARD}; exec "$@"', "bash", *arguments]


@pytest.fixture
def proxy(tmp_path: Path, replica_set: MongodProcess) -> Iterator[FewFiles]:
    with started(FewFiles(tmp_path, replica_set.uri)) as process:
        # The connection that found it listening is accepted before this one.
        with RawClient(process.port) as client:
            assert client.run({"ping": 1, "$db": "admin"})["ok"] == 1
        process.wait_until(lambda: process.metrics()["tsproxy_connections_open"] == 0)
        yield process


def arrived(proxy: FewFiles, stack: ExitStack) -> RawClient:
    """A client that is admitted, and has no connection to the backend.

    One after the other: for a moment, one that arrives counts twice.
    """
    client = stack.enter_context(RawClient(proxy.port))
    assert client.run({"hello": 1, "$db": "admin"})["ok"] == 1
    return client


def connected(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=5)


def test_no_more_clients_than_have_their_files(proxy: FewFiles) -> None:
    limits = Path(f"/proc/{proxy.pid}/limits")
    if limits.exists():
        assert re.search(rf"Max open files +{HARD} +{HARD} ", limits.read_text())
    assert proxy.log.count("the limit of open files is too low for max_connections") == 1
    assert f"at most {CLIENTS} clients" in proxy.log
    rejected = 'tsproxy_connections_rejected_total{reason="too_many_files"}'
    with ExitStack() as stack:
        clients = [arrived(proxy, stack) for _ in range(CLIENTS)]
        for client in clients:
            assert client.run({"ping": 1, "$db": "admin"})["ok"] == 1
        others = [stack.enter_context(connected(proxy.port)) for _ in range(150)]
        assert all(each.recv(1) == b"" for each in others)
        assert proxy.status("/livez") == (200, "ok\n")
        assert proxy.metrics()[rejected] == 150
        for client in clients:
            assert client.run({"ping": 1, "$db": "admin"})["ok"] == 1
    with proxy.client() as driver:
        assert driver.admin.command("ping")["ok"] == 1
    assert "cannot accept a connection" not in proxy.log


def test_without_files_for_the_backend_there_is_an_error_at_once(proxy: FewFiles) -> None:
    """Otherwise an unreachable primary is waited for: 30 seconds."""
    with ExitStack() as stack:
        clients = [arrived(proxy, stack) for _ in range(CLIENTS - 1)]
        busy = [stack.enter_context(connected(proxy.status_port)) for _ in range(OWN - 10)]
        began = time.monotonic()
        replies = [client.run({"ping": 1, "$db": "admin"}) for client in clients]
        assert time.monotonic() - began < 4
        refused = [reply for reply in replies if not reply["ok"]]
        assert {reply["code"] for reply in refused} == {6}
        assert all("open files" in reply["errmsg"] for reply in refused)
        for each in busy:
            each.close()


def test_the_doctor_says_so(replica_set: MongodProcess) -> None:
    arguments, environment = program()
    done = subprocess.run(
        limited([*arguments, "doctor", "--json", "--backend", replica_set.uri]),
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )
    (finding,) = (each for each in json.loads(done.stdout)["checks"] if each["check"] == "open_files")
    assert finding["severity"] == "warning"
    assert f"at most {HARD} here" in finding["text"]
