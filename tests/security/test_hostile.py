"""Peers that send too much, too little, too slowly or never read: they lose their connection, others lose nothing."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, started
from tests.support.wire import WireClient, op_msg

LIMIT_BYTES = 16_384


@pytest.fixture(scope="module")
def strict(guarded: GuardedMongod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    flags = ["--max-unauthenticated-seconds", "2", "--pre-auth-max-message-bytes", str(LIMIT_BYTES)]
    flags += ["--max-connections-per-address", "20"]
    with started(ProxyProcess(tmp_path_factory.mktemp("strict"), guarded.account_uri, flags=flags)) as server:
        yield server


@pytest.fixture(scope="module")
def user(guarded: GuardedMongod) -> Iterator[str]:
    name = f"user_{ObjectId()}"
    guarded.create_user("admin", name, ["readWriteAnyDatabase"])
    yield name
    guarded.shared_client.admin.command("dropUser", name)


def test_unauthenticated_idlers_are_closed_and_others_not(strict: ProxyProcess, user: str) -> None:
    with WireClient(strict.port) as idler, WireClient(strict.port) as member:
        member.login("admin", user, PASSWORD)
        assert idler.is_closed()
        assert member.command({"ping": 1, "$db": "admin"})["ok"] == 1


def test_slow_loris_is_closed(strict: ProxyProcess) -> None:
    """Bytes in drops are no command; the time runs from the last one that was whole."""
    with WireClient(strict.port) as loris:
        raw = op_msg({"ping": 1, "comment": "x" * 10_000, "$db": "admin"})
        started = time.monotonic()

        def drip() -> None:
            for byte in raw:
                loris.socket.sendall(bytes([byte]))
                time.sleep(0.05)

        with pytest.raises(ConnectionError):
            drip()
        assert time.monotonic() - started < 30


def test_large_messages_are_for_who_has_logged_in(strict: ProxyProcess, user: str) -> None:
    large = {"ping": 1, "comment": "x" * (LIMIT_BYTES + 1), "$db": "admin"}
    with WireClient(strict.port) as stranger:
        stranger.socket.sendall(op_msg(large))
        assert stranger.is_closed()
    with WireClient(strict.port) as member:
        member.login("admin", user, PASSWORD)
        assert member.command(large)["ok"] == 1


def bomb(claimed_bytes: int, real_bytes: int) -> bytes:
    squeezed = zlib.compress(b"\0" * real_bytes, 9)
    body = struct.pack("<iiB", 2013, claimed_bytes, 2) + squeezed
    return struct.pack("<iiii", 16 + len(body), 1, 0, 2012) + body


@pytest.mark.parametrize(
    ("claimed", "real"), [(10_000_000, 10_000_000), (1000, 10_000_000), (2_000_000_000, 1000), (-1, 1000)]
)
def test_decompression_bombs_are_not_unpacked(claimed: int, real: int, strict: ProxyProcess) -> None:
    before = resident_bytes(strict)
    for _ in range(10):
        with WireClient(strict.port) as stranger:
            stranger.socket.sendall(bomb(claimed, real))
            assert stranger.is_closed()
    assert resident_bytes(strict) - before < 8 << 20


def resident_bytes(proxy: ProxyProcess) -> int:
    return int(Path(f"/proc/{proxy.pid}/statm").read_text().split()[1]) * 4096


def test_connections_of_one_address_are_limited(strict: ProxyProcess) -> None:
    held = [WireClient(strict.port) for _ in range(20)]
    try:
        with WireClient(strict.port) as one_more:
            assert one_more.is_closed()
        assert held[0].command({"ping": 1, "$db": "admin"})["ok"] == 1
    finally:
        for each in held:
            each.close()


def test_reader_that_never_reads_costs_no_memory(proxy: ProxyProcess, mongod: MongodProcess, db_name: str) -> None:
    """Its reply stays with the backend: neither kept here, nor in the way of others."""
    mongod.shared_client[db_name].big.insert_many([{"_id": index, "x": "x" * 1_000_000} for index in range(15)])
    before = resident_bytes(proxy)
    silent = []
    try:
        for _ in range(8):
            each = socket.create_connection((LOOPBACK, proxy.port))
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(op_msg({"find": "big", "batchSize": 15, "$db": db_name}))
            silent.append(each)
        with proxy.client() as client:
            for _ in range(50):
                client.admin.command("ping")
        assert resident_bytes(proxy) - before < 60 << 20
    finally:
        for each in silent:
            each.close()


def test_deep_documents_harm_nobody(proxy: ProxyProcess, db_name: str) -> None:
    inner = b"\5\0\0\0\0"
    for _ in range(20_000):
        inner = struct.pack("<i", len(inner) + 8) + b"\3a\0" + inner + b"\0"
    for command in (b"find", b"insert", b"hello", b"aggregate"):
        fields = b"\2" + command + b"\0\3\0\0\0ts\0\3filter\0" + inner
        fields += b"\2$db\0" + struct.pack("<i", len(db_name) + 1) + db_name.encode() + b"\0"
        with WireClient(proxy.port) as deep:
            deep.socket.sendall(op_msg(struct.pack("<i", len(fields) + 5) + fields + b"\0"))
            try:
                deep.receive()
            except ConnectionError:
                continue
    with proxy.client() as client:
        assert client.admin.command("ping")["ok"] == 1


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def test_thousand_idle_connections_slow_nobody(proxy: ProxyProcess, scale: float) -> None:
    """The p99 of others stays within a factor of two (with a floor for what a busy machine does anyway)."""

    def p99() -> float:
        with proxy.client() as client:
            client.admin.command("ping")
            times = []
            for _ in range(400):
                started = time.perf_counter()
                client.admin.command("ping")
                times.append(time.perf_counter() - started)
        return percentile(times, 0.99)

    alone = p99()
    batches_in_round: list[Any] = []
    try:
        for _ in range(min(5000, int(1000 * scale))):
            batches_in_round.append(socket.create_connection((LOOPBACK, proxy.port), timeout=10))
        # A busy machine makes some of a few hundred pings late at times, but not each time.
        crowded = min(p99() for _ in range(3))
    finally:
        for each in batches_in_round:
            each.close()
    assert crowded <= max(2 * alone, 0.02), (alone, crowded)
