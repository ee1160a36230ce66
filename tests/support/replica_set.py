"""A replica set of several mongods on this machine, with elections that do not take long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pymongo
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from tests.support.mongod import MongodProcess

NOT_CAUGHT_UP = 262


class Member(MongodProcess):
    """One server of a set; the set initiates it."""

    def _initiate(self) -> None:
        """The whole set is initiated at once, by ``ReplicaSet``."""


class ReplicaSet:
    """``size`` members; the first is preferred as primary."""

    def __init__(
        self, directory: Path, size: int = 3, name: str = "rs3", *, arguments: Sequence[str] = (), login: str = ""
    ) -> None:
        """``login`` is ``user:password@`` of an administrator, for a set with access control."""
        self.name = name
        self.login = login
        self.members = [
            Member(directory / f"member{number}", replica_set=name, arguments=arguments) for number in range(size)
        ]
        self._client: pymongo.MongoClient[dict[str, Any]] | None = None

    @property
    def uri(self) -> str:
        """All members and the set's name."""
        return f"mongodb://{self.login}{','.join(member.address for member in self.members)}/?replicaSet={self.name}"

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A new client straight to the set; the caller closes it."""
        return pymongo.MongoClient(self.uri, **{"serverSelectionTimeoutMS": 30_000, **options})

    def start(self) -> Self:
        """Start every member and wait for the primary and its secondaries."""
        for member in self.members:
            member.start()
        config = {
            "_id": self.name,
            "members": [
                {"_id": number, "host": member.address, "priority": 2 if number == 0 else 1}
                for number, member in enumerate(self.members)
            ],
            "settings": {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 300, "catchUpTimeoutMillis": 1000},
        }
        first = self.members[0]
        with pymongo.MongoClient[dict[str, Any]](f"mongodb://{first.address}/?directConnection=true") as client:
            client.admin.command("replSetInitiate", config)
        first.wait_until(lambda: self.states().count("SECONDARY") == len(self.members) - 1 and self.primary is not None)
        return self

    def states(self) -> list[str]:
        """What each member that answers says it is."""
        return [state for member in self.members if member.running and (state := self._state(member))]

    @staticmethod
    def _state(member: MongodProcess) -> str:
        uri = f"mongodb://{member.address}/?directConnection=true"
        with pymongo.MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=500) as client:
            try:
                hello = client.admin.command("hello")
            except PyMongoError:
                return ""
        return "PRIMARY" if hello.get("isWritablePrimary") else "SECONDARY" if hello.get("secondary") else "OTHER"

    @property
    def primary(self) -> MongodProcess | None:
        """The member that is primary now."""
        return next((each for each in self.members if each.running and self._state(each) == "PRIMARY"), None)

    def await_primary(self, other_than: MongodProcess | None = None) -> MongodProcess:
        """Wait until there is a primary."""
        found: list[MongodProcess] = []

        def elected() -> bool:
            primary = self.primary
            if primary is None or primary is other_than:
                return False
            found.append(primary)
            return True

        next(member for member in self.members if member.running).wait_until(elected)
        return found[-1]

    def step_down(self, seconds: int = 10) -> None:
        """Make the primary a secondary for a while; again if no secondary has caught up or another member took over."""
        for attempts_left in reversed(range(5)):
            with self.client() as client:
                try:
                    client.admin.command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=5)
                except NotPrimaryError:
                    if not attempts_left:
                        raise
                except OperationFailure as error:
                    if error.code != NOT_CAUGHT_UP or not attempts_left:
                        raise
                else:
                    return

    def heal(self) -> None:
        """Start what was killed; wait until all are well."""
        for member in self.members:
            if not member.running:
                member.start()
        self.members[0].wait_until(
            lambda: sorted(self.states()) == ["PRIMARY", *["SECONDARY"] * (len(self.members) - 1)]
        )

    def remove(self) -> None:
        """End every member and delete its data; a clean stop would look for a successor for a long time."""
        for member in self.members:
            if member.running:
                member.kill()
            member.remove()
