from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from proxy.tools.bench.schedule import Turns
from proxy.tools.bench.shapes import CHECK_FIELD, shape_of
from proxy.tools.bench.workers import (
    LEAVE_SECONDS,
    PATIENCE_MS,
    Load,
    Order,
    Processes,
    Target,
    Worker,
    Writer,
    connect,
)
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port

SHAPE = shape_of("iot")


def load(mongod: MongodProcess, db_name: str, *, readers: int = 0, batch_rows: int = 1, fills: bool = True) -> Load:
    mongod.shared_client[db_name].create_collection("rows", timeseries={"timeField": "t", "metaField": "device"})
    targets = {"direct": Target(mongod.uri, db_name, "rows")}
    return Load(targets, SHAPE, Turns(3, 5, fills=fills), batch_rows, readers)


def test_what_a_worker_counts_is_stored(mongod: MongodProcess, db_name: str) -> None:
    worker = Worker(load(mongod, db_name, readers=2, batch_rows=3), 0, 1, lambda: False)
    try:
        filled = worker.carry_out(Order("direct"))
        measured = worker.carry_out(Order("direct", 0.3))
    finally:
        worker.close()
    assert filled.rows == sum(Turns(3, 5).filling_rows(series) for series in range(5))
    assert filled.reads == 0
    assert measured.rows == 3 * measured.commands > 0
    assert measured.reads > 0
    assert 0.3 <= measured.seconds < 10
    assert measured.cpu_seconds > 0
    assert measured.busiest_share == measured.cpu_seconds / measured.seconds
    assert measured.inserting.counts.total() == measured.commands
    rows = list(mongod.shared_client[db_name].rows.find())
    assert len(rows) == filled.rows + measured.rows
    assert sum(row[CHECK_FIELD] for row in rows) == filled.check + measured.check
    assert len({(row["device"]["id"], row["t"]) for row in rows}) == len(rows)


def test_processes_share_the_connections(mongod: MongodProcess, db_name: str) -> None:
    processes = Processes(load(mongod, db_name, fills=False), 2)
    try:
        processes.give(Order("direct", 0.2))
        tallies = [pipe.recv() for pipe in processes.pipes]
    finally:
        processes.close()
    assert all(tally.rows > 0 for tally in tallies)
    assert mongod.shared_client[db_name].rows.count_documents({}) == sum(tally.rows for tally in tallies)


def test_a_load_is_stopped_between_two_commands(mongod: MongodProcess, db_name: str) -> None:
    processes = Processes(load(mongod, db_name, fills=False), 1)
    rows = mongod.shared_client[db_name].rows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    processes.give(Order("direct", 600.0))
    until_seconds = time.monotonic() + 20
    while not rows.estimated_document_count():
        assert time.monotonic() < until_seconds
    since_seconds = time.monotonic()
    processes.close()
    assert time.monotonic() - since_seconds < LEAVE_SECONDS
    assert signal.SIGINT not in before
    stored = rows.count_documents({})
    assert rows.count_documents({}) == stored


@pytest.mark.parametrize("batch_rows", [1, 10])
def test_rows_that_are_refused_are_errors(mongod: MongodProcess, db_name: str, batch_rows: int) -> None:
    rows = mongod.shared_client[db_name].create_collection("rows", validator={"device.id": {"$lt": 3}})
    writer = Writer(rows, SHAPE.rows(), batch_rows)
    writer.insert([SHAPE.rows()(series, 0) for series in range(batch_rows)])
    writer.insert([SHAPE.rows()(9, 0)])
    stored: list[dict[str, Any]] = list(rows.find())
    assert writer.tally.rows == len(stored) == min(batch_rows, 3)
    assert writer.tally.check == sum(row[CHECK_FIELD] for row in stored)
    assert writer.tally.unknown_rows == 0
    assert writer.tally.errors.total() == (1 if batch_rows == 1 else 2)
    assert all("121" in kind for kind in writer.tally.errors)


@pytest.mark.parametrize("batch_rows", [1, 10])
def test_rows_without_a_reply_are_unknown(mongod: MongodProcess, db_name: str, batch_rows: int) -> None:
    data = {"failCommands": ["insert"], "closeConnection": True, "appName": "tsproxy bench"}
    mongod.shared_client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
    with connect(mongod.uri) as client:
        writer = Writer(client[db_name].rows, SHAPE.rows(), batch_rows)
        writer.insert([SHAPE.rows()(series, 0) for series in range(batch_rows)])
    assert (writer.tally.rows, writer.tally.unknown_rows) == (0, batch_rows)
    assert writer.tally.errors == {"AutoReconnect": 1}


def test_rows_that_were_not_sent_are_errors_only() -> None:
    with connect(f"mongodb://{LOOPBACK}:{free_port()}/?serverSelectionTimeoutMS=20") as client:
        writer = Writer(client.db.rows, SHAPE.rows(), 1)
        writer.insert([SHAPE.rows()(1, 0)])
    assert (writer.tally.rows, writer.tally.unknown_rows) == (0, 0)
    assert writer.tally.errors == {"ServerSelectionTimeoutError": 1}


def test_time_outs_of_the_user_win() -> None:
    with connect("mongodb://db.example/?SOCKETTIMEOUTMS=7&connect=false") as client:
        assert client.options.pool_options.socket_timeout == 0.007
        assert client.options.server_selection_timeout == PATIENCE_MS / 1000
        assert client.options.pool_options.appname == "tsproxy bench"
