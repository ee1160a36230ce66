"""Spans of commands and commits of a real proxy, as a collector gets them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure, WriteError

from tests.support.collector import CLIENT, INTERNAL, Collected, Collector
from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.proxy import PROGRAM, ProxyProcess, tsproxy

START = datetime(2024, 5, 18, tzinfo=UTC)
SECRET = "s3cret-value"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
CLIENTS = 16

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as listening:
        yield listening


@pytest.fixture(scope="module")
def traced(mongod: MongodProcess, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A proxy that traces every command."""
    directory = tmp_path_factory.mktemp("traced")
    headers = directory / "headers"
    headers.write_text("# of the collector\n\nX-Api-Key = k3y=\n")
    flags = ["--tracing", "true", "--trace-endpoint", collector.url, "--trace-headers-file", str(headers)]
    process = ProxyProcess(directory, mongod.uri, flags=flags, environment=QUICK).start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def database(traced: ProxyProcess, db_name: str, mongod: MongodProcess) -> Iterator[Any]:
    with traced.client(retryReads=False, retryWrites=False) as client:
        client[db_name].create_collection("rows", timeseries={"timeField": "t", "metaField": "m"})
        yield client[db_name]


def row(value: int = 1, meta: object = SECRET) -> dict[str, Any]:
    return {"t": START, "m": meta, "v": value, "text": SECRET}


def spans_of(collector: Collector, db_name: str, name: str) -> list[Collected]:
    found = [span for span in collector.commands(name) if span.attributes.get("db.namespace") == db_name]
    return sorted(found, key=lambda span: span.started)


def insert(database: Any) -> object:
    return database.rows.insert_one(row())


def insert_many(database: Any) -> object:
    return database.rows.insert_many([row(1), row(2)])


def find(database: Any) -> object:
    return list(database.rows.find({"m": SECRET}))


def more(database: Any) -> object:
    return list(database.rows.find({"m": SECRET}, batch_size=2))


def delete(database: Any) -> object:
    return database.rows.delete_many({"v": 12, "t": {"$lt": START}})


def relayed(database: Any) -> object:
    return list(database.others.find({"m": SECRET}))


WAYS: list[tuple[Callable[[Any], object], str, str, set[str], set[str]]] = [
    # what is done, the span, the way, the parts if the command is parsed, and if it is recognised
    (insert, "insert rows", "ingest", {"commit"}, {"commit"}),
    (insert_many, "insert rows", "ingest", {"commit"}, {"commit"}),
    (find, "find rows", "translate", {"rewrite", "backend"}, {"backend"}),
    (more, "getMore rows", "translate", {"rewrite", "backend"}, {"backend"}),
    (delete, "delete rows", "translate", {"rewrite", "backend"}, {"rewrite", "backend"}),
    (relayed, "find others", "relay", {"backend"}, {"backend"}),
]


@pytest.mark.parametrize(("act", "name", "way", "parsed", "recognised"), WAYS, ids=[each[0].__name__ for each in WAYS])
def test_every_command_has_a_span_with_its_parts(
    collector: Collector,
    traced: ProxyProcess,
    mongod: MongodProcess,
    database: Any,
    act: Callable[[Any], object],
    name: str,
    way: str,
    parsed: set[str],
    recognised: set[str],
) -> None:
    database.rows.insert_many([row(value) for value in range(3)])
    collector.wait(lambda: spans_of(collector, database.name, "insert rows"))
    before = len(spans_of(collector, database.name, name))
    for _ in range(5):
        act(database)
    collector.wait(lambda: len(spans_of(collector, database.name, name)) >= before + 5)
    for span, parts in zip(spans_of(collector, database.name, name)[before:][:5:4], (parsed, recognised), strict=True):
        collector.wait(lambda span=span, parts=parts: parts <= {each.name for each in collector.children(span)})
        children = collector.children(span)
        assert {each.name for each in children} - {"backend"} == parts - {"backend"}
        for child in children:
            assert child.kind == (CLIENT if child.name == "backend" else INTERNAL)
            assert span.started <= child.started <= child.ended <= span.ended + 1_000
        assert span.parent == ""
        attributes = span.attributes
        assert attributes["db.system.name"] == "mongodb"
        assert attributes["db.operation.name"] == name.split(maxsplit=1)[0]
        assert attributes["db.collection.name"] == name.split()[1]
        assert attributes["client.address"] == LOOPBACK
        assert (attributes["server.address"], attributes["server.port"]) == (LOOPBACK, traced.port)
        assert attributes["tsproxy.way"] == way
        assert attributes.get("db.operation.batch.size") == (2 if act is insert_many else None)
        waits = [each for each in children if each.name == "backend"]
        assert all(each.attributes["server.port"] == mongod.port for each in waits)
    assert collector.spans[0].service["service.name"] == "tsproxy"
    assert collector.headers[-1]["x-api-key"] == "k3y="
    said = [value for span in list(collector.spans) for value in span.attributes.values()]
    assert [value for value in said if SECRET in str(value)] == []


