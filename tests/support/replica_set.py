"""A replica set of three real mongods."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pymongo
from pymongo.errors import PyMongoError

from tests.support.mongod import MongodProcess


class ThreeNodes:
    """Three members that elect another primary within about a second."""

    def __init__(self, directory: Path) -> None:
        self.members = [
            MongodProcess(directory / f"node{number}", arguments=("--replSet", "rs3", "--oplogSize", "128"))
            for number in range(3)
        ]

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        self._on(
            self.members[0],
            {
                "replSetInitiate": {
                    "_id": "rs3",
                    "members": [{"_id": n, "host": member.address} for n, member in enumerate(self.members)],
                    "settings": {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 300},
                }
            },
        )
        self.primary()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.remove()

    @property
    def uri(self) -> str:
        """The connection string with all members."""
        hosts = ",".join(member.address for member in self.members)
        return f"mongodb://{hosts}/?replicaSet=rs3"

    def client(self) -> pymongo.MongoClient[dict[str, Any]]:
        """A new client; the caller closes it."""
        return pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=30_000)

    def primary(self, timeout_seconds: float = 60) -> MongodProcess:
        """The member that is primary, waiting for one."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            for member in self.members:
                if member.running and (self._on(member, {"hello": 1}) or {}).get("isWritablePrimary"):
                    return member
            time.sleep(0.1)
        raise AssertionError("no primary")

    def step_down(self) -> None:
        """The primary hands over."""
        self._on(self.primary(), {"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5})

    @staticmethod
    def _on(member: MongodProcess, command: dict[str, Any]) -> dict[str, Any] | None:
        with pymongo.MongoClient[dict[str, Any]](
            f"mongodb://{member.address}/?directConnection=true", serverSelectionTimeoutMS=500
        ) as client:
            try:
                return client.admin.command(command)
            except PyMongoError:
                return None
