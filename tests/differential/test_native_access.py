"""Native access: inserts of many clients as few commands, each with its own result; everything else as the server does.

The proxies are tests' own, on the servers of the session, because the access belongs to a proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import bson
import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, WriteError

from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started
from tests.support.wanted import SERVER
from tests.support.wire import WireClient

START = datetime(2024, 5, 1, tzinfo=UTC)
CLIENTS = 24
EACH = 15
ARRAY_UNDER_INDEX = 5930501
TIMESERIES_DELETES_ARE_REFUSED = "72 Time-series deletes are not enabled"


@pytest.fixture(scope="module", params=["mongod", "replica_set"])
def backend(request: pytest.FixtureRequest) -> MongodProcess:
    found: MongodProcess = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def native(backend: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    process = ProxyProcess(tmp_path_factory.mktemp("native"), backend.uri, flags=["--timeseries-access", "native"])
    yield process.start()
    process.stop()


@pytest.fixture
def lingering(backend: MongodProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy whose rounds wait for other writers, however slowly these are scheduled."""
    flags = ["--timeseries-access", "native", "--commit-linger-ms", "20"]
    process = ProxyProcess(tmp_path, backend.uri, flags=flags).start()
    yield process
    process.stop()


def row(number: int, series: int = 3) -> dict[str, Any]:
    return {"_id": number, "t": START + timedelta(seconds=number), "m": number % series, "v": {"x": number / 7}}


def made(client: pymongo.MongoClient[dict[str, Any]], name: str) -> Collection[dict[str, Any]]:
    return client[name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})


def server_inserts(server: MongodProcess) -> int:
    commands = server.shared_client.admin.command("serverStatus")["metrics"]["commands"]
    return int(commands["insert"]["total"])


def test_the_proxy_says_how_it_accesses_collections(native: ProxyProcess) -> None:
    with native.client() as client:
        about = client.admin.command("serverStatus")["tsproxy"]
    assert about["mode"] == about["access"] == "native"
    assert about["accessReason"] == "timeseries_access is native"
    assert "access to time-series collections" in native.log
    said = "ok\naccess to time-series collections: native (timeseries_access is native)\n"
    assert native.status("/readyz") == (200, said)
    assert native.metrics()['tsproxy_timeseries_access{access="native",why="chosen"}'] == 1


def test_w63_inserts_of_many_clients_are_few_commands_and_each_gets_its_errors(
    backend: MongodProcess, lingering: ProxyProcess, db_name: str
) -> None:
    """One in five documents has no time; its writer gets what the server says of it alone."""
    start = Barrier(CLIENTS)
    with lingering.client(maxPoolSize=CLIENTS) as client, ThreadPoolExecutor(CLIENTS) as threads:
        made(client, db_name)

        def write(writer: int) -> list[Any]:
            series = client[db_name].x
            start.wait()
            errors = []
            for number in range(EACH):
                document = row(100 * writer + number)
                if number % 5 == 4:
                    del document["t"]
                try:
                    series.insert_one(document)
                except WriteError as error:
                    errors.append((number, error.details))
            return errors

        before = server_inserts(backend)
        results = list(threads.map(write, range(CLIENTS)))
        commands = server_inserts(backend) - before
        stored = {each["_id"] for each in client[db_name].x.find()}
    text = "'t' must be present and contain a valid BSON UTC datetime value"
    wrong = [(number, {"index": 0, "code": 2, "errmsg": text}) for number in range(4, EACH, 5)]
    assert results == [wrong] * CLIENTS
    assert stored == {100 * writer + number for writer in range(CLIENTS) for number in range(EACH) if number % 5 != 4}
    assert commands < CLIENTS * EACH / 2
    assert lingering.metrics()["tsproxy_coalesced_measurements_total"] >= len(stored)