@contextmanager
def blocked(mongod: MongodProcess, *commands: str, times: int) -> Iterator[None]:
    """The server holds the next of these commands for a while."""
    with failing(mongod, times, failCommands=list(commands), blockConnection=True, blockTimeMS=400):
        yield


def test_inserts_of_one_commit_are_linked_with_its_span(
    collector: Collector, traced: ProxyProcess, mongod: MongodProcess, database: Any
) -> None:
    rounds = 5
    insert(database)
    barrier = threading.Barrier(CLIENTS)

    def load(number: int) -> None:
        with traced.client() as client:
            client.admin.command("ping")
            barrier.wait()
            for value in range(rounds):
                client[database.name].rows.insert_one(row(value, number))

    threads = [threading.Thread(target=load, args=(number,)) for number in range(CLIENTS)]
    with blocked(mongod, "insert", "update", times=2):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = CLIENTS * rounds + 1
    collector.wait(lambda: len(spans_of(collector, database.name, "insert rows")) == expected)
    commits = {span.key: span for span in collector.spans if span.name == "commit rows"}
    inserts = {span.key: span for span in spans_of(collector, database.name, "insert rows")}
    shared: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for span in inserts.values():
        (link,) = span.links
        shared.setdefault(link, []).append(span.key)
        (part,) = [each for each in collector.children(span) if each.name == "commit"]
        assert part.links == (link,)
    collector.wait(lambda: set(shared) <= {span.key for span in collector.spans})
    commits = {span.key: span for span in collector.spans if span.name == "commit rows"}
    for key, of_commit in shared.items():
        commit = commits[key]
        assert commit.parent == ""
        assert commit.kind == CLIENT
        assert sorted(commit.links) == sorted(of_commit)
        assert commit.attributes["tsproxy.commit.inserts"] == len(of_commit)
        assert commit.attributes["server.port"] == mongod.port
    assert max(map(len, shared.values())) > 1


def test_an_insert_is_linked_with_each_of_its_commits(collector: Collector, database: Any) -> None:
    database.rows.insert_many([row(value, value) for value in range(900)])
    collector.wait(lambda: spans_of(collector, database.name, "insert rows"))
    (span,) = spans_of(collector, database.name, "insert rows")
    assert len(span.links) > 1
    assert len(set(span.links)) == len(span.links)
    assert span.attributes["db.operation.batch.size"] == 900


def test_errors(collector: Collector, database: Any) -> None:
    with pytest.raises(WriteError):
        database.rows.insert_one({"m": SECRET})
    with pytest.raises(OperationFailure):
        list(database.rows.aggregate([{"$nonsense": SECRET}]))
    with pytest.raises(OperationFailure):
        database.command("n" * 500)
    for name, code, kind in (
        ("insert rows", "2", "BadValue"),
        ("aggregate rows", "40324", "Location40324"),
        (f"other {database.name}", "59", "CommandNotFound"),
    ):
        collector.wait(lambda name=name: spans_of(collector, database.name, name))
        (span,) = spans_of(collector, database.name, name)
        assert span.is_error
        assert span.attributes["db.response.status_code"] == code
        assert span.attributes["error.type"] == kind
        assert len(span.attributes["db.operation.name"]) < 300


