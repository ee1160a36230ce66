"""A server without time-series collections, MongoDB 4.4.2 with access control: what is said of it, and what works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from bson import SON, Code, DBRef, Int64, Regex
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from proxy.backend.probing import CONSEQUENCE, WITHOUT_TIMESERIES
from tests.support.access import PASSWORD, ROOT_PASSWORD, GuardedMongod
from tests.support.proxy import ProxyProcess, started, tsproxy
from tests.support.twins import Twins
from tests.support.versions import server

VERSION = "4.4.2"
FEW_CLIENTS = ("--max-connections", "100")
"""Whatever limit of open files this machine has, no warning says that it is too low."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedMongod]:
    """The server; the account ``proxy`` has no privileges on buckets, which do not exist there."""
    chosen = server(VERSION)
    mongod = GuardedMongod(
        tmp_path_factory.mktemp("old"), binary=chosen.binary, environment=chosen.environment, arguments=["--auth"]
    )
    try:
        mongod.start()
        mongod.create_administrator()
        mongod.create_user("admin", "proxy", ["readWriteAnyDatabase"])
        yield mongod
    finally:
        mongod.remove()


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, old: GuardedMongod) -> Iterator[ProxyProcess]:
    """A tsproxy in front of it, which would like to write in parts."""
    uri = old.uri_of("proxy", PASSWORD, "admin")
    flags = ["--write-strategy", "in_parts", *FEW_CLIENTS]
    with started(ProxyProcess(tmp_path_factory.mktemp("proxy"), uri, flags=flags)) as process:
        yield process


@pytest.fixture
def twins(old: GuardedMongod, proxied: ProxyProcess) -> Iterator[Twins]:
    """An administrator at the server and through the proxy."""
    with (
        old.client() as native,
        proxied.client(username="root", password=ROOT_PASSWORD, authSource="admin") as through,
    ):
        twins = Twins(native, through, "plain")
        yield twins
        twins.drop()


def refusal(client: MongoClient[Any], database: str, command: dict[str, Any]) -> Any:
    with pytest.raises(OperationFailure) as refused:
        client[database].command(command)
    return refused.value


def test_one_warning_says_what_will_not_work(proxied: ProxyProcess) -> None:
    warnings = [line for line in proxied.log.splitlines() if "warning" in line]
    assert len(warnings) == 1, warnings
    assert WITHOUT_TIMESERIES in warnings[0]
    assert (CONSEQUENCE in warnings[0], VERSION in warnings[0]) == (True, True)
    assert "error" not in proxied.log


def test_the_proxy_is_ready_and_says_it(proxied: ProxyProcess, twins: Twins) -> None:
    assert proxied.status("/readyz") == (
        200,
        f"ok\n{WITHOUT_TIMESERIES} (it reports version {VERSION}): {CONSEQUENCE}\n",
    )
    shown = json.loads(proxied.status("/status.json")[1])
    assert (shown["ready"], shown["backend"]["version"], shown["backend"]["timeseries"]) == (True, VERSION, False)
    assert [note["severity"] for note in shown["notes"]] == ["warning"]
    assert WITHOUT_TIMESERIES[1:] in shown["notes"][0]["text"]
    status = twins.virtual.client.admin.command({"tsproxy": "status"})
    assert (status["ready"], status["backend"]["version"], status["backend"]["timeseries"]) == (True, VERSION, False)


