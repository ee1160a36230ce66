"""Slow commands of each way, in the log and the metrics of a real proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure, PyMongoError

from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.process import ProcessFailed
from tests.support.proxy import ProxyProcess

SECRET = "s3cret-value"
NUMBER = 918273645
BLOCKED_MS = 900
THRESHOLD_MS = 600
START = datetime(2024, 5, 18, tzinfo=UTC)
APPLICATION = "weather station"

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def slow_proxy(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy with a threshold of its own, which shows plans."""
    flags = ["--log-format", "json", "--slow-command-ms", str(THRESHOLD_MS), "--slow-command-plans", "true"]
    process = ProxyProcess(tmp_path_factory.mktemp("slow"), mongod.uri, flags=flags).start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="module")
def client(slow_proxy: ProxyProcess) -> Iterator[Client]:
    with slow_proxy.client(appname=APPLICATION, retryReads=False, retryWrites=False) as connected:
        yield connected


def lines(proxy: ProxyProcess, comment: str = "") -> list[dict[str, Any]]:
    complete, _, _ = proxy.log.rpartition("\n")
    said = [json.loads(line) for line in complete.splitlines() if line.startswith("{")]
    return [line for line in said if line["event"] == "slow command" and line.get("comment", "") == comment]


@contextmanager
def blocked(mongod: MongodProcess, *commands: str, times: int = 1) -> Iterator[None]:
    """The server holds the next of these commands for a while."""
    with failing(mongod, times, failCommands=list(commands), blockConnection=True, blockTimeMS=BLOCKED_MS):
        yield


def row(minute: int) -> dict[str, Any]:
    return {"t": START + timedelta(minutes=minute), "m": SECRET, "v": NUMBER, "nested": {"text": SECRET}}


def find(database: Any, comment: str) -> object:
    query = {"m": SECRET, "v": {"$gte": NUMBER, "$in": [NUMBER, NUMBER + 1]}}
    return list(database.rows.find(query, comment=comment))


def join(database: Any, comment: str) -> object:
    stages = [{"$match": {"m": SECRET}}, {"$lookup": {"from": "rows", "as": SECRET, "pipeline": []}}]
    return list(database.rows.aggregate(stages, comment=comment))


def insert(database: Any, comment: str) -> object:
    return database.rows.insert_many([row(5), row(6), row(7)], comment=comment)


def insert_one(database: Any, comment: str) -> object:
    return database.rows.insert_one(row(8), comment=comment)


def delete(database: Any, comment: str) -> object:
    return database.rows.delete_many({"v": NUMBER, "t": {"$gte": START + timedelta(days=1)}}, comment=comment)


WAYS: list[tuple[str, bool, Callable[[Any, str], object], str, str]] = [
    # name, whether the collection is one of measurements, what is done, the server's commands, the way
    ("find relayed", False, find, "find", "relay"),
    ("insert relayed", False, insert_one, "insert", "relay"),
    ("find", True, find, "aggregate", "translate"),
    ("aggregate", True, join, "aggregate", "translate"),
    ("delete", True, delete, "find aggregate", "translate"),
    ("inserts", True, insert, "insert update", "ingest"),
    ("insert", True, insert_one, "insert update", "ingest"),
]