def test_w66_what_the_server_finds_in_a_bucket_is_told_to_its_writer_only(
    lingering: ProxyProcess, db_name: str
) -> None:
    """An index of a measurement allows no arrays, which some of the writers of a bucket have."""
    start = Barrier(CLIENTS)
    with lingering.client(maxPoolSize=CLIENTS) as client, ThreadPoolExecutor(CLIENTS) as threads:
        made(client, db_name).create_index("v")

        def write(writer: int) -> list[tuple[bool, int | None]]:
            start.wait()
            told: list[tuple[bool, int | None]] = []
            for number in range(EACH):
                is_bad = writer % 4 == 0 and number % 2 == 0
                try:
                    client[db_name].x.insert_one({**row(100 * writer + number, 1), "v": [1] if is_bad else 1})
                    told.append((is_bad, None))
                except WriteError as error:
                    told.append((is_bad, error.code))
            return told

        results = [each for told in threads.map(write, range(CLIENTS)) for each in told]
        assert set(results) == {(False, None), (True, ARRAY_UNDER_INDEX)}
        assert client[db_name].x.count_documents({}) == results.count((False, None))


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("ordered", [True, False])
def test_w95_order_is_kept(
    backend: MongodProcess, native: ProxyProcess, db_name: str, count: int, ordered: bool
) -> None:
    """The first error ends an ordered insert of several documents, and no other."""
    documents = [row(number) for number in range(count)]
    del documents[count // 2]["t"]
    told = []
    with native.client() as client:
        for each in (made(backend.shared_client, db_name + "_n"), made(client, db_name)):
            with pytest.raises(BulkWriteError) as caught:
                each.insert_many(documents, ordered=ordered)
            errors = [(error["index"], error["code"], error["errmsg"]) for error in caught.value.details["writeErrors"]]
            told.append((caught.value.details["nInserted"], errors, sorted(found["_id"] for found in each.find())))
    backend.shared_client.drop_database(db_name + "_n")
    assert told[0] == told[1]
    assert len(told[0][2]) == (count // 2 if ordered else count - 1)


def insert(client: pymongo.MongoClient[Any], name: str, session: Any, number: int, *rows: Any) -> Mapping[str, Any]:
    command = {"insert": "x", "documents": list(rows), "ordered": len(rows) == 1, "txnNumber": bson.Int64(number)}
    return client[name].command({**command}, session=session, check=False)


@pytest.mark.parametrize("count", [1, 3])
def test_w102_a_write_that_is_sent_again_is_stored_once(
    replica_set: MongodProcess, tmp_path: Path, db_name: str, count: int
) -> None:
    """Also by a process that has been restarted since."""
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=["--timeseries-access", "native"]).start()
    rows = [{**row(number), "_id": bson.ObjectId()} for number in range(count)]
    try:
        with proxy.client(retryWrites=False) as client:
            made(client, db_name)
            with client.start_session() as session:
                for _ in range(2):
                    assert insert(client, db_name, session, 1, *rows)["n"] == count
                assert insert(client, db_name, session, 0, *rows)["code"] == 225
                proxy.restart()
                assert insert(client, db_name, session, 1, *rows)["n"] == count
            assert replica_set.shared_client[db_name].x.count_documents({}) == count
    finally:
        proxy.stop()


def test_w127_a_lost_reply_is_resolved_by_the_servers_own_record(
    replica_set: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    """The connection ends before the command, or after it: the row is stored once, and nobody hears of it."""
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=["--timeseries-access", "native"]).start()
    try:
        with proxy.client(retryWrites=False) as client:
            series = made(client, db_name)
            series.insert_one(row(0))
            with failing(replica_set, 1, failCommands=["insert"], closeConnection=True):
                series.insert_one(row(1))
            with failing(replica_set, 1, failCommands=["insert"], errorCode=189):
                series.insert_one(row(2))
            assert sorted(each["_id"] for each in series.find()) == [0, 1, 2]
        assert proxy.metrics()["tsproxy_coalesced_unknown_outcomes_total"] == 2
    finally:
        proxy.stop()


def test_a_server_that_closes_bucket_namespaces_is_used_natively_from_then_on(
    mongod: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    """A refused commit writes nothing; what comes after it is native, and reads go to the collection.

    The proxy may notice before it commits, when it looks for a bucket that has room.
    """
    first: list[int] = []
    refusals: list[int | None] = []
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--timeseries-access", "auto"]).start()
    try:
        with proxy.client() as client:
            series = made(client, db_name)
            series.insert_one(row(0))
            namespace = f"{db_name}.system.buckets.x"
            with failing(mongod, failCommands=["insert", "update", "find"], errorCode=491, namespace=namespace):
                try:
                    first = [series.insert_one({**row(3), "m": "another series"}).inserted_id]
                except pymongo.errors.OperationFailure as error:
                    refusals.append(error.code)
                series.insert_many([row(1), row(2)])
                assert client.admin.command("serverStatus")["tsproxy"]["accessReason"] == (
                    "the server has closed the namespaces of bucket collections (error 491)"
                )
                assert sorted(each["_id"] for each in series.find()) == [0, 1, 2, *first]
                assert (first, refusals) in (([3], []), ([], [491]))
                deleted = changed(series, CHANGES["delete"])
                assert deleted == (1 if SERVER >= (6,) else TIMESERIES_DELETES_ARE_REFUSED)
            assert proxy.metrics()['tsproxy_timeseries_access{access="native",why="closed"}'] == 1
    finally:
        proxy.stop()


Series = Collection[dict[str, Any]]
CHANGES: Mapping[str, Callable[[Series], int]] = {
    "update": lambda series: series.update_many({"m": 1}, {"$set": {"m": 9}}).modified_count,
    "delete": lambda series: series.delete_many({"m": 2}).deleted_count,
}


def test_a_cursor_of_a_proxy_with_access_to_buckets_goes_on(
    backend: MongodProcess, native: ProxyProcess, db_name: str, tmp_path: Path
) -> None:
    """As while proxies are replaced by others with another setting: the new one has never used buckets itself."""
    buckets = ProxyProcess(tmp_path, backend.uri, flags=["--timeseries-access", "buckets"])
    lsid = {"lsid": {"id": bson.Binary(uuid4().bytes, 4)}, "$db": db_name}
    with started(buckets), buckets.client() as client, WireClient(buckets.port) as first:
        made(client, db_name).insert_many([row(number) for number in range(50)])
        cursor = first.command({"find": "x", "batchSize": 5, **lsid})["cursor"]
    found = [each["_id"] for each in cursor["firstBatch"]]
    with WireClient(native.port) as wire:
        replies = [wire.command({"getMore": cursor["id"], "collection": "x", "batchSize": 20, **lsid})]
        assert replies[0].get("errmsg") is None
        # Of another collection it is none.
        wrong = wire.command({"getMore": cursor["id"], "collection": "y", **lsid})
        assert (wrong["code"], wrong["codeName"]) == (13, "Unauthorized")
        replies.append(wire.command({"getMore": cursor["id"], "collection": "x", **lsid}))
    assert {reply["cursor"]["ns"] for reply in replies} == {f"{db_name}.x"}
    found += [each["_id"] for reply in replies for each in reply["cursor"]["nextBatch"]]
    assert (sorted(found), replies[-1]["cursor"]["id"]) == (list(range(50)), 0)


def changed(series: Series, change: Callable[[Series], int]) -> int | str:
    """How many documents a write changed, or what the server says of it: 5.0 refuses them."""
    try:
        return change(series)
    except pymongo.errors.OperationFailure as error:
        return f"{error.code} {error.details and error.details['errmsg']}"


def test_reads_and_writes_are_the_servers(backend: MongodProcess, native: ProxyProcess, db_name: str) -> None:
    with native.client() as client:
        twin, through = made(backend.shared_client, db_name + "_n"), made(client, db_name)
        for series in (twin, through):
            series.insert_many([row(number) for number in range(50)])
            series.create_index([("m", 1), ("t", -1)])
        for pipeline in ([{"$group": {"_id": "$m", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}], [{"$sort": {"t": 1}}]):
            assert list(through.aggregate(pipeline, batchSize=7)) == list(twin.aggregate(pipeline, batchSize=7))
        for number in range(3):  # recognised from the second on
            assert list(through.find({"m": number}).sort("t")) == list(twin.find({"m": number}).sort("t"))
        plans = [
            client_[name].command("explain", {"find": "x"}, verbosity="queryPlanner")["ok"]
            for client_, name in ((client, db_name), (backend.shared_client, db_name + "_n"))
        ]
        assert plans == [1.0, 1.0]
        for change in CHANGES.values():
            assert changed(twin, change) == changed(through, change)
        assert sorted(through.index_information()) == sorted(twin.index_information())
        assert through.count_documents({}) == twin.count_documents({})
    backend.shared_client.drop_database(db_name + "_n")
