"""U: the queries of Q on a server with access control, as users with the ordinary role and with one right more."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bench.context import Context, attempt
from bench.processes import LOOPBACK, Mongod, Proxy, Server, running_seconds
from bench.results import Sample
from bench.settling import wait_until_compressed
from bench.targets import NATIVE, PROXY, Collection, Site, Target
from bench.workloads.queries import HOST, Query, all_queries, filled

DATABASE: Final = "bench_users"
ORDINARY, READING_BUCKETS, ACCOUNT = "ordinary", "reading_buckets", "account"
PASSWORD: Final = "bench"
FEWEST: Final = 3
"""Runs of a query in a round, however long they take."""
NAMES: Final = {NATIVE: "native", PROXY: "proxied"}
"""The collections by the target that writes them."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A user at one of the servers, and the collection that is read.

    A median of times means little on a busy machine; processor time of the servers does.
    """

    name: str
    server: Server
    user: str
    collection: str
    mongod_pids: Sequence[int]
    proxy_pids: Sequence[int] = ()

    def database(self) -> Database[Any]:
        """Its database; replies are not decoded. The caller closes the client."""
        client: pymongo.MongoClient[Any] = pymongo.MongoClient(
            LOOPBACK, self.server.port, username=self.user, password=PASSWORD, directConnection=True
        )
        return client[DATABASE]


class UserQueries:
    """U. The servers are its own: they are loaded without access control, and then started with it."""

    name = "U"

    def _chosen(self, context: Context) -> list[Query]:
        return [query for query in all_queries(context.settings.measurements) if context.settings.cases in query.name]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return len(self._chosen(context)) * 3 * context.settings.repeat

    def run(self, context: Context) -> Iterator[Sample]:
        """Load, and then all queries in turns."""
        with tempfile.TemporaryDirectory(prefix="tsproxy-users-") as directory, ExitStack() as stack:
            readers = stack.enter_context(self._readers(context, Path(directory)))
            databases = {reader.name: reader.database() for reader in readers}
            for database in databases.values():
                stack.callback(database.client.close)
            for query in self._chosen(context):
                for repeat in range(context.settings.repeat):
                    for reader in readers if repeat % 2 == 0 else reversed(readers):
                        context.say(f"U {query.name} · {reader.name}")
                        work = partial(self._measure, context, query, reader, databases[reader.name])
                        yield attempt(self.name, query.name, reader.name, repeat, work)

    @contextmanager
    def _readers(self, context: Context, directory: Path) -> Iterator[Sequence[Reader]]:
        mongod = Mongod(directory / "mongod", context.settings.binary, 1.0)
        with ExitStack() as stack:
            stack.callback(mongod.stop)
            mongod.start()
            self._load(context, mongod, directory)
            _create_users(mongod)
            mongod.restart("--auth")
            uri = f"mongodb://{ACCOUNT}:{PASSWORD}@{LOOPBACK}:{mongod.port}/?directConnection=true"
            proxy = Proxy(directory / "proxy", uri)
            stack.callback(proxy.stop)
            proxy.start()
            pids = mongod.pids, proxy.pids
            yield (
                Reader(NATIVE, mongod, ORDINARY, NAMES[NATIVE], mongod.pids),
                Reader("proxy, readWrite", proxy, ORDINARY, NAMES[PROXY], *pids),
                Reader("proxy, and buckets", proxy, READING_BUCKETS, NAMES[PROXY], *pids),
            )

    def _load(self, context: Context, mongod: Mongod, directory: Path) -> None:
        proxy = Proxy(directory / "loading", mongod.uri)
        proxy.start()
        try:
            site = Site(mongod.port, mongod.pids, proxy.port, proxy.pids)
            for target in site.targets(plain=False):
                context.say(f"U loading {target.name}")
                filled(_collection(target), context.settings.measurements)
            if not context.settings.smoke:
                wait_until_compressed(site, DATABASE)
            site.direct.close()
        finally:
            proxy.stop()

    def _measure(self, context: Context, query: Query, reader: Reader, database: Database[Any]) -> Mapping[str, float]:
        name = next(iter(query.command))
        command = {**query.command, name: reader.collection}
        documents = _run(database, command)
        times: list[float] = []
        servers = {"mongod_cpu_us": reader.mongod_pids, "proxy_cpu_us": reader.proxy_pids}
        before = {name: running_seconds(pids) for name, pids in servers.items()}
        until = time.perf_counter() + min(0.7, context.settings.seconds)
        while len(times) < FEWEST or time.perf_counter() < until:
            started = time.perf_counter()
            _run(database, command)
            times.append(time.perf_counter() - started)
        metrics = {"median_ms": statistics.median(times) * 1000, "documents": float(documents)}
        for name, pids in servers.items():
            if pids:
                metrics[name] = (running_seconds(pids) - before[name]) / len(times) * 1e6
        return metrics


def _collection(target: Target) -> Collection:
    name = NAMES[target.name]
    with target.client() as client:
        database = client[DATABASE]
        database.create_collection(name, timeseries={"timeField": "time", "metaField": "tags"})
        database[name].create_index({HOST: 1, "time": 1})
    return Collection(target, DATABASE, name)


def _run(database: Database[Any], command: Mapping[str, Any]) -> int:
    """Run a command with all its batches; returns the number of documents."""
    run = partial(database.command, codec_options=RAW)
    reply = run(dict(command))
    cursor = reply.get("cursor")
    if cursor is None:
        return len(list(reply.get("values", ())))
    found = len(list(cursor["firstBatch"]))
    while cursor["id"]:
        cursor = run({"getMore": cursor["id"], "collection": next(iter(command.values()))})["cursor"]
        found += len(list(cursor["nextBatch"]))
    return found


RAW: Final = pymongo.MongoClient(connect=False, document_class=RawBSONDocument).codec_options


def _create_users(mongod: Mongod) -> None:
    buckets = {"resource": {"db": DATABASE, "system_buckets": ""}, "actions": ["find"]}
    of_account = ["find", "insert", "update", "remove", "bypassDocumentValidation"]
    with pymongo.MongoClient[Any](mongod.uri) as client:
        admin = client.admin
        admin.command("createRole", READING_BUCKETS, privileges=[buckets], roles=[])
        privileges = [
            {"resource": {"db": "", "collection": ""}, "actions": ["listCollections"]},
            {"resource": {"db": "", "system_buckets": ""}, "actions": of_account},
        ]
        admin.command("createRole", ACCOUNT, privileges=privileges, roles=[])
        ordinary = {"role": "readWrite", "db": DATABASE}
        admin.command("createUser", ORDINARY, pwd=PASSWORD, roles=[ordinary])
        admin.command("createUser", READING_BUCKETS, pwd=PASSWORD, roles=[ordinary, READING_BUCKETS])
        admin.command("createUser", ACCOUNT, pwd=PASSWORD, roles=[ACCOUNT])
