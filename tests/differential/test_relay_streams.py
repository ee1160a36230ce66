"""Many clients at once, large replies, slow readers, compression, exhaust cursors, backends that go away."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bson import Int64
from pymongo.cursor import CursorType
from pymongo.errors import AutoReconnect, PyMongoError

from proxy.wire import op_compressed, op_msg
from proxy.wire.message import Opcode
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command, compressed, document_of

MEGABYTE = 1024 * 1024
IMPATIENT = ("--server-selection-timeout-ms", "1000")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fill(proxy: ProxyProcess, db_name: str, documents: int, size_bytes: int) -> None:
    with proxy.client() as client:
        client[db_name].c.insert_many([{"_id": number, "x": bytes(size_bytes)} for number in range(documents)])


def test_concurrent_clients_never_get_each_other_s_replies(proxy: ProxyProcess, db_name: str) -> None:
    """Each thread reads only documents of its own through a shared pool."""
    with proxy.client(maxPoolSize=24) as client:
        collection = client[db_name].c
        collection.create_index("owner")

        def work(owner: int) -> None:
            for number in range(25):
                collection.insert_one({"owner": owner, "number": number})
                echoed = client.admin.command({"find": "nowhere", "comment": owner}, check=True)["cursor"]["ns"]
                assert echoed == "admin.nowhere"
                numbers = [document["number"] for document in collection.find({"owner": owner}, batch_size=7)]
                assert sorted(numbers) == list(range(number + 1))

        with ThreadPoolExecutor(32) as threads:
            list(threads.map(work, range(32)))


def test_slow_reader_slows_only_itself_and_costs_bounded_memory(proxy: ProxyProcess, db_name: str) -> None:
    fill(proxy, db_name, 30, MEGABYTE)
    find = {"find": "c", "batchSize": 15, "$db": db_name}
    with RawClient(proxy.port) as warm_up:
        warm_up.run(find)
    before = resident_bytes(proxy.pid)
    slow = [RawClient(proxy.port) for _ in range(12)]
    try:
        for client in slow:
            for number in range(4):
                client.send(command(find, request_id=number))
        with RawClient(proxy.port) as quick:
            started = time.monotonic()
            for _ in range(200):
                assert quick.run({"ping": 1, "$db": "admin"})["ok"] == 1.0
            assert time.monotonic() - started < 10
        # 12 clients × 4 replies of 15 MB wait; the proxy holds only what its buffers allow.
        assert resident_bytes(proxy.pid) - before < 100 * MEGABYTE
        for number in range(4):
            reply = slow[0].receive()
            assert reply is not None
            assert reply.response_to == number
            assert len(document_of(reply)["cursor"]["firstBatch"]) == 15
    finally:
        for client in slow:
            client.socket.close()


def test_large_messages_pass_in_both_directions(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client:
        documents = [{"_id": number, "x": os.urandom(15 * MEGABYTE)} for number in range(3)]
        client[db_name].c.insert_many(documents)
        assert list(client[db_name].c.find(sort=[("_id", 1)])) == documents


def test_client_that_floods_without_reading_is_not_read_on(proxy: ProxyProcess, db_name: str) -> None:
    """Its requests stay in its own socket, as its replies do."""
    fill(proxy, db_name, 1, 4 * MEGABYTE)
    find = command({"find": "c", "$db": db_name})
    before = resident_bytes(proxy.pid)
    with RawClient(proxy.port, timeout_seconds=2.0) as client:
        flood = find * 1000
        with pytest.raises(TimeoutError):  # noqa: PT012  (any of the sends)
            for _ in range(10_000):
                client.send(flood)
        assert resident_bytes(proxy.pid) - before < 40 * MEGABYTE


@pytest.mark.parametrize("compressor", ["zlib", "snappy", "zstd"])
def test_compressed_conversation(proxy: ProxyProcess, db_name: str, compressor: str) -> None:
    number = op_compressed.COMPRESSOR_IDS[compressor]
    with RawClient(proxy.port) as client:
        hello = client.run({"hello": 1, "compression": ["nonsense", compressor], "$db": "admin"})
        assert hello["compression"] == [compressor]
        documents = [{"_id": i, "x": "y" * 1000} for i in range(500)]
        client.send(compressed(command({"insert": "c", "documents": documents, "$db": db_name}), number))
        assert list(client.documents(1)) == [{"n": 500, "ok": 1.0}]
        client.send(compressed(command({"find": "c", "batchSize": 500, "$db": db_name}), number))
        reply = client.receive()
        assert reply is not None
        assert reply.opcode == Opcode.COMPRESSED
        assert document_of(reply)["cursor"]["firstBatch"] == documents


def test_driver_with_compression(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client(compressors="zlib") as client:
        client[db_name].c.insert_many([{"_id": i, "x": "y" * 1000} for i in range(3000)])
        assert [document["_id"] for document in client[db_name].c.find(sort=[("_id", 1)])] == list(range(3000))


def test_exhaust_cursor_is_relayed_until_it_is_done(mongod: MongodProcess, proxy: ProxyProcess, db_name: str) -> None:
    """One getMore with exhaustAllowed, many replies; the connection is good for more afterwards."""
    fill(proxy, db_name, 1000, 10)
    with RawClient(proxy.port) as client:
        cursor = client.run({"find": "c", "batchSize": 10, "$db": db_name})["cursor"]
        more = {"getMore": Int64(cursor["id"]), "collection": "c", "batchSize": 10, "$db": db_name}
        client.send(command(more, flags=op_msg.EXHAUST_ALLOWED))
        found, replies = len(cursor["firstBatch"]), 0
        while True:
            reply = client.receive()
            assert reply is not None
            replies += 1
            found += len(document_of(reply)["cursor"]["nextBatch"])
            if not op_msg.parse(reply).flags & op_msg.MORE_TO_COME:
                break
        assert (found, replies > 50) == (1000, True)
        assert client.run({"ping": 1, "$db": "admin"})["ok"] == 1.0


def test_exhaust_cursor_of_a_driver(mongod: MongodProcess, proxy: ProxyProcess, db_name: str) -> None:
    fill(proxy, db_name, 1000, 10)
    with proxy.client() as client:
        cursor = client[db_name].c.find(cursor_type=CursorType.EXHAUST, batch_size=20)
        assert len(list(cursor)) == 1000


def test_exhaust_cursor_of_measurements_has_one_batch_for_each_get_more(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str
) -> None:
    """Natively, one getMore has many replies. The protocol allows both, and drivers understand both."""
    with proxy.client() as driver:
        driver[db_name].create_collection("c", timeseries={"timeField": "t"})
        driver[db_name].c.insert_many([{"_id": n, "t": dt.datetime.fromtimestamp(n, dt.UTC)} for n in range(100)])
        for port, streams in ((mongod.port, True), (proxy.port, False)):
            with RawClient(port) as client:
                cursor = client.run({"find": "c", "batchSize": 10, "$db": db_name})["cursor"]
                more = {"getMore": Int64(cursor["id"]), "collection": "c", "batchSize": 10, "$db": db_name}
                client.send(command(more, flags=op_msg.EXHAUST_ALLOWED))
                reply = client.receive()
                assert reply is not None
                assert len(document_of(reply)["cursor"]["nextBatch"]) == 10
                assert bool(op_msg.parse(reply).flags & op_msg.MORE_TO_COME) is streams
        assert len(list(driver[db_name].c.find(cursor_type=CursorType.EXHAUST, batch_size=20))) == 100


def test_hello_streams_to_drivers_that_watch(proxy: ProxyProcess) -> None:
    """exhaustAllowed, topologyVersion and maxAwaitTimeMS: an answer each period, each answering the one before."""
    with RawClient(proxy.port) as client:
        version = client.run({"hello": 1, "$db": "admin"})["topologyVersion"]
        hello = {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": Int64(50), "$db": "admin"}
        client.send(command(hello, flags=op_msg.EXHAUST_ALLOWED, request_id=500))
        answered = 500
        for _ in range(3):
            reply = client.receive()
            assert reply is not None
            assert (reply.response_to, op_msg.parse(reply).flags) == (answered, op_msg.MORE_TO_COME)
            answered = reply.request_id


def test_client_that_leaves_takes_its_backend_connection_along(mongod: MongodProcess, proxy: ProxyProcess) -> None:
    with mongod.client() as direct:

        def named() -> int:
            pipeline: list[dict[str, Any]] = [
                {"$currentOp": {"allUsers": True, "idleConnections": True}},
                {"$match": {"appName": "leaver"}},
                {"$count": "n"},
            ]
            return next((row["n"] for row in direct.admin.aggregate(pipeline)), 0)

        client = RawClient(proxy.port)
        metadata = {
            "application": {"name": "leaver"},
            "driver": {"name": "raw", "version": "1"},
            "os": {"type": "Linux"},
        }
        client.run({"hello": 1, "client": metadata, "$db": "admin"})
        assert named() == 0
        client.run({"ping": 1, "$db": "admin"})
        # The client's own name reaches the backend.
        assert named() == 1
        client.socket.close()
        deadline = time.monotonic() + 10
        while named() and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        assert named() == 0


def test_backend_that_goes_away_is_named_and_found_again(tmp_path: Path) -> None:
    """Clients keep their connections; those with a command under way get a retryable error."""
    mongod = MongodProcess(tmp_path / "mongod")
    proxy = ProxyProcess(tmp_path / "proxy", mongod.start().uri, flags=IMPATIENT)
    try:
        proxy.start()
        with RawClient(proxy.port) as client:
            assert client.run({"ping": 1, "$db": "admin"})["ok"] == 1.0
            mongod.kill()
            failed = client.run({"insert": "c", "documents": [{}], "txnNumber": Int64(1), "$db": "x"})
            assert failed["ok"] == 0.0
            # As from a mongos whose shard is gone.
            assert failed["code"] in (6, 133)
            assert str(mongod.port) in failed["errmsg"]
            mongod.start()
            # On a busy machine, finding the primary may take longer than ``IMPATIENT`` allows.
            assert any(client.run({"ping": 1, "$db": "admin"})["ok"] == 1.0 for _ in range(5))
    finally:
        proxy.stop()
        mongod.remove()


def test_slow_command_is_under_way_when_the_backend_is_killed(tmp_path: Path) -> None:
    mongod = MongodProcess(tmp_path / "mongod")
    proxy = ProxyProcess(tmp_path / "proxy", mongod.start().uri, flags=IMPATIENT)
    try:
        proxy.start()
        with proxy.client(retryReads=False) as client:
            client.x.c.insert_one({})
            failures: list[PyMongoError] = []

            def wait() -> None:
                try:
                    client.x.c.find_one({"$where": "sleep(20000) || true"})
                except PyMongoError as error:
                    failures.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            deadline = time.monotonic() + 10
            with mongod.client() as direct:
                while time.monotonic() < deadline:
                    if list(direct.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.find": "c"}}])):
                        break
            mongod.kill()
            thread.join(10)
            assert len(failures) == 1
            # The connection ends, as it would without a proxy between them.
            assert isinstance(failures[0], AutoReconnect)
    finally:
        proxy.stop()
        mongod.remove()
