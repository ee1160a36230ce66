"""What a client has sent without wanting a reply is carried out, also if it disconnects at once."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.wire.op_compressed import COMPRESSOR_IDS
from proxy.wire.op_msg import MORE_TO_COME
from tests.support.certificates import Certificates
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import command, compressed

COUNT = 300
"""As many as the proxy reads in advance, so that it sees the end of the connection before most of them."""
START = datetime(2024, 1, 1, tzinfo=UTC)

Wrap = Callable[[socket.socket], socket.socket]


@pytest.fixture(scope="module")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongodProcess]:
    """One of this module's own: it is paused."""
    process = MongodProcess(tmp_path_factory.mktemp("left") / "mongod")
    try:
        process.start()
        yield process
    finally:
        process.remove()


@pytest.fixture(autouse=True)
def empty(mongod: MongodProcess) -> Iterator[None]:
    """Each test begins without the database."""
    yield
    mongod.shared_client.drop_database("left")


def in_tls(connection: socket.socket) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # TLS 1.3 sends tickets; whoever closes a socket with unread data resets the connection.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection)


def insert(collection: str, number: int) -> bytes:
    documents = [{"_id": number, "t": START + timedelta(seconds=number)}]
    body = {"insert": collection, "documents": documents, "writeConcern": {"w": 0}, "$db": "left"}
    return command(body, flags=MORE_TO_COME)


def send_and_leave(port: int, messages: list[bytes], wrap: Wrap, *, resets: bool = False) -> None:
    """``resets``: as a process that is killed with unread replies; a little later, as a reset may overtake data."""
    with socket.create_connection((LOOPBACK, port)) as plain, wrap(plain) as connection:
        for each in messages:
            connection.sendall(each)
        if resets:
            time.sleep(0.3)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stored(uri_client: Any, collection: str) -> int:
    with uri_client() as client:
        return len({row["_id"] for row in client.left[collection].find()})


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("form", ["plain", "compressed", "tls"])
@pytest.mark.parametrize("collection", ["ordinary", "series"])
def test_writes_without_a_reply_outlast_their_client(
    mongod: MongodProcess, tmp_path: Path, form: str, collection: str, *, resets: bool
) -> None:
    flags: list[str] = []
    if form == "tls":
        certificates = Certificates.make(tmp_path / "certificates")
        flags = ["--tls-certificate-file", str(certificates.server)]
    wrap = in_tls if form == "tls" else lambda connection: connection
    messages = [insert(collection, number) for number in range(COUNT)]
    if form == "compressed":
        messages = [compressed(each, COMPRESSOR_IDS["zlib"]) for each in messages]
    with mongod.client() as native:
        options = {"timeseries": {"timeField": "t"}} if collection == "series" else {}
        native.left.create_collection(collection, **options)
        if form == "plain":
            send_and_leave(mongod.port, messages, wrap, resets=resets)
            mongod.wait_until(lambda: stored(mongod.client, collection) == COUNT)
            native.left[collection].drop()
            native.left.create_collection(collection, **options)
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=flags)
    try:
        proxy.start(wait=False)
        proxy.wait_until(lambda: proxy.log.count(" ready ") > 0)
        # The collection is known, and a connection open.
        send_and_leave(proxy.port, [insert(collection, -1)], wrap)
        proxy.wait_until(lambda: stored(mongod.client, collection) == 1)
        mongod.pause()
        try:
            send_and_leave(proxy.port, messages, wrap, resets=resets)
            proxy.wait_until(lambda: open_connections(proxy) == 1, timeout_seconds=10)
        finally:
            mongod.resume()
        proxy.wait_until(lambda: stored(mongod.client, collection) == 1 + COUNT)
        proxy.wait_until(lambda: open_connections(proxy) == 0)
    finally:
        proxy.stop()


def open_connections(proxy: ProxyProcess) -> int:
    return int(proxy.metrics()["tsproxy_connections_open"])


@pytest.fixture
def proxy(tmp_path: Path, mongod: MongodProcess) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(tmp_path, mongod.uri)) as process:
        yield process


@pytest.mark.parametrize("body", [{"drop": "series"}, {"dropDatabase": 1}, {"drop": "system.buckets.series"}])
def test_what_a_client_that_has_left_has_changed_is_known(
    mongod: MongodProcess, proxy: ProxyProcess, body: dict[str, Any]
) -> None:
    """It leaves while the server has its command; others write into what is there afterwards, as natively."""
    with proxy.client() as client, mongod.client() as native:
        client.left.create_collection("series", timeseries={"timeField": "t"})
        client.left.series.insert_one({"_id": 1, "t": START})
        with socket.create_connection((LOOPBACK, proxy.port)) as leaver:
            leaver.sendall(command({"ping": 1, "$db": "left"}))
            assert leaver.recv(1000)
            mongod.pause()
            leaver.sendall(command({**body, "$db": "left"}))
            time.sleep(0.2)
        time.sleep(0.2)
        mongod.resume()
        mongod.wait_until(lambda: "series" not in native.left.list_collection_names())
        client.left.series.insert_one({"_id": 2, "t": START})
        assert [row["_id"] for row in native.left.series.find()] == [2]
        assert native.left.series.options() == {}


def test_clients_that_leave_before_their_reply_leave_nothing_behind(mongod: MongodProcess, proxy: ProxyProcess) -> None:
    """Neither on their first command, for which the backend's connection is opened, nor on later ones."""
    filler = "x" * 60_000

    def come_and_go(count: int, *, is_first: bool) -> None:
        leavers = [socket.create_connection((LOOPBACK, proxy.port)) for _ in range(count)]
        for each in leavers if not is_first else ():
            each.sendall(command({"ping": 1, "$db": "left"}))
            assert each.recv(1000)
        mongod.pause()
        for each in leavers:
            each.sendall(command({"drop": "nothing", "comment": filler, "$db": "left"}))
        time.sleep(0.5)
        for each in leavers:
            each.close()
        proxy.wait_until(lambda: open_connections(proxy) == 0)
        mongod.resume()
        # What they have begun ends now.
        time.sleep(0.5)

    def resident_bytes() -> float:
        return proxy.metrics()["process_resident_memory_bytes"]

    for is_first in (True, False):
        come_and_go(100, is_first=is_first)
        before_bytes = resident_bytes()
        for _ in range(5):
            come_and_go(100, is_first=is_first)
        # Each would keep 130 KB.
        assert resident_bytes() - before_bytes < 35_000_000
