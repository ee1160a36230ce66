"""What one client may have pending delays that client: others go on beside it, and nothing of either is lost.

Judged by how many of the heavy inserts are answered while the honest client has a few of its own, so it does not matter
how busy the machine is.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.request.ports import STEPS_AT_ONCE
from proxy.request.step_places import PLACES_OF_ONE
from proxy.upstream.back_pressure import AHEAD_COMMANDS
from proxy.wire.op_msg import MORE_TO_COME
from tests.support.heavy_clients import COLLECTION, insert
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import RawClient, command, document_of
from tests.support.twins import masked

START = datetime(2024, 5, 1, tzinfo=UTC)
HEAVY = 12
ROWS = 400
SERIES = 80
HONEST = 20
RELAYED = "tsproxy_requests_total{"


@pytest.fixture
def narrow(mongod: MongodProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy that two of the heavy inserts fill."""
    with started(ProxyProcess(tmp_path, mongod.uri, flags=("--max-pending-measurements", str(ROWS)))) as process:
        yield process


def test_who_keeps_the_limits_full_holds_nobody_else(narrow: ProxyProcess, db_name: str) -> None:
    enough = threading.Event()
    answered: Counter[int] = Counter()

    def heavy(number: int) -> None:
        """Large inserts one after the other, into many series."""
        with RawClient(narrow.port, 120) as client:
            while not enough.is_set():
                batch = answered[number]
                rows = [
                    {"t": START + timedelta(seconds=batch), "m": f"{number}-{row % SERIES}", "x": [number, batch, row]}
                    for row in range(ROWS)
                ]
                client.send(insert(db_name, rows))
                reply = client.receive()
                assert reply is not None
                assert masked(document_of(reply), db_name) == {"n": ROWS, "ok": 1.0}
                answered[number] += 1

    with narrow.client() as admin, ThreadPoolExecutor(HEAVY) as threads:
        admin[db_name].create_collection(COLLECTION, timeseries={"timeField": "t", "metaField": "m"})
        writers = [threads.submit(heavy, number) for number in range(HEAVY)]
        try:
            narrow.wait_until(lambda: answered.total() >= HEAVY)
            before = answered.total()
            with RawClient(narrow.port, 60) as client:
                for number in range(HONEST):
                    client.send(insert(db_name, [{"t": START, "m": "honest", "x": number}]))
                    reply = client.receive()
                    assert reply is not None
                    assert masked(document_of(reply), db_name) == {"n": 1, "ok": 1.0}
            meanwhile = answered.total() - before
        finally:
            enough.set()
        for writer in writers:
            writer.result()
        stored = Counter(
            ("honest", row["x"]) if row["m"] == "honest" else (row["m"], *row["x"])
            for row in admin[db_name][COLLECTION].find({}, {"_id": 0, "t": 0})
        )
        admin.drop_database(db_name)
    assert meanwhile < HONEST * HEAVY // 3
    assert stored == Counter(
        [("honest", number) for number in range(HONEST)]
        + [
            (f"{number}-{row % SERIES}", number, batch, row)
            for number in range(HEAVY)
            for batch in range(answered[number])
            for row in range(ROWS)
        ]
    )


SLOW_ROW = {"$function": {"body": "function(x) { sleep(20); return false; }", "args": ["$x"], "lang": "js"}}
BUCKETS = 150