def test_the_doctor_says_it(old: GuardedMongod) -> None:
    done = tsproxy("doctor", "--json", *FEW_CLIENTS, "--backend", old.uri_of("proxy", PASSWORD, "admin"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert [name for name, each in found.items() if each["severity"] == "warning"] == ["timeseries"]
    assert WITHOUT_TIMESERIES in found["timeseries"]["text"]
    assert found["version"]["text"] == f"MongoDB {VERSION}"


def test_no_ordinary_collection_takes_the_place_of_a_time_series_collection(twins: Twins) -> None:
    client, name = twins.virtual.client, twins.virtual.name
    timeseries = {"timeField": "t", "metaField": "m"}
    for command in (
        {"create": "x", "timeseries": timeseries},
        {"create": "x", "timeseries": timeseries, "expireAfterSeconds": 60},
        {"create": "system.buckets.x", "timeseries": timeseries},
        # A reference cannot be decoded without loss.
        {"create": "x", "timeseries": timeseries, "comment": DBRef("c", 1)},
    ):
        error = refusal(client, name, command)
        assert (error.code, error.details["codeName"]) == (115, "CommandNotSupported")
        assert f"the backend, which reports version {VERSION}, has no time-series collections" in str(error)
    with pytest.raises(OperationFailure, match="no time-series collections"):
        client[name].create_collection("x", timeseries=timeseries)
    assert client[name].list_collection_names() == []
    assert refusal(twins.native.client, twins.native.name, {"create": "x", "timeseries": timeseries}).code == 40415


def test_rules_for_new_collections_are_refused_at_the_start(old: GuardedMongod) -> None:
    uri = old.uri_of("proxy", PASSWORD, "admin")
    done = tsproxy("serve", "--backend", uri, "--create-as-timeseries", "app.* -> timeField=t")
    assert done.returncode == 2, done.stderr
    assert f"the backend, which reports version {VERSION}, has no time-series collections" in done.stderr


ROWS = [{"_id": n, "t": n, "m": {"a": n % 3}, "s": f"text {n}", "p": [n, n]} for n in range(40)]
ORDINARY: list[dict[str, Any]] = [
    {"create": "x", "validator": {"t": {"$type": "int"}}},
    {"insert": "x", "documents": ROWS},
    {"insert": "x", "documents": [{"_id": 1, "t": 1}, {"_id": 50, "t": "no"}], "ordered": False},
    {"find": "x", "filter": {"m.a": 1}, "sort": {"_id": -1}, "batchSize": 100},
    {"find": "x", "filter": {"s": Regex("^text 1")}, "sort": {"_id": 1}, "projection": {"s": 1}, "hint": "_id_"},
    {"find": "x", "filter": {"$where": Code("this.t == 7")}},
    {"count": "x", "query": {"m.a": 2}},
    {"distinct": "x", "key": "m.a"},
    {"aggregate": "x", "pipeline": [{"$group": {"_id": None, "n": {"$sum": "$t"}}}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$out": "y"}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$_internalUnpackBucket": {"timeField": "t"}}], "cursor": {}},
    {"mapReduce": "x", "map": Code("function(){emit(1, 1)}"), "reduce": Code("function(k, v){return v.length}"),
     "out": {"inline": 1}},
    {"createIndexes": "x", "indexes": [{"key": {"t": 1}, "name": "t_1"}, {"key": {"p": "2d"}, "name": "place"}]},
    {"listIndexes": "x"},
    {"update": "x", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": Int64(5)}}}, {"q": {}, "u": {"t": "no"}}]},
    {"delete": "x", "deletes": [{"q": {"t": {"$lt": 5}}, "limit": 0}]},
    {"findAndModify": "x", "query": {"_id": 7}, "update": {"$inc": {"t": 1}}, "new": True},
    {"findAndModify": "x", "query": {"_id": 8}, "remove": True},
    {"collMod": "x", "validator": {}},
    {"collMod": "x", "timeseries": {"granularity": "hours"}},
    {"create": "x", "expireAfterSeconds": 60},
    {"create": "seen", "viewOn": "x", "pipeline": [{"$match": {"m.a": 1}}]},
    {"find": "seen", "sort": {"_id": 1}, "limit": 2},
    {"insert": "seen", "documents": [{"_id": 1}]},
    {"listCollections": 1, "nameOnly": True, "filter": {"name": "x"}},
    {"renameCollection": "nowhere.x", "to": "nowhere.y"},
    {"drop": "y"},
    {"convertToCapped": "system.buckets.x", "size": 4096},
    {"cloneCollectionAsCapped": "system.buckets.x", "toCollection": "y", "size": 4096},
    {"noSuchCommand": 1},
]  # fmt: skip


def test_ordinary_traffic_is_that_of_the_server(twins: Twins) -> None:
    for command in ORDINARY:
        reply = twins.same(command)
        if next(iter(command)) in ("find", "count", "distinct"):
            assert twins.same(command) == reply, "repeated commands are recognised"
    assert twins.both({"dbStats": 1})[1]["objects"] == twins.both({"dbStats": 1})[0]["objects"]


def test_an_insert_that_creates_a_collection_is_as_it_should_be(twins: Twins, proxied: ProxyProcess) -> None:
    before = proxied.log
    twins.same({"insert": "new", "documents": [{"_id": 1, "t": 1}]})
    assert "warning" not in proxied.log.removeprefix(before)


def test_cursors_and_explains(twins: Twins) -> None:
    twins.same({"insert": "x", "documents": ROWS})
    for side in (twins.native, twins.virtual):
        opened = side.command({"find": "x", "sort": {"_id": 1}, "batchSize": 3})["cursor"]
        more = side.command(SON([("getMore", opened["id"]), ("collection", "x")]))["cursor"]
        assert [row["_id"] for row in opened["firstBatch"] + more["nextBatch"]] == list(range(40))
    native, virtual = twins.both({"explain": {"find": "x", "filter": {"_id": 3}}, "verbosity": "queryPlanner"})
    assert virtual["queryPlanner"]["winningPlan"] == native["queryPlanner"]["winningPlan"]


def test_clients_see_the_wire_version_of_the_server(twins: Twins) -> None:
    native, virtual = twins.native.client.admin.command("hello"), twins.virtual.client.admin.command("hello")
    assert virtual["maxWireVersion"] == native["maxWireVersion"] == 9
    assert "tsproxy" in twins.virtual.client.admin.command("buildInfo")


def test_who_has_not_logged_in_learns_nothing(proxied: ProxyProcess) -> None:
    with proxied.client() as stranger:
        assert refusal(stranger, "plain", {"create": "x", "timeseries": {"timeField": "t"}}).code == 13
        assert refusal(stranger, "plain", {"find": "x"}).code == 13