@pytest.mark.parametrize("before", [0, 4], ids=["parsed", "recognised"])
@pytest.mark.parametrize(("name", "measurements", "act", "held", "way"), WAYS, ids=[each[0] for each in WAYS])
def test_a_slow_command_has_one_line(
    mongod: MongodProcess,
    slow_proxy: ProxyProcess,
    client: Client,
    db_name: str,
    name: str,
    measurements: bool,
    act: Callable[[Any, str], object],
    held: str,
    way: str,
    before: int,
) -> None:
    database, comment = client[db_name], f"{name} after {before} on {db_name}"
    options: dict[str, Any] = {"timeseries": {"timeField": "t", "metaField": "m"}} if measurements else {}
    database.create_collection("rows", **options)
    database.rows.insert_many([row(minute) for minute in range(3)])
    for _ in range(before):
        act(database, comment)
    assert lines(slow_proxy, comment) == []
    counted = f'tsproxy_slow_commands_by_comment_total{{comment="{comment[:64]}"}}'
    assert counted not in slow_proxy.metrics()
    for _ in range(5):
        # A proxy's own question to the server may be the one that is held.
        with blocked(mongod, *held.split()):
            act(database, comment)
        with suppress(ProcessFailed):
            slow_proxy.wait_until(lambda: lines(slow_proxy, comment) != [], timeout_seconds=5)
            break
    (line,) = lines(slow_proxy, comment)
    assert line["namespace"] == f"{db_name}.rows"
    assert (line["command"], line["way"], line["application"]) == (
        name.split(maxsplit=1)[0].rstrip("s"),
        way,
        APPLICATION,
    )
    assert line["outcome"] == "ok"
    parts = {key: value for key, value in line.items() if key.endswith("_ms") and key != "duration_ms"}
    assert sum(parts.values()) == pytest.approx(line["duration_ms"], abs=0.01)
    assert line["duration_ms"] >= line["backend_ms"] >= BLOCKED_MS * 0.99
    assert parts["proxy_ms"] < 100
    text = json.dumps({key: value for key, value in line.items() if key != "timestamp"})
    assert SECRET not in text
    assert str(NUMBER) not in text
    assert "2024" not in text.replace(db_name, "")
    assert "$" in line["shape"] or "documents: [{" in line["shape"]
    if way == "translate":
        assert "control" in "".join(line["rewritten"]) or "$match: {meta: string}" in "".join(line["rewritten"])
    assert slow_proxy.metrics()[counted] == 1


def test_sizes_and_shape_of_an_insert(
    mongod: MongodProcess, slow_proxy: ProxyProcess, client: Client, db_name: str
) -> None:
    client[db_name].create_collection("rows", timeseries={"timeField": "t", "metaField": "m"})
    with blocked(mongod, "insert"):
        client[db_name].rows.insert_many([{**row(n), "_id": n} for n in range(3)], comment=db_name)
    slow_proxy.wait_until(lambda: lines(slow_proxy, db_name) != [])
    (line,) = lines(slow_proxy, db_name)
    document = "{_id: int, t: date, m: string, v: int, nested: {text: string}}"
    assert line["shape"] == f"{{insert: string, ordered: bool, documents: [{document}, … 2 more]}}"
    assert line["documents_in"] == 3
    assert line["bytes_in"] > 3 * len(document)


def test_sizes_of_a_read(mongod: MongodProcess, slow_proxy: ProxyProcess, client: Client, db_name: str) -> None:
    database = client[db_name]
    database.plain.insert_many([{"_id": n} for n in range(7)])
    with blocked(mongod, "find"):
        assert len(list(database.plain.find(comment=db_name))) == 7
    slow_proxy.wait_until(lambda: lines(slow_proxy, db_name) != [])
    (line,) = lines(slow_proxy, db_name)
    assert (line["documents_out"], "documents_in" in line) == (7, False)
    assert line["bytes_out"] > 7 * 14


def test_errors_have_their_code(mongod: MongodProcess, slow_proxy: ProxyProcess, client: Client, db_name: str) -> None:
    database = client[db_name]
    database.plain.insert_one({"_id": SECRET})
    with blocked(mongod, "insert"), pytest.raises(PyMongoError):
        database.plain.insert_one({"_id": SECRET}, comment=f"{db_name} duplicate")
    with blocked(mongod, "find"), pytest.raises(OperationFailure):
        database.command({"find": "plain", "filter": {"$nosuch": 1}, "comment": f"{db_name} bad"})
    slow_proxy.wait_until(lambda: lines(slow_proxy, f"{db_name} bad") != [])
    (duplicate,), (bad,) = lines(slow_proxy, f"{db_name} duplicate"), lines(slow_proxy, f"{db_name} bad")
    assert (duplicate["outcome"], duplicate["code"], duplicate["code_name"]) == ("write_error", 11000, "DuplicateKey")
    assert (bad["outcome"], bad["code"], bad["code_name"]) == ("error", 2, "BadValue")
    assert SECRET not in json.dumps(duplicate)