def test_a_commit_that_fails_is_an_error(collector: Collector, mongod: MongodProcess, database: Any) -> None:
    data = {"failCommands": ["insert"], "errorCode": 13}
    mongod.shared_client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
    with pytest.raises(OperationFailure):
        insert(database)

    def failed() -> list[Collected]:
        commits = [span for span in list(collector.spans) if span.name == "commit rows"]
        return [span for span in commits if span.attributes["db.namespace"] == database.name]

    collector.wait(failed)
    (span,) = failed()
    assert span.is_error
    assert span.attributes["error.type"] == "Unauthorized"


COMMENTED: list[tuple[str, str, dict[str, Any]]] = [
    ("find", "rows", {"filter": {"m": SECRET}}),
    ("aggregate", "rows", {"pipeline": [{"$match": {"m": SECRET}}], "cursor": {}}),
    ("count", "rows", {"query": {"m": SECRET}}),
    ("distinct", "rows", {"key": "m"}),
    ("insert", "rows", {"documents": [row()]}),
    ("delete", "rows", {"deletes": [{"q": {"v": 12}, "limit": 0}]}),
    ("update", "rows", {"updates": [{"q": {"m": SECRET}, "u": {"$set": {"m": "n"}}, "multi": True}]}),
    ("find", "others", {"filter": {"m": SECRET}}),
    ("insert", "others", {"documents": [row()]}),
    ("update", "others", {"updates": [{"q": {"m": SECRET}, "u": {"$set": {"m": "n"}}}]}),
]
OF_ALL_CLIENTS = {"insert"}
"""On measurements these reach the server in commands of the proxy, which combine those of all clients."""


@pytest.mark.parametrize(("name", "collection", "fields"), COMMENTED, ids=[f"{a} {b}" for a, b, _ in COMMENTED])
@pytest.mark.parametrize(
    "comment", [SAMPLED, {"traceparent": SAMPLED, "tracestate": "vendor=1"}], ids=["text", "document"]
)
def test_the_trace_context_of_a_client_is_the_parent_and_reaches_the_server(
    collector: Collector,
    mongod: MongodProcess,
    database: Any,
    name: str,
    collection: str,
    fields: dict[str, Any],
    comment: object,
) -> None:
    native, span_name = mongod.shared_client[database.name], f"{name} {collection}"
    native.others.insert_one(row())
    native.command("profile", 2)
    # The server itself accepts the comment on this command.
    native.command({name: "others", **fields, "comment": comment})
    for _ in range(3):
        database.command({name: collection, **fields, "comment": comment})
    native.command("profile", 0)
    collector.wait(lambda: len(spans_of(collector, database.name, span_name)) == 3)
    for span in spans_of(collector, database.name, span_name):
        assert (span.trace, span.parent) == (TRACE, PARENT)
    if collection == "rows" and name not in OF_ALL_CLIENTS:
        profiled = native["system.profile"].find({"command.comment": comment, "ns": f"{database.name}.others"})
        direct = len(list(profiled))
        through = list(native["system.profile"].find({"command.comment": comment}))
        assert len(through) >= direct + 3, [each["command"] for each in native["system.profile"].find()]


def test_a_get_more_has_the_trace_of_its_find(collector: Collector, database: Any) -> None:
    database.rows.insert_many([row(value) for value in range(3)])
    list(database.rows.find({"m": SECRET}, batch_size=2, comment=SAMPLED))
    collector.wait(lambda: spans_of(collector, database.name, "getMore rows"))
    (span,) = spans_of(collector, database.name, "getMore rows")
    assert (span.trace, span.parent) == (TRACE, PARENT)


def test_the_client_decides_what_is_recorded(
    collector: Collector, mongod: MongodProcess, db_name: str, tmp_path: Path
) -> None:
    """Without a decision, the ratio does. All spans are exported when the proxy stops."""
    flags = ["--tracing", "true", "--trace-endpoint", collector.url, "--trace-ratio", "0"]
    process = ProxyProcess(tmp_path, mongod.uri, flags=flags).start()
    try:
        with process.client() as client:
            others = client[db_name].others
            for comment in (None, "a comment", NOT_SAMPLED, SAMPLED.replace(TRACE, "0" * 32), SAMPLED):
                list(others.find({}, comment=comment))
    finally:
        process.stop()
    (span,) = spans_of(collector, db_name, "find others")
    assert (span.trace, span.parent) == (TRACE, PARENT)


