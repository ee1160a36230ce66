"""A real ``tsproxy serve`` process for the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pymongo

from tests.support.ports import LOOPBACK, accepts, free_port
from tests.support.process import ChildProcess

GROWTH = os.environ.get("TSPROXY_TEST_WRITE_STRATEGY", "")
"""The ``write_strategy`` of proxies whose test does not say which; the program's default when empty."""

ACCESS = os.environ.get("TSPROXY_TEST_TIMESERIES_ACCESS", "")
"""The ``timeseries_access`` of proxies whose test does not say which; the program's default when empty."""

PROGRAM = os.environ.get("TSPROXY_TEST_PROGRAM", "")
"""The directory of an installation to test, such as ``make built`` makes; the checkout itself when empty."""


def program() -> tuple[list[str], dict[str, str]]:
    """How the tsproxy under test is started: the beginning of its command line, and what its environment needs."""
    if not PROGRAM:
        return [sys.executable, "-m", "proxy.process.cli"], {}
    # Without -P the working directory, which may be the checkout, would come first.
    return [sys.executable, "-P", "-m", "proxy.process.cli"], {"PYTHONPATH": PROGRAM}


def tsproxy(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the program under test to its end."""
    command, environment_of_program = program()
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment_of_program, **environment},
    )


class ProxyProcess(ChildProcess):
    """``tsproxy serve`` in front of ``backend``, with further flags and environment variables.

    ``backend`` is a connection string, or ``None`` for the embedded mongod.
    """

    def __init__(
        self,
        directory: Path,
        backend: str | None,
        *,
        port: int | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("tsproxy", directory / "tsproxy.log")
        self.backend = backend
        self.port = port or free_port()
        self.status_port = free_port()
        self.flags = tuple(flags)
        self.environment = dict(environment or {})

    @property
    def address(self) -> str:
        """``host:port`` of the MongoDB listener."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def uri(self) -> str:
        """The connection string for clients."""
        return f"mongodb://{self.address}/"

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A new synchronous client; the caller closes it."""
        return pymongo.MongoClient(self.uri, **{"serverSelectionTimeoutMS": 20_000, **options})

    def command(self) -> list[str]:
        """The command line."""
        command = [*program()[0], "serve", "--listen", self.address]
        command += ["--status-listen", f"{LOOPBACK}:{self.status_port}"]
        if self.backend is not None:
            command += ["--backend", self.backend]
        if GROWTH and "--write-strategy" not in self.flags:
            command += ["--write-strategy", GROWTH]
        if ACCESS and "--timeseries-access" not in self.flags:
            command += ["--timeseries-access", ACCESS]
        return [*command, *self.flags]

    def start(self, *, wait: bool = True) -> Self:
        """Start it; with ``wait`` return when it accepts clients."""
        self.spawn(self.command(), program()[1] | self.environment)
        if wait:
            self.wait_until(lambda: accepts(self.port))
        return self

    def restart(self) -> None:
        """Stop cleanly and start again on the same port."""
        self.stop()
        self.start()

    def status(self, path: str) -> tuple[int, str]:
        """HTTP status and body of ``/metrics``, ``/livez`` or ``/readyz``."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.status_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def metrics(self) -> dict[str, float]:
        """The samples of ``/metrics`` by name with labels, as printed."""
        _, text = self.status("/metrics")
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}


@contextmanager
def started(proxy: ProxyProcess) -> Iterator[ProxyProcess]:
    """``proxy``, which is stopped at the end even if it does not start."""
    try:
        yield proxy.start()
    finally:
        proxy.stop()


def ready(proxy: ProxyProcess) -> bool:
    """Whether it says that it serves."""
    with suppress(OSError):
        return proxy.status("/readyz")[0] == 200
    return False
