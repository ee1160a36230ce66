"""The faults that take their time; ``make test-faults`` runs them."""

from __future__ import annotations

import asyncio
import random
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from tests.faults.standstill import survive
from tests.support.books import START, stored_rows
from tests.support.fleet import Fleet, start_again
from tests.support.fleet_in_parts import FLAGS, PATIENCE_SECONDS
from tests.support.link import Link
from tests.support.mongod import MongodProcess, wheel_mongod
from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet
from tests.support.wire import op_msg

SOME = 300
MAJORITY = WriteConcern(w="majority", j=True)
TIMESERIES = {"timeField": "t", "metaField": "m"}
FAILOVERS = ["primary steps down", "primary is killed"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    nodes = ReplicaSet(tmp_path_factory.mktemp("three"))
    try:
        nodes.start()
        with nodes.client() as client:
            # While no election is in progress.
            for fault in FAILOVERS:
                client[fault.replace(" ", "_")].create_collection("c", timeseries=TIMESERIES)
        yield nodes
    finally:
        nodes.remove()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAILOVERS)
async def test_failover_of_three_nodes(three: ReplicaSet, tmp_path: Path, fault: str) -> None:
    """What a majority acknowledged outlives its primary."""
    database = fault.replace(" ", "_")
    proxy = ProxyProcess(tmp_path / "proxy", three.uri, flags=FLAGS).start()
    try:
        fleet = Fleet(proxy.uri, database, erasers=1, movers=1, write_concern=MAJORITY)

        async def events() -> None:
            for _ in range(3):
                await fleet.until(SOME)
                if fault == "primary steps down":
                    await hand_over(three)
                    continue
                primary = await asyncio.to_thread(three.await_primary)
                primary.kill()
                await fleet.until(SOME)
                await start_again(primary)
            await fleet.until(SOME)

        await fleet.run_during(events)
        with three.client() as client:
            fleet.check(client)
        assert fleet.books.longest_seconds < 4 * PATIENCE_SECONDS
    finally:
        proxy.stop()


async def hand_over(nodes: ReplicaSet) -> None:
    """The primary steps down, as soon as another member has caught up."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await asyncio.to_thread(nodes.step_down)
            except PyMongoError:
                await asyncio.sleep(0.5)


@pytest.mark.timeout(300)
async def test_standalone_is_killed_again_and_again(tmp_path: Path) -> None:
    """Without retryable writes: errors are told, nothing acknowledged is lost."""
    backend = MongodProcess(tmp_path / "mongod").start()
    proxy = ProxyProcess(tmp_path / "proxy", backend.uri, flags=FLAGS).start()
    try:
        with backend.client() as client:
            client.db.create_collection("c", timeseries=TIMESERIES)
        fleet = Fleet(proxy.uri, "db")

        async def events() -> None:
            for _ in range(5):
                await fleet.until(SOME)
                backend.kill()
                await start_again(backend)
            await fleet.until(SOME)

        await fleet.run_during(events)
        with backend.client() as client:
            fleet.check(client)
    finally:
        proxy.stop()
        backend.remove()


@pytest.mark.timeout(300)
async def test_everything_at_random(backend: MongodProcess, tmp_path: Path, database: str, scale: float) -> None:
    """Cuts, silence, kills of either process, in any order."""
    chance = random.Random(7)
    with Link(backend.port) as link:
        proxy = ProxyProcess(tmp_path / "proxy", link.uri, flags=FLAGS).start()
        try:
            fleet = Fleet(proxy.uri, database, writers=32, erasers=2)

            async def event() -> None:
                match chance.randrange(6):
                    case 0:
                        link.cut_all()
                    case 1:
                        link.cut_before_replies(chance.randrange(1, 6), least_bytes=300)
                    case 2:
                        link.hold()
                        await asyncio.sleep(chance.random() * 2)
                        link.release()
                    case 3:
                        link.slow(chance.choice((0, 0, 0.02)))
                    case 4:
                        backend.kill()
                        await start_again(backend)
                    case _:
                        proxy.kill()
                        await start_again(proxy)

            async def events() -> None:
                for _ in range(max(12, int(12 * scale))):
                    await event()
                    await fleet.until(SOME // 3)
                link.slow(0)
                await fleet.until(SOME)

            await fleet.run_during(events)
            fleet.check(backend.shared_client)
        finally:
            proxy.stop()


@pytest.mark.timeout(300)
async def test_disk_is_full(tmp_path: Path) -> None:
    """Files cannot grow any more: the server ends. With room again, all that was acknowledged is there."""
    limited = tmp_path / "limited-mongod"
    limited.write_text(f"#!/bin/sh\ntrap '' XFSZ\nulimit -f 110000\nexec {wheel_mongod()} \"$@\"\n")
    limited.chmod(0o755)
    backend = MongodProcess(tmp_path / "mongod", binary=limited, arguments=("--setParameter", "syncdelay=2")).start()
    proxy = ProxyProcess(tmp_path / "proxy", backend.uri, flags=FLAGS).start()
    payload = bson.binary.Binary(random.Random(1).randbytes(40_000))
    try:
        with backend.client() as client:
            client.db.create_collection("c", timeseries=TIMESERIES)
        fleet = Fleet(proxy.uri, "db", payload=payload)

        async def events() -> None:
            async with asyncio.timeout(120):
                while backend.running:  # noqa: ASYNC110 - nothing tells its end
                    await asyncio.sleep(0.1)
            backend.binary = wheel_mongod()
            await start_again(backend)
            await fleet.until(20)

        await fleet.run_during(events)
        assert len(fleet.books.acknowledged) > 100
        with backend.client() as client:
            fleet.check(client)
    finally:
        proxy.stop()
        backend.remove()


@pytest.mark.timeout(400)
def test_everything_stands_still_for_a_minute(backend: MongodProcess, tmp_path: Path, database: str) -> None:
    """With the proxy's own limits."""
    survive(backend, tmp_path, database, [60.0], ())


