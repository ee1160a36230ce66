"""Clients that feed the proxy's memory whatever they can: what it takes stays below what docs/operating.md says."""

from __future__ import annotations

import datetime as dt
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import Binary, Int64

from catalog.commit import statements
from proxy.backend import namespace_registry
from proxy.members import read_preference
from proxy.reads import cursor_names
from proxy.request import authorisation, recognition
from proxy.wire.message import HEADER, Opcode
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import RawClient, body, op_msg_bytes, sequence

GROWN_BYTES = 24 << 20
"""For one kind of food of more than twice as much; allocators keep some of what was let go."""
MEGABYTE = "x" * (1 << 20)
NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def fed(replica_set: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy whose memory nobody else uses."""
    with started(ProxyProcess(tmp_path_factory.mktemp("fed"), replica_set.uri)) as server:
        yield server


def resident_bytes(proxy: ProxyProcess) -> int:
    return int(Path(f"/proc/{proxy.pid}/statm").read_text().split()[1]) * 4096


def session() -> dict[str, Any]:
    return {"id": Binary.from_uuid(uuid4())}


def unknown_commands(client: RawClient, database: str) -> None:
    for number in range(80):
        client.run({f"{number}{MEGABYTE[:900_000]}": 1, "$db": database})


def long_bodies(client: RawClient, database: str) -> None:
    for _ in range(80):
        insert = {"insert": "ts", "lsid": session(), "comment": MEGABYTE, "$db": database}
        client.send(op_msg_bytes(body(insert), sequence("documents", {"t": NOW, "m": 1})))
        assert client.receive() is not None


def large_documents(client: RawClient, database: str) -> None:
    """What they say is no measurement, but their command is understood."""
    for _ in range(25):
        insert = {"insert": "ts", "lsid": session(), "ordered": False, "$db": database}
        client.send(op_msg_bytes(body(insert), sequence("documents", *({"x": MEGABYTE} for _ in range(3)))))
        assert client.receive() is not None


def long_sessions(client: RawClient, database: str) -> None:
    for number in range(80):
        lsid = {**session(), "more": MEGABYTE}
        insert = {"insert": "ts", "lsid": lsid, "txnNumber": Int64(number), "$db": database}
        client.send(op_msg_bytes(body(insert), sequence("documents", {"t": NOW, "m": 1})))
        assert client.receive() is not None


def long_write_concerns(client: RawClient, database: str) -> None:
    for number in range(80):
        concern = {"w": f"{number}{MEGABYTE}", "wtimeout": 1}
        insert = {"insert": "ts", "writeConcern": concern, "$db": database}
        client.send(op_msg_bytes(body(insert), sequence("documents", {"t": NOW, "m": number})))
        assert client.receive() is not None


def long_names(client: RawClient, database: str) -> None:
    for number in range(1_500):
        client.run({"find": f"{number}{MEGABYTE[:60_000]}", "$db": database})


def long_questions(client: RawClient, database: str) -> None:
    for number in range(200):
        arms = [{"m": number, "a": index} for index in range(200)]
        client.run({"find": "ts", "filter": {"$or": arms}, "lsid": session(), "$db": database})


def long_field_names(client: RawClient, database: str) -> None:
    """Those of the fields of collections, which a listing shows twice; a user needs only to be allowed to create."""
    for number in range(24):
        series = {"timeField": f"{number}{MEGABYTE}", "metaField": f"m{MEGABYTE}"}
        client.run({"create": f"ts_{number}", "timeseries": series, "$db": database})
    client.run({"find": "ts_0", "$db": database})


FOOD: list[Callable[[RawClient, str], None]] = [
    unknown_commands,
    long_bodies,
    large_documents,
    long_sessions,
    long_write_concerns,
    long_names,
    long_questions,
    long_field_names,
]


def test_nothing_that_clients_send_stays(fed: ProxyProcess, replica_set: MongodProcess, db_name: str) -> None:
    """One after the other, and then all of it is there at once."""
    replica_set.shared_client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    with RawClient(fed.port) as client:
        client.run({"find": "ts", "$db": db_name})
        before = last = resident_bytes(fed)
        grown = {}
        for feed in FOOD:
            feed(client, db_name)
            now = resident_bytes(fed)
            grown[feed.__name__] = (now - last) >> 20
            last = now
        assert max(grown.values()) < GROWN_BYTES >> 20, grown
        assert last - before < 2 * GROWN_BYTES, grown
        assert last < 512 << 20


RECEIVING_BYTES = 192_000_000


@pytest.fixture
def fed_at_once(replica_set: MongodProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    with started(
        ProxyProcess(tmp_path, replica_set.uri, flags=["--max-receiving-bytes", str(RECEIVING_BYTES)])
    ) as server:
        yield server


def most_resident_bytes(proxy: ProxyProcess) -> int:
    """Ever since it started."""
    status = Path(f"/proc/{proxy.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def send_in_part(stack: ExitStack, proxy: ProxyProcess) -> int:
    """Over many connections, as much of a message of 48 MB but its end as the proxy takes; in bytes."""
    beginning = HEADER.pack(48_000_000, 1, 0, Opcode.MSG) + bytes(47_000_000)
    places = []
    for _ in range(20):
        client = stack.enter_context(socket.create_connection((LOOPBACK, proxy.port)))
        client.setblocking(False)
        places.append([client, 0])
    taken, idle = 0, 0
    while idle < 20:
        before = taken
        for place in places:
            client, at = place
            with suppress(BlockingIOError):
                sent = client.send(beginning[at : at + 1_000_000])
                place[1] += sent
                taken += sent
        idle = 0 if taken > before else idle + 1
        time.sleep(0.02)
    return taken


@pytest.mark.timeout(300)
def test_all_of_this_at_once(fed_at_once: ProxyProcess, replica_set: MongodProcess, db_name: str) -> None:
    """Every kind by a client of its own, while others keep as much as they can of messages that never end."""
    replica_set.shared_client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})

    def fed_by(feed: Callable[[RawClient, str], None]) -> None:
        with RawClient(fed_at_once.port, 200) as client:
            feed(client, db_name)

    with ExitStack() as stack:
        taken = send_in_part(stack, fed_at_once)
        # Sockets of the kernel hold some of it, too.
        assert RECEIVING_BYTES // 3 < taken < 2 * RECEIVING_BYTES
        with ThreadPoolExecutor(len(FOOD)) as threads:
            for fed in [threads.submit(fed_by, feed) for feed in FOOD]:
                fed.result()
        assert most_resident_bytes(fed_at_once) < (512 << 20) + RECEIVING_BYTES
    with RawClient(fed_at_once.port, 60) as client:
        assert client.run({"ping": 1, "$db": "admin"})["ok"] == 1
    fed_at_once.wait_until(lambda: resident_bytes(fed_at_once) < 512 << 20)


def test_greetings_of_clients_do_not_stay(fed: ProxyProcess) -> None:
    """Neither what a hello says, nor the answers that its client does not read."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(fed.port)) for _ in range(150)]
        version = clients[0].run({"hello": 1, "$db": "admin"})["topologyVersion"]
        before = resident_bytes(fed)
        watch = {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 0, "comment": MEGABYTE, "$db": "admin"}
        for client in clients:
            client.send(op_msg_bytes(body(watch), flags=1 << 16))
            assert client.receive() is not None
        assert resident_bytes(fed) - before < GROWN_BYTES


def test_caches_together_stay_below_what_is_documented() -> None:
    limits = (
        recognition.REMEMBERED_BYTES, recognition.MOST_FORMS * recognition.FORM_BYTES,
        namespace_registry.LISTINGS_BYTES, authorisation.ANSWERS_BYTES, statements.LOG_BYTES,
        1024 * (2 * cursor_names.MAX_REMEMBERED + read_preference.MAX_CURSORS // 4),
    )  # fmt: skip
    assert sum(limits) <= 256 << 20
    assert "256 MiB" in (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