def test_a_client_that_does_not_wait_for_its_reply(
    mongod: MongodProcess, slow_proxy: ProxyProcess, client: Client, db_name: str
) -> None:
    client[db_name].plain.insert_one({})
    with blocked(mongod, "find"), slow_proxy.client(socketTimeoutMS=THRESHOLD_MS + 50, retryReads=False) as hasty:
        with pytest.raises(PyMongoError):
            hasty[db_name].plain.find_one(comment=db_name)
        slow_proxy.wait_until(lambda: lines(slow_proxy, db_name) != [])
    (line,) = lines(slow_proxy, db_name)
    assert (line["outcome"], line["namespace"]) == ("disconnected", f"{db_name}.plain")


def test_comments_of_any_type_are_one_line(
    mongod: MongodProcess, slow_proxy: ProxyProcess, client: Client, db_name: str
) -> None:
    client[db_name].plain.insert_one({})
    for comment in ({"job": db_name, "n": 1}, f"{db_name}\nsecond line", db_name + "x" * 10_000):
        with blocked(mongod, "find"):
            client[db_name].plain.find_one(comment=comment)
    slow_proxy.wait_until(lambda: f"{db_name}xxx" in slow_proxy.log)
    assert len(lines(slow_proxy, f'{{"job": "{db_name}", "n": 1}}')) == 1
    assert len(lines(slow_proxy, f"{db_name}\\nsecond line")) == 1
    assert max(map(len, slow_proxy.log.splitlines())) < 10_000


def test_hello_and_waiting_for_changes_are_not_slow(
    replica_set: MongodProcess, tmp_path_factory: pytest.TempPathFactory, db_name: str
) -> None:
    flags = ["--log-format", "json", "--slow-command-ms", "200"]
    process = ProxyProcess(tmp_path_factory.mktemp("waits"), replica_set.uri, flags=flags).start()
    try:
        with (
            process.client(heartbeatFrequencyMS=500) as client,
            client[db_name].plain.watch(max_await_time_ms=400) as changes,
        ):
            for _ in range(4):
                assert changes.try_next() is None
            hello = client.admin.command("hello")
            client.admin.command({"hello": 1, "topologyVersion": hello["topologyVersion"], "maxAwaitTimeMS": 500})
        said = [json.loads(line) for line in process.log.splitlines() if line.startswith("{")]
        assert [line for line in said if line["event"] == "slow command"] == []
    finally:
        process.stop()


def test_ten_thousand_comments_are_bounded(
    mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory, db_name: str
) -> None:
    """Every command is slow; each is counted once, and few are described."""
    flags = ["--log-format", "json", "--slow-command-ms", "0"]
    process = ProxyProcess(tmp_path_factory.mktemp("all"), mongod.uri, flags=flags).start()
    try:
        with process.client() as client:
            client[db_name].plain.insert_one({})
            for number in range(10_000):
                client[db_name].command({"count": "plain", "comment": f"number {number}"})
        metrics = process.metrics()
        assert metrics['tsproxy_slow_commands_total{command="count",way="relay"}'] == 10_000
        by_comment = {
            name: n for name, n in metrics.items() if name.startswith("tsproxy_slow_commands_by_comment_total")
        }
        assert len(by_comment) == 101
        total = sum(n for name, n in metrics.items() if name.startswith("tsproxy_slow_commands_total"))
        # On a fast machine there are more in a second than are looked at; the others count without their comments.
        assert 10_000 <= sum(by_comment.values()) <= total
        logged = len([line for line in process.log.splitlines() if '"slow command"' in line])
        assert 100 <= logged < 5_000
        assert metrics["tsproxy_slow_commands_not_logged_total"] == total - logged
        assert metrics["tsproxy_slow_threshold_seconds"] == 0
    finally:
        process.stop()
