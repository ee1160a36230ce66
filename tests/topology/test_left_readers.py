"""The cursor of a client that has left before its reply is closed, so that it puts no joins off."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson import Int64
from pymongo.collection import Collection

from proxy.wire.op_compressed import COMPRESSOR_IDS
from tests.support.eventually import wait_until
from tests.support.load_in_parts import UNJOINED, load
from tests.support.mongod import MongodProcess
from tests.support.own_server import ALONE_OR_SET, kind_of, own_server
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import RawClient, command, compressed

ON_THE_WAY_SECONDS = 0.25
"""By then, the proxy has passed a command on, or has seen that a client is gone."""
OPEN = "tsproxy_connections_open"
RESET = struct.pack("ii", 1, 0)
LEFT_OPEN = [{"$currentOp": {"idleCursors": True, "allUsers": True}}, {"$match": {"type": "idleCursor"}}]


@pytest.fixture(params=ALONE_OR_SET, ids=kind_of)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MongodProcess]:
    with own_server(tmp_path / "mongod", request.param) as process:
        yield process


@pytest.fixture
def proxy(tmp_path: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(tmp_path / "proxy", backend.uri, flags=["--write-strategy", "in_parts"])) as process:
        yield process


@contextmanager
def stopped(backend: MongodProcess) -> Iterator[None]:
    """It replies to nothing."""
    os.kill(backend.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(backend.pid, signal.SIGCONT)


def send_and_leave(client: RawClient, backend: MongodProcess, message: bytes, *, resets: bool = True) -> None:
    with stopped(backend):
        client.send(message)
        time.sleep(ON_THE_WAY_SECONDS)
        if resets:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.socket.close()
        time.sleep(ON_THE_WAY_SECONDS)


def left_open(backend: MongodProcess) -> list[dict[str, Any]]:
    with backend.client() as direct:
        return [row for row in direct.admin.aggregate(LEFT_OPEN) if row["ns"].startswith("db.")]


@contextmanager
def loaded(proxy: ProxyProcess) -> Iterator[Collection[dict[str, Any]]]:
    with proxy.client() as writer:
        collection = writer["db"].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        load(collection, 0)
        yield collection


FIND = {"find": "c", "batchSize": 2, "$db": "db"}
AGGREGATE = {"aggregate": "c", "pipeline": [], "cursor": {"batchSize": 2}, "$db": "db"}
READS: dict[str, dict[str, Any]] = {
    "find": FIND,
    "aggregate": AGGREGATE,
    "buckets": {**FIND, "find": "system.buckets.c"},
    # The server carries this one out as the client has sent it.
    "hint": {**FIND, "hint": {"$natural": 1}},
    "empty batch": {**AGGREGATE, "cursor": {"batchSize": 0}},
}


@pytest.mark.parametrize("form", ["plain", "compressed", "in order"])
@pytest.mark.parametrize("read", READS)
def test_a_cursor_that_nobody_knows_is_closed(
    backend: MongodProcess, proxy: ProxyProcess, read: str, form: str
) -> None:
    message = command(READS[read])
    if form == "compressed":
        message = compressed(message, COMPRESSOR_IDS["zlib"])
    with loaded(proxy) as collection:
        before = proxy.metrics()[OPEN]
        # Also with a connection that is open, and a read that was recognised.
        for repeats in range(3):
            client = RawClient(proxy.port)
            client.run({"hello": 1, "$db": "admin"})
            for _ in range(repeats):
                reply = client.run({**READS[read], "comment": "whole"})
                client.run({"killCursors": "c", "cursors": [reply["cursor"]["id"]], "$db": "db"})
            send_and_leave(client, backend, message, resets=form != "in order")
            wait_until(lambda: not left_open(backend))
        load(collection, 1_000)
        wait_until(lambda: proxy.metrics()[UNJOINED] == 0)
        wait_until(lambda: proxy.metrics()[OPEN] <= before)


@pytest.mark.parametrize("read", READS)
def test_a_cursor_is_closed_of_which_a_batch_is_lost(backend: MongodProcess, proxy: ProxyProcess, read: str) -> None:
    with loaded(proxy) as collection:
        client = RawClient(proxy.port)
        cursor_id = client.run(READS[read])["cursor"]["id"]
        named = READS[read].get("find", "c")
        more = {"getMore": Int64(cursor_id), "collection": named, "batchSize": 2, "$db": "db"}
        send_and_leave(client, backend, command(more))
        wait_until(lambda: not left_open(backend))
        load(collection, 1_000)
        wait_until(lambda: proxy.metrics()[UNJOINED] == 0)


def test_nothing_is_held_for_long(backend: MongodProcess, proxy: ProxyProcess) -> None:
    """A server ends what still runs when its connection is closed."""
    with loaded(proxy) as collection:
        before = proxy.metrics()[OPEN]
        client = RawClient(proxy.port)
        client.run({"count": "c", "$db": "db"})
        slow = {"$function": {"body": "function() { sleep(100); return true; }", "args": [], "lang": "js"}}
        client.send(command({**FIND, "batchSize": 250, "filter": {"$expr": slow}}))
        time.sleep(ON_THE_WAY_SECONDS)
        client.socket.close()
        wait_until(lambda: proxy.metrics()[OPEN] <= before, seconds=15)
        load(collection, 1_000)
        wait_until(lambda: proxy.metrics()[UNJOINED] == 0)
        assert not left_open(backend)


def test_many_such_clients_leave_nothing_behind(backend: MongodProcess, proxy: ProxyProcess) -> None:
    with loaded(proxy) as collection:
        before = proxy.metrics()[OPEN]
        clients = [RawClient(proxy.port) for _ in range(60)]
        for each in clients:
            each.run({"hello": 1, "$db": "admin"})
            each.run({"count": "c", "$db": "db"})
        with stopped(backend):
            for each in clients:
                each.send(command(FIND))
            time.sleep(ON_THE_WAY_SECONDS)
            for each in clients:
                each.socket.close()
            time.sleep(ON_THE_WAY_SECONDS)
        wait_until(lambda: not left_open(backend))
        load(collection, 1_000)
        wait_until(lambda: proxy.metrics()[UNJOINED] == 0)
        wait_until(lambda: proxy.metrics()[OPEN] <= before)
