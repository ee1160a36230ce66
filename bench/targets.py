"""What is measured: the same commands against the proxy and against the database alone."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymongo
from pymongo.database import Database

from bench.messages import DocumentShape

Document = dict[str, Any]
NATIVE, PLAIN, PROXY = "native", "plain", "proxy"


@dataclass(frozen=True)
class Target:
    """Where a round's commands go, and into what kind of collection."""

    name: str
    port: int
    time_series: bool
    through_proxy: bool = False

    def client(self) -> pymongo.MongoClient[Document]:
        """A client of this target; the caller closes it."""
        return pymongo.MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=20_000)


@dataclass(frozen=True)
class Collection:
    """A fresh collection on a target."""

    target: Target
    database: str
    name: str


@dataclass
class Site:
    """The servers of one run: the mongod, and the proxy where there is one."""

    mongod_port: int
    mongod_pids: list[int]
    proxy_port: int | None = None
    proxy_pids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.direct: pymongo.MongoClient[Document] = pymongo.MongoClient(
            "127.0.0.1", self.mongod_port, directConnection=True
        )

    def targets(self, *, plain: bool = True) -> list[Target]:
        """Native, plain where it is wanted, and the proxy where there is one."""
        found = [Target(NATIVE, self.mongod_port, time_series=True)]
        if plain:
            found.append(Target(PLAIN, self.mongod_port, time_series=False))
        if self.proxy_port is not None:
            found.append(Target(PROXY, self.proxy_port, time_series=True, through_proxy=True))
        return found

    def relay_targets(self) -> list[Target]:
        """For ordinary collections: the same with and without the proxy."""
        found = [Target("direct", self.mongod_port, time_series=False)]
        if self.proxy_port is not None:
            found.append(Target(PROXY, self.proxy_port, time_series=False, through_proxy=True))
        return found

    def pids(self) -> list[int]:
        """All servers."""
        return [*self.mongod_pids, *self.proxy_pids]

    def command_counts(self) -> Mapping[str, int]:
        """How often each command reached the mongod, and how many statements of each kind."""
        status = self.direct.admin.command("serverStatus")
        counts = {
            name: int(numbers["total"])
            for name, numbers in status["metrics"]["commands"].items()
            if isinstance(numbers, Mapping) and "total" in numbers
        }
        return {**counts, **{f"statements.{kind}": int(count) for kind, count in status["opcounters"].items()}}

    def bucket_count(self, collection: Collection) -> int:
        """Stored buckets, looked up at the mongod itself."""
        database = self.direct[collection.database]
        name = "system.buckets." + collection.name
        return int(database.command("count", name)["n"])


@contextmanager
def fresh_collection(target: Target, shape: DocumentShape, **options: Any) -> Iterator[Collection]:
    """A collection for ``shape`` in a database of its own; dropped at the end."""
    database_name = f"bench_{target.name}_{secrets.token_hex(4)}"
    with target.client() as client:
        database: Database[Document] = client[database_name]
        if target.time_series:
            database.create_collection(
                shape.name, timeseries={"timeField": shape.time_field, "metaField": shape.meta_field}, **options
            )
        else:
            database.create_collection(shape.name)
        try:
            yield Collection(target, database_name, shape.name)
        finally:
            client.drop_database(database_name)