class From(RawClient):
    """From another address of this machine."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(port, 60)
        self.socket.close()
        self.socket = socket.create_connection((LOOPBACK, port), 60, source_address=(address, 0))


def delete(database: str, query: Mapping[str, Any]) -> dict[str, Any]:
    return {"delete": COLLECTION, "deletes": [{"q": query, "limit": 0}], "$db": database}


def under_way(server: MongodProcess, database: str, *names: str) -> int:
    """Commands at the server on that database; those with one of these names, if there are any."""
    named = {"$or": [{f"command.{name}": {"$exists": True}} for name in names]} if names else {}
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True}},
        {"$match": {"command.$db": database, "active": True, **named}},
    ]
    return len(list(server.shared_client.admin.aggregate(pipeline)))


def test_slow_deletes_of_one_client_hold_no_deletes_of_others(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str
) -> None:
    """U8: one client has few places at the backend, and those who have left do not look on."""
    with proxy.client() as admin:
        rows = admin.get_database(db_name).create_collection(
            COLLECTION, timeseries={"timeField": "t", "metaField": "m"}
        )
        rows.insert_many([{"t": START, "m": meta, "x": meta} for meta in range(BUCKETS)])
        slow = [RawClient(proxy.port, 60) for _ in range(STEPS_AT_ONCE + 20)]
        try:
            for each in slow:
                each.send(command(delete(db_name, {"$expr": SLOW_ROW})))
            mongod.wait_until(lambda: under_way(mongod, db_name) >= PLACES_OF_ONE // 2)
            with From(proxy.port, "127.0.0.2") as honest:
                for value in range(3):
                    assert honest.run(delete(db_name, {"x": value}))["n"] == 1
            assert under_way(mongod, db_name) <= PLACES_OF_ONE
        finally:
            for each in slow:
                each.socket.close()
        # Each of them would have gone on for seconds, and so many after one another for a minute.
        mongod.wait_until(lambda: under_way(mongod, db_name) == 0, timeout_seconds=15)
        assert sorted(row["x"] for row in rows.find()) == list(range(3, BUCKETS))
        admin.drop_database(db_name)


def unacknowledged(database: str, number: int) -> bytes:
    document = {"insert": "plain", "documents": [{"_id": number}], "writeConcern": {"w": 0}, "$db": database}
    return command(document, flags=MORE_TO_COME)


def inserts_relayed(process: ProxyProcess) -> int:
    return int(sum(value for name, value in process.metrics().items() if name.startswith(RELAYED) and "insert" in name))


def test_commands_without_a_reply_do_not_pile_up_at_the_server(tmp_path: Path) -> None:
    """Sockets hold many thousands of them, which would keep a server busy long after it has fallen behind."""
    mongod = MongodProcess(tmp_path / "mongod")
    try:
        mongod.start()
        process = ProxyProcess(tmp_path, mongod.uri).start()
        try:
            with RawClient(process.port, 60) as client:
                # The collection is known, and the connection open.
                client.send(command({"insert": "plain", "documents": [{"_id": -1}], "$db": "flood"}))
                assert client.receive() is not None
                before = inserts_relayed(process)
                os.kill(mongod.pid, signal.SIGSTOP)
                try:
                    client.send(b"".join(unacknowledged("flood", number) for number in range(1_000)))
                    process.wait_until(lambda: inserts_relayed(process) >= before + AHEAD_COMMANDS)
                    time.sleep(0.5)
                    assert inserts_relayed(process) == before + AHEAD_COMMANDS
                finally:
                    os.kill(mongod.pid, signal.SIGCONT)
            with mongod.client() as native:
                rows = native.flood.plain
                process.wait_until(lambda: rows.estimated_document_count() == 1_001)
                assert [row["_id"] for row in rows.find(sort=[("$natural", 1)])] == list(range(-1, 1_000))
        finally:
            process.stop()
    finally:
        mongod.remove()


@pytest.mark.parametrize("kind", ["ordinary", "time-series"])
def test_drops_without_a_reply_have_one_place_of_a_client(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, kind: str
) -> None:
    """Whatever its connections: each drop takes a lock for which the writes of all others wait."""
    options = {"timeseries": {"timeField": "t"}} if kind == "time-series" else {}

    def flood(number: int) -> bytes:
        name = f"c{number}"
        create = command({"create": name, "$db": db_name, **options}, flags=MORE_TO_COME)
        drop = command({"drop": name, "$db": db_name}, flags=MORE_TO_COME)
        return (create + drop) * 6 + command({"create": f"last{number}", "$db": db_name}, flags=MORE_TO_COME)

    for number in range(4):
        with RawClient(proxy.port, 60) as client:
            client.send(flood(number))
    most = value = 0
    last = {f"last{number}" for number in range(4)}
    with proxy.client() as admin, From(proxy.port, "127.0.0.2") as honest:
        names: set[str] = set()
        while not last <= names:
            most = max(most, *(under_way(mongod, db_name, "create", "drop") for _ in range(20)))
            assert honest.run({"insert": "honest", "documents": [{"_id": value}], "$db": db_name})["n"] == 1
            value += 1
            names = set(admin[db_name].list_collection_names())
        # Nothing is lost of what a client has sent that has left.
        assert names - {"system.views"} == {"honest", *last}
        admin.drop_database(db_name)
    assert most == 1


def executed(server: MongodProcess, name: str) -> int:
    """How many commands of this name the server has executed."""
    status = server.shared_client.admin.command("serverStatus", metrics=1)
    return int(status["metrics"]["commands"][name]["total"])


@pytest.mark.parametrize(
    ("asked", "is_executed"),
    [
        ({"dbHash": 1}, True),
        ({"ping": 1}, False),
        ({"distinct": "plain", "key": "_id"}, False),
        ({"aggregate": "plain", "pipeline": [{"$match": {"_id": 1}}], "cursor": {}}, False),
        ({"aggregate": "plain", "pipeline": [{"$out": "copy"}], "cursor": {}}, True),
    ],
    ids=str,
)
def test_reads_without_a_reply_are_left_out(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, asked: dict[str, Any], is_executed: bool
) -> None:
    """Nobody would notice them; a flood of them would keep the server busy."""
    with proxy.client() as admin:
        admin[db_name].plain.insert_one({"_id": 1})
        name = next(iter(asked))
        before = executed(mongod, name)
        with RawClient(proxy.port, 60) as client:
            client.send(command({**asked, "$db": db_name}, flags=MORE_TO_COME) * 300)
            assert client.run({"find": "plain", "$db": db_name})["cursor"]["firstBatch"] == [{"_id": 1}]
        # Others may ask for some as well.
        assert (executed(mongod, name) - before >= 300) == is_executed
        assert ("copy" in admin[db_name].list_collection_names()) == ("$out" in str(asked))
        admin.drop_database(db_name)


@pytest.mark.parametrize("count", [AHEAD_COMMANDS - 1, 10 * AHEAD_COMMANDS + 7])
def test_commands_without_a_reply_are_carried_out_in_order(proxy: ProxyProcess, db_name: str, count: int) -> None:
    with RawClient(proxy.port, 60) as client:
        client.send(b"".join(unacknowledged(db_name, number) for number in range(count)))
        client.send(command({"find": "plain", "projection": {"_id": 1}, "batchSize": 10_000, "$db": db_name}))
        reply = client.receive()
        assert reply is not None
        assert document_of(reply)["cursor"]["firstBatch"] == [{"_id": number} for number in range(count)]