def test_an_insert_without_a_record_has_no_commit(
    collector: Collector, mongod: MongodProcess, db_name: str, tmp_path: Path
) -> None:
    flags = ["--tracing", "true", "--trace-endpoint", collector.url, "--trace-ratio", "0"]
    process = ProxyProcess(tmp_path, mongod.uri, flags=flags).start()
    try:
        with process.client() as client:
            client[db_name].create_collection("rows", timeseries={"timeField": "t", "metaField": "m"})
            insert(client[db_name])
            client[db_name].rows.insert_one(row(), comment=SAMPLED)
    finally:
        process.stop()
    (span,) = spans_of(collector, db_name, "insert rows")
    commits = [
        each for each in collector.spans if each.name == "commit rows" and each.attributes["db.namespace"] == db_name
    ]
    assert [(each.key, each.links) for each in commits] == [(span.links[0], (span.key,))]


def ping(client: Client, count: int) -> float:
    """The longest of ``count`` commands."""
    longest_seconds = 0.0
    for _ in range(count):
        since_seconds = time.perf_counter()
        client.admin.command("ping")
        longest_seconds = max(longest_seconds, time.perf_counter() - since_seconds)
    return longest_seconds


def test_a_collector_that_hangs_affects_no_client(mongod: MongodProcess, tmp_path: Path) -> None:
    environment = {"OTEL_BSP_MAX_QUEUE_SIZE": "32", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8", **QUICK}
    with Collector() as hanging:
        hanging.hangs.set()
        flags = ["--tracing", "true", "--trace-endpoint", hanging.url, "--shutdown-grace-seconds", "0"]
        process = ProxyProcess(tmp_path, mongod.uri, flags=flags, environment=environment).start()
        try:
            with process.client() as client:
                longest_seconds = ping(client, 200)
                metrics = process.metrics()
        finally:
            since_seconds = time.monotonic()
            process.stop()
        assert time.monotonic() - since_seconds < 8
    assert longest_seconds < 2
    assert metrics['tsproxy_trace_spans_dropped_total{reason="queue_full"}'] >= 100
    assert metrics["tsproxy_trace_spans_waiting"] == 32
    assert metrics["tsproxy_trace_spans_total"] == 0
    assert "spans were not exported before the stop" in process.log


def test_a_collector_that_is_down_affects_no_client(mongod: MongodProcess, tmp_path: Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0.2", **QUICK}
    flags = ["--tracing", "true", "--trace-endpoint", f"http://{LOOPBACK}:{free_port()}/v1/traces"]
    process = ProxyProcess(tmp_path, mongod.uri, flags=flags, environment=environment).start()
    name = 'tsproxy_trace_spans_dropped_total{reason="export_failed"}'
    try:
        with process.client() as client:
            assert ping(client, 20) < 2
            process.wait_until(lambda: process.metrics()[name] >= 1)
    finally:
        process.stop()
    lines = [line for line in process.log.splitlines() if "export" in line.lower() and "tracing" not in line]
    assert len([line for line in lines if "spans cannot be exported" in line]) == 1
    assert len(lines) <= 2, lines


@pytest.mark.parametrize("command", ["check-config", "serve"])
def test_without_its_packages_tracing_is_refused(tmp_path: Path, command: str) -> None:
    """An installation without the extra: a package of this name that has nothing in it hides the real one."""
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").touch()
    ended = tsproxy(command, "--tracing", "true", PYTHONPATH=f"{tmp_path}:{PROGRAM}" if PROGRAM else str(tmp_path))
    assert ended.returncode == 2
    assert "tracing = True" in ended.stderr
    assert "pip install 'tsproxy[otel]'" in ended.stderr
    assert tsproxy("check-config", PYTHONPATH=f"{tmp_path}:{PROGRAM}" if PROGRAM else str(tmp_path)).returncode == 0
