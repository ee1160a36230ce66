"""``create_as_timeseries``: what becomes of new names that a rule covers, and what stays as it is."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64, ObjectId
from pymongo.errors import CollectionInvalid, OperationFailure

from proxy.clients.ruled_creation import SPLIT, STAYS_ORDINARY
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started, tsproxy
from tests.support.twins import Twins

Client = pymongo.MongoClient[dict[str, Any]]
AT = dt.datetime(2024, 5, 18, tzinfo=dt.UTC)
RULES = (
    "ruled_*.cpu* -> timeField=t metaField=host granularity=minutes expireAfterSeconds=864000000",
    "ruled_*.m_* -> timeField=t metaField=m",
)
OPTIONS = {"timeField": "t", "metaField": "host", "granularity": "minutes", "bucketMaxSpanSeconds": 86400}


@pytest.fixture(scope="module")
def ruled(server_directory: Path, mongod: MongodProcess) -> Iterator[ProxyProcess]:
    with started(
        ProxyProcess(server_directory / "ruled", mongod.uri, flags=["--create-as-timeseries", ", ".join(RULES)])
    ) as process:
        yield process


@pytest.fixture
def client(ruled: ProxyProcess) -> Iterator[Client]:
    with ruled.client() as made:
        yield made


@pytest.fixture
def name(mongod: MongodProcess) -> Iterator[str]:
    made = f"ruled_{ObjectId()}"
    yield made
    mongod.shared_client.drop_database(made)


def entry(mongod: MongodProcess, database: str, collection: str) -> dict[str, Any]:
    (found,) = mongod.shared_client[database].list_collections(filter={"name": collection})
    return dict(found)


def kind(mongod: MongodProcess, database: str, collection: str) -> str:
    return str(entry(mongod, database, collection)["type"])


def row(**fields: Any) -> dict[str, Any]:
    return {"t": AT, "host": "a", **fields}


def test_the_first_insert_makes_a_time_series_collection(mongod: MongodProcess, client: Client, name: str) -> None:
    client[name].cpu.insert_one(row(_id=1))
    client[name].cpu.insert_many([row(_id=2), row(_id=3)])
    made = entry(mongod, name, "cpu")
    assert made["type"] == "timeseries"
    assert made["options"] == {"timeseries": OPTIONS, "expireAfterSeconds": 864000000}
    # Through the catalog: one bucket with all of them.
    (bucket,) = mongod.shared_client[name]["system.buckets.cpu"].find()
    assert bucket["control"]["count"] == 3 if "count" in bucket["control"] else len(bucket["data"]["t"]) == 3
    assert [each["_id"] for each in mongod.shared_client[name].cpu.find()] == [1, 2, 3]


def test_first_match_wins_and_other_names_stay_ordinary(mongod: MongodProcess, client: Client, name: str) -> None:
    client[name].m_cpu.insert_one({"t": AT, "m": 1})
    client[name].disk.insert_one(row())
    assert entry(mongod, name, "m_cpu")["options"]["timeseries"]["metaField"] == "m"
    assert kind(mongod, name, "disk") == "collection"


def test_two_first_inserts_at_once_both_succeed(mongod: MongodProcess, ruled: ProxyProcess, name: str) -> None:
    for attempt in range(10):
        barrier, errors = threading.Barrier(4), list[Exception]()

        def insert(number: int, attempt: int = attempt, barrier: Any = barrier, errors: Any = errors) -> None:
            with ruled.client() as own:
                own.admin.command("ping")
                barrier.wait()
                try:
                    own[name][f"cpu{attempt}"].insert_one(row(_id=number))
                except Exception as error:  # noqa: BLE001
                    errors.append(error)

        threads = [threading.Thread(target=insert, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert kind(mongod, name, f"cpu{attempt}") == "timeseries"
        assert mongod.shared_client[name][f"cpu{attempt}"].count_documents({}) == 4


def test_an_ordinary_collection_stays_what_it_is(
    mongod: MongodProcess, ruled: ProxyProcess, client: Client, name: str
) -> None:
    mongod.shared_client[name].create_collection("cpu_old")
    for number in range(3):
        client[name].cpu_old.insert_one({"_id": number, "no": "time"})
    assert kind(mongod, name, "cpu_old") == "collection"
    assert client[name].cpu_old.count_documents({}) == 3
    warned = [line for line in ruled.log.splitlines() if STAYS_ORDINARY in line and f"{name}.cpu_old" in line]
    assert len(warned) == 1
    with pytest.raises(OperationFailure) as refused:
        client[name].command("create", "cpu_old")
    assert refused.value.code == 48


def test_a_name_that_was_dropped_is_made_again(mongod: MongodProcess, client: Client, name: str) -> None:
    mongod.shared_client[name].create_collection("cpu")
    for _ in range(3):
        client[name].cpu.insert_one(row())
    client[name].drop_collection("cpu")
    client[name].cpu.insert_one(row())
    assert kind(mongod, name, "cpu") == "timeseries"
    client.drop_database(name)
    client[name].cpu.insert_one(row())
    assert kind(mongod, name, "cpu") == "timeseries"


def test_a_plain_create_makes_one_and_keeps_its_own_options(mongod: MongodProcess, client: Client, name: str) -> None:
    client[name].create_collection("cpu1")
    client[name].create_collection("cpu2", collation={"locale": "de"}, expireAfterSeconds=60, capped=False)
    assert entry(mongod, name, "cpu1")["options"] == {"timeseries": OPTIONS, "expireAfterSeconds": 864000000}
    options = entry(mongod, name, "cpu2")["options"]
    assert (options["collation"]["locale"], options["expireAfterSeconds"]) == ("de", 60)
    with pytest.raises((OperationFailure, CollectionInvalid)) as refused:
        client[name].command("create", "cpu1")
    assert getattr(refused.value, "code", 48) == 48
    client[name].cpu1.insert_one(row())
    assert mongod.shared_client[name].cpu1.count_documents({}) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"timeseries": {"timeField": "other"}}, "timeseries"),
        ({"viewOn": "x", "pipeline": []}, "view"),
        ({"capped": True, "size": 4096}, "collection"),
        ({"validator": {"a": 1}}, "collection"),
    ],
)
def test_other_creates_are_left_alone(
    mongod: MongodProcess, client: Client, name: str, options: dict[str, Any], expected: str
) -> None:
    client[name].command({"create": "cpu", **options})
    made = entry(mongod, name, "cpu")
    assert made["type"] == expected
    if expected == "timeseries":
        assert made["options"]["timeseries"]["timeField"] == "other"


def test_clustered_collection_is_left_alone(
    mongod: MongodProcess, client: Client, name: str, mongod_version: tuple[int, ...]
) -> None:
    options = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}
    if mongod_version < (5, 3):
        with pytest.raises(OperationFailure, match="clusteredIndex"):
            client[name].command({"create": "cpu", **options})
        return
    client[name].command({"create": "cpu", **options})
    assert entry(mongod, name, "cpu")["type"] == "collection"


def test_indexes_that_come_first_are_made_on_a_time_series_collection(
    mongod: MongodProcess, client: Client, name: str
) -> None:
    client[name].cpu.create_index([("host", 1), ("t", -1)])
    assert kind(mongod, name, "cpu") == "timeseries"
    assert "host_1_t_-1" in client[name].cpu.index_information()
    with pytest.raises(OperationFailure):
        client[name].cpu.create_index("x", unique=True)


LEFT_ALONE: dict[str, Callable[[Client, str], object]] = {
    "upsert": lambda client, name: client[name].cpu.update_one({"host": "a"}, {"$set": {"v": 1}}, upsert=True),
    "find and upsert": lambda client, name: client[name].cpu.find_one_and_update(
        {"host": "a"}, {"$set": {"v": 1}}, upsert=True
    ),
    "out": lambda client, name: list(client[name].source.aggregate([{"$out": "cpu"}])),
    "merge": lambda client, name: list(client[name].source.aggregate([{"$merge": "cpu"}])),
}


@pytest.mark.parametrize("way", LEFT_ALONE)
def test_what_a_time_series_collection_refuses_makes_what_it_makes_without_a_rule(
    mongod: MongodProcess, client: Client, name: str, way: str
) -> None:
    client[name].source.insert_one(row())
    LEFT_ALONE[way](client, name)
    assert kind(mongod, name, "cpu") == "collection"
    client[name].cpu.insert_one(row(_id=7))
    assert kind(mongod, name, "cpu") == "collection"


def test_refused_documents_are_refused_as_by_such_a_collection(
    mongod: MongodProcess, client: Client, name: str
) -> None:
    with pytest.raises(OperationFailure) as refused:
        client[name].cpu.insert_one({"no": "time"})
    mongod.shared_client[name].create_collection("native", timeseries={"timeField": "t", "metaField": "host"})
    with pytest.raises(OperationFailure) as native:
        mongod.shared_client[name].native.insert_one({"no": "time"})
    assert refused.value.code == native.value.code
    assert kind(mongod, name, "cpu") == "timeseries"


def test_inserts_without_a_reply(mongod: MongodProcess, client: Client, name: str) -> None:
    unacknowledged = client[name].get_collection("cpu", write_concern=pymongo.WriteConcern(w=0))
    unacknowledged.insert_one(row(_id=1))
    client[name].cpu.insert_one(row(_id=2))
    assert kind(mongod, name, "cpu") == "timeseries"


UUID = Binary(bytes(16), 4)
INSERT: dict[str, Any] = {"insert": "cpu", "documents": [row()]}
INDEXES: dict[str, Any] = {"createIndexes": "cpu", "indexes": [{"key": {"host": 1}, "name": "host_1"}]}
REFUSED: dict[str, dict[str, Any]] = {
    "no documents": {**INSERT, "documents": []},
    "documents missing": {"insert": "cpu"},
    "unknown field": {**INSERT, "zz": 1},
    "write concern out of range": {**INSERT, "writeConcern": {"w": 77}},
    "write concern of a replica set": {**INSERT, "writeConcern": {"w": "tag"}},
    "read concern": {**INSERT, "readConcern": {"level": "majority"}},
    "statement ids": {**INSERT, "stmtIds": [1, 2]},
    "retryable write at a standalone": {**INSERT, "lsid": {"id": UUID}, "txnNumber": Int64(1)},
    "UUID of another collection": {**INSERT, "collectionUUID": UUID},
    "no indexes": {**INDEXES, "indexes": []},
    "unknown kind of index": {**INDEXES, "indexes": [{"key": {"host": "nonsense"}, "name": "x"}]},
    "unknown option of an index": {**INDEXES, "indexes": [{"key": {"host": 1}, "name": "x", "zz": 1}]},
    "index without a name": {**INDEXES, "indexes": [{"key": {"host": 1}}]},
    "commit quorum at a standalone": {**INDEXES, "commitQuorum": 3},
    "unknown field of createIndexes": {**INDEXES, "zz": 1},
}


@pytest.mark.parametrize("way", REFUSED)
def test_commands_that_are_refused_create_nothing(mongod: MongodProcess, client: Client, name: str, way: str) -> None:
    twins = Twins(mongod.shared_client, client, name)
    try:
        twins.same(REFUSED[way])
        for database in (twins.native.name, twins.virtual.name):
            assert mongod.shared_client[database].list_collection_names() == []
    finally:
        twins.drop()


def leave_buckets(mongod: MongodProcess, database: str, collection: str) -> None:
    """What a ``create`` leaves behind that was overtaken between the buckets and the name (H16)."""
    server = mongod.shared_client[f"{database}_model"]
    try:
        server.create_collection(collection, timeseries={"timeField": "t", "metaField": "host"})
        (made,) = server.list_collections(filter={"name": f"system.buckets.{collection}"})
    finally:
        mongod.shared_client.drop_database(server.name)
    options = {**made["options"], "clusteredIndex": True}
    mongod.shared_client[database].command({"create": f"system.buckets.{collection}", **options})


def test_h16_inserts_that_nobody_could_read_are_refused(
    mongod: MongodProcess, ruled: ProxyProcess, client: Client, name: str
) -> None:
    server = mongod.shared_client[name]
    server.cpu.insert_one({"_id": "kept"})
    leave_buckets(mongod, name, "cpu")
    with pytest.raises(OperationFailure, match=f"{name}.system.buckets.cpu") as refused:
        client[name].cpu.insert_one(row(_id="refused"))
    assert refused.value.code == 48
    assert any(SPLIT in line and f"{name}.cpu" in line for line in ruled.log.splitlines())
    # The server acknowledges it.
    server.cpu.insert_one(row(_id="lost"))
    assert [each["_id"] for each in server.cpu.find()] == ["kept"]
    # The remedy that the message names.
    server.cpu.rename("other")
    server.drop_collection("system.buckets.cpu")
    server.other.rename("cpu")
    client[name].cpu.insert_one(row(_id="readable"))
    assert [each["_id"] for each in server.cpu.find()] == ["kept", "readable"]


def test_h16_a_drop_of_the_buckets_removes_the_collection(mongod: MongodProcess, name: str) -> None:
    """This is why the proxy does not drop them."""
    server = mongod.shared_client[name]
    server.cpu.insert_one({"_id": "kept"})
    leave_buckets(mongod, name, "cpu")
    server.drop_collection("system.buckets.cpu")
    assert server.list_collection_names() == ["system.buckets.cpu"]


def test_h16_buckets_alone(mongod: MongodProcess, client: Client, name: str) -> None:
    """The ``create`` of the same options takes them over; with others it fails."""
    leave_buckets(mongod, name, "cpu")
    with pytest.raises(OperationFailure, match=r"system\.buckets\.cpu") as refused:
        client[name].cpu.insert_one(row())
    assert refused.value.code == 48
    leave_buckets(mongod, name, "m_x")
    mongod.shared_client[name].command({"create": "m_x", "timeseries": {"timeField": "t", "metaField": "host"}})
    client[name].m_x.insert_one(row(_id=1))
    assert mongod.shared_client[name].m_x.count_documents({}) == 1


def test_h16_without_a_rule_it_is_as_natively(mongod: MongodProcess, client: Client, name: str) -> None:
    twins = Twins(mongod.shared_client, client, name)
    try:
        for database in (twins.native.name, twins.virtual.name):
            mongod.shared_client[database].plain.insert_one({"_id": "kept"})
            leave_buckets(mongod, database, "plain")
        twins.same({"insert": "plain", "documents": [row(_id=1)]})
        twins.same({"find": "plain"})
        twins.same({"update": "plain", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "upsert": True}]})
        twins.same({"create": "plain", "timeseries": {"timeField": "t"}})
        twins.same({"drop": "system.buckets.plain"})
        twins.same({"find": "plain"})
    finally:
        twins.drop()


@pytest.mark.parametrize("through_proxy", [True, False])
def test_h16_no_acknowledged_row_is_unreadable_whoever_comes_at_the_same_time(
    mongod: MongodProcess, ruled: ProxyProcess, name: str, through_proxy: bool
) -> None:
    with ruled.client() as one, ruled.client() as two, ruled.client() as proxied:
        other = proxied if through_proxy else mongod.shared_client
        for client in (one, two, other):
            client.admin.command("ping")
        for attempt in range(30):
            barrier, acknowledged = threading.Barrier(3), set[str]()

            def insert(client: Client, number: int, attempt: int = attempt, barrier: Any = barrier,
                       acknowledged: set[str] = acknowledged) -> None:  # fmt: skip
                barrier.wait()
                for count in range(3):
                    with suppress(OperationFailure):
                        client[name][f"cpu{attempt}"].insert_one(row(_id=f"{number}.{count}"))
                        acknowledged.add(f"{number}.{count}")

            def upsert(client: Client = other, attempt: int = attempt, barrier: Any = barrier) -> None:
                barrier.wait()
                time.sleep(attempt * 0.0004)
                with suppress(OperationFailure):
                    client[name][f"cpu{attempt}"].update_one({"_id": "u"}, {"$set": {"t": AT}}, upsert=True)

            threads = [threading.Thread(target=insert, args=(one, 1)), threading.Thread(target=insert, args=(two, 2)),
                       threading.Thread(target=upsert)]  # fmt: skip
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            readable = {str(each["_id"]) for each in mongod.shared_client[name][f"cpu{attempt}"].find()}
            assert acknowledged <= readable, attempt


def test_transactions_are_left_alone(replica_set: MongodProcess, tmp_path: Path) -> None:
    name = f"ruled_{ObjectId()}"
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=["--create-as-timeseries", RULES[0]]).start()
    try:
        with proxy.client() as client, client.start_session() as session:
            with session.start_transaction():
                client[name].cpu.insert_one(row(), session=session)
            client[name].cpu1.insert_one(row())
        assert kind(replica_set, name, "cpu") == "collection"
        assert kind(replica_set, name, "cpu1") == "timeseries"
    finally:
        proxy.stop()
        replica_set.shared_client.drop_database(name)


def test_a_rule_that_the_backend_does_not_support_ends_the_start(mongod: MongodProcess) -> None:
    rule = "db.x -> timeField=t bucketMaxSpanSeconds=60"
    ended = tsproxy("serve", "--backend", mongod.uri, "--listen", "127.0.0.1:0", "--status-listen", "",
                    "--create-as-timeseries", rule)  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "create_as_timeseries cannot be used: db.x: bucketMaxSpanSeconds requires MongoDB 6.3" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_rules_that_are_not_valid_are_reported(mongod: MongodProcess) -> None:
    ended = tsproxy("check-config", "--create-as-timeseries", "db.x -> timefield=t")
    assert ended.returncode == 2
    assert "unknown option 'timefield'" in ended.stderr


def test_x1_a_transaction_that_is_none_creates_nothing(client: Client, name: str) -> None:
    """The backend refuses the command, and nothing has been executed before."""
    for command in ({"create": "cpu"}, {"insert": "cpu", "documents": [row()]}):
        reply = client[name].command({**command, "startTransaction": True}, check=False)
        assert reply["code"] == 72
        assert client[name].list_collection_names() == []