def resident_bytes(pid: int) -> int:
    """The memory that a process occupies."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.timeout(300)
async def test_backend_that_stands_still_stops_the_reading(
    backend: MongodProcess, tmp_path: Path, database: str
) -> None:
    """The proxy stops reading from clients rather than growing; afterwards all are answered and stored."""
    pending_bytes = 32 * 1024 * 1024
    flags = ("--max-pending-bytes", str(pending_bytes), "--server-selection-timeout-ms", "30000")
    proxy = ProxyProcess(tmp_path / "proxy", backend.uri, flags=flags).start()
    sent: set[ObjectId] = set()
    try:
        with proxy.client() as client:
            client[database].c.insert_one({"t": START, "m": "first"})
        connections = [await asyncio.open_connection("127.0.0.1", proxy.port, limit=1 << 20) for _ in range(40)]
        before = resident_bytes(proxy.pid)
        backend.pause()
        try:
            tasks = [asyncio.create_task(push(writer, database, n, sent)) for n, (_, writer) in enumerate(connections)]
            await asyncio.sleep(8)
            grown = resident_bytes(proxy.pid) - before
        finally:
            backend.resume()
        offered = 40 * 12 * 1024 * 1024
        assert grown < 6 * pending_bytes < offered
        answers = [asyncio.create_task(answered(reader)) for reader, _ in connections]
        await asyncio.gather(*tasks)
        for answer in answers:
            answer.cancel()
        counts = await asyncio.gather(*answers)
        assert sum(counts) > 0
        for _, writer in connections:
            writer.close()
        await asyncio.sleep(1)
        await asyncio.to_thread(proxy.stop)
        stored = Counter(row["_id"] for row in stored_rows(backend.shared_client, database))
        assert max(stored.values()) == 1
        assert len(stored) - 1 >= sum(counts)
        assert stored.keys() <= sent | set(stored_first(backend, database))
    finally:
        proxy.stop()


def stored_first(backend: MongodProcess, database: str) -> list[Any]:
    return [each["_id"] for each in backend.shared_client[database].c.find({"m": "first"})]


async def push(writer: asyncio.StreamWriter, database: str, number: int, sent: set[ObjectId]) -> None:
    """12 MB of inserts, one after the other, as fast as they are taken."""
    payload = "x" * 60_000
    for row in range(12):
        documents = [
            {"_id": ObjectId(), "t": START, "m": f"s{number}", "row": row, "payload": payload} for _ in range(17)
        ]
        sent.update(each["_id"] for each in documents)
        writer.write(op_msg({"insert": "c", "documents": documents, "$db": database}, row + 1))
        await writer.drain()


async def answered(reader: asyncio.StreamReader) -> int:
    """How many measurements were acknowledged until it is cancelled."""
    count = 0
    try:
        while True:
            head = await reader.readexactly(4)
            reply = bson.decode((head + await reader.readexactly(int.from_bytes(head, "little") - 4))[21:])
            count += reply.get("n", 0)
    except (asyncio.CancelledError, asyncio.IncompleteReadError):
        return count
