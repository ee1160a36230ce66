"""Coalesced inserts under simulation: the real ``Coalescer`` and its store, and a server that stores rows itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from bson import Binary, Int64, ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.bson.codec import decode, encode
from catalog.commit.committer import Committer
from catalog.commit.reclaiming import Reclaiming
from catalog.commit.restart_dedup import RestartDedup
from catalog.errors import CommandError, Withheld
from catalog.namespaces import VirtualCollection
from catalog.ports import Clock, MaySend
from proxy.backend.collection_store import CollectionStore
from proxy.backend.service_connection import LostAfterSending, NotSent
from proxy.backend.write_numbers import WriteNumbers
from proxy.inserts.coalescing import Coalescer
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.native_inserts import count_plain, has_empty_meta
from proxy.inserts.native_staging import NativeStaging
from proxy.inserts.plain_insert import Inserts
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.simulation.numbered import SECRET
from tests.simulation.server import Port, Server
from tests.support.exchanges import Told
from tests.support.update_expressions import milliseconds

ROUNDING_MS = 60_000
INTERRUPTED = (11601, 11602)
"""Errors of the whole command: it was killed, or the server steps down. Some documents have been inserted."""

Reply = dict[str, Any]


class TimeSeries:
    """Executes inserts into the collection itself, each document as a bucket of its own, and each number once."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.processes = 0
        """How many have had numbers for their commands."""
        self.inserted = 0
        self.repeated = 0
        """Documents that were not inserted again."""

    def insert(self, command: Mapping[str, Any], documents: Sequence[bytes], interrupt: bool) -> Reply:
        recorded = self._server.sessions.begin(command["lsid"], int(command["txnNumber"]))
        if isinstance(recorded, CommandError):
            return {"ok": 0.0, "code": recorded.code, "errmsg": recorded.message}
        inserted, errors = 0, list[Reply]()
        for index, document in enumerate(documents):
            if interrupt and index * 2 >= len(documents):
                code = self._server.chance.choice(INTERRUPTED)
                return {"ok": 0.0, "code": code, "errmsg": "operation was interrupted"}
            if index in recorded.executed:
                self.repeated += 1
            elif self._server.chance.random() < self._server.faults.statement_error:
                errors.append({"index": index, "code": 121, "errmsg": "Document failed validation"})
                if command["ordered"]:
                    break
                continue
            else:
                self._store(decode(document))
                recorded.executed.add(index)
            inserted += 1
        return {"n": inserted, **({"writeErrors": errors} if errors else {}), "ok": 1.0}

    def _store(self, measurement: Mapping[str, Any]) -> None:
        assert self._server.current is not None
        self.inserted += 1
        start_ms = milliseconds(measurement["t"]) // ROUNDING_MS * ROUNDING_MS
        # No proxy of the simulation chooses these.
        identity = (start_ms // 1000).to_bytes(4, "big") + b"\xff" * 5 + self.inserted.to_bytes(3, "big")
        row = {name: value for name, value in measurement.items() if name != "m"}
        bucket: dict[str, Any] = {
            "_id": ObjectId(identity),
            "control": {"version": 1, "min": {**row, "t": DatetimeMS(start_ms)}, "max": dict(row)},
            **({"meta": measurement["m"]} if "m" in measurement else {}),
            "data": {name: {"0": value} for name, value in row.items()},
        }
        self._server.current.documents[identity] = bucket
        self._server.auditor.stored(bucket, 0)


class _Line:
    """``proxy.backend.service.ServicePool`` of one process, as far as ``CollectionStore`` needs it."""

    def __init__(self, server: Server, target: TimeSeries, port: Port) -> None:
        self._server = server
        self._target = target
        self._port = port
        target.processes += 1
        numbers = port.numbers or WriteNumbers(SECRET, f"tsproxy {target.processes}")
        self.family = SimpleNamespace(times=SimpleNamespace(hear=lambda fields: None), numbers=numbers)

    def forget_primary(self) -> None:
        """There is only one server."""

    async def request(
        self,
        body: bytes,
        deadline_seconds: float,
        identifier: str,
        documents: Sequence[bytes],
        may_send: MaySend | None,
    ) -> bytes:
        """Refused, withheld, lost, executed late, or answered."""
        server, chance, faults = self._server, self._server.chance, self._server.faults
        loop = asyncio.get_running_loop()
        await asyncio.sleep(chance.random() * 0.01)
        if may_send is not None and chance.random() < faults.waits:
            await asyncio.sleep(max(min(deadline_seconds - loop.time(), chance.choice((0.5, 5.0, 25.0))), 0))
        if chance.random() < faults.refused:
            await asyncio.sleep(max(min(deadline_seconds, loop.time() + chance.choice((0, 1, 60))) - loop.time(), 0))
            raise NotSent("connection refused")
        if self._port.killed:
            raise NotSent("the process has gone")
        if may_send is not None and not may_send():
            server.withheld += 1
            raise Withheld
        if chance.random() < faults.lost_before:
            raise LostAfterSending("connection reset")
        answer: asyncio.Future[Reply] = loop.create_future()
        command, interrupt = decode(body), chance.random() < faults.interrupted

        def work() -> None:
            reply = self._target.insert(command, documents, interrupt)
            if not answer.done():
                answer.set_result(reply)

        if chance.random() < faults.stall and loop.time() >= server.stalled_until:
            server.stalled_until = loop.time() + chance.choice((1, 20, 90))
        if chance.random() < faults.late:
            sender = None if self._port.numbers is None else self._port
            server.hand_over(work, chance.choice((0.05, 1, 10, 50)), sender, is_hidden=True)
            raise LostAfterSending("connection reset")
        is_hidden = self._port.numbers is not None and chance.random() < 0.5
        server.hand_over(work, chance.random() * 0.01, self._port, is_hidden=is_hidden)
        try:
            async with asyncio.timeout_at(max(deadline_seconds, loop.time() + 1)):
                reply = await answer
        except TimeoutError:
            raise LostAfterSending("no answer in time") from None
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.lost_after:
            raise LostAfterSending("connection reset")
        return encode(reply)


class Coalescing:
    """Coalesces some of the small inserts of one process; implements ``proxy.inserts.small_inserts.SmallInserts``."""

    def __init__(
        self,
        server: Server,
        target: TimeSeries,
        port: Port,
        clock: Clock,
        committer: Committer,
        handler: InsertHandler,
        share: float,
    ) -> None:
        """``share``: the probability that a small insert is coalesced."""
        rows: Any = SimpleNamespace(writes=lambda collection: None)
        line: Any = _Line(server, target, port)
        options = committer.options
        dedup = RestartDedup(
            port, clock, options.restart_window_seconds, options.server_selection_timeout_seconds, committer.spawn
        )
        self.reclaiming = Reclaiming(dedup)
        self.coalescer = Coalescer(
            CollectionStore(line, rows, None),
            clock,
            lambda: committer.options,
            committer.report,
            committer.precedence,
            self.reclaiming,
        )
        self.staging = NativeStaging(self.coalescer, handler.statements, dedup, handler.slices)
        self._chance = server.chance
        self._share = share

    def takes(self, collection: VirtualCollection, document: bytes) -> bool:
        """Load and obstacles decide in the product; this process turns between both ways all the time."""
        if self._chance.random() >= self._share:
            return False
        return count_plain((document,), 0, collection) == 1 and not has_empty_meta((document,), 0, collection)


class _Client:
    """The client's connection, during one insert."""

    def __init__(self, connection: Session, reply: Callable[[bytes | None], None]) -> None:
        self.unsent_bytes = 0
        self._connection = connection
        self._reply = reply
        self._document: bytes | None = None

    def write(self, data: bytes) -> None:
        self._document = data[op_msg.BODY_AT :]

    def finish(self) -> None:
        # In virtual time.
        self._connection.answered_seconds = asyncio.get_running_loop().time()
        self._reply(self._document)

    def close(self) -> None:
        raise AssertionError("inserts do not close connections")


def submit(
    handler: InsertHandler,
    insert: InsertCommand,
    collection: VirtualCollection,
    connection: Session,
    reply: Callable[[bytes | None], None],
) -> None:
    """Start an insert as the message that a driver sends, because inserts of one document have a way of their own."""
    body: dict[str, Any] = {"insert": collection.namespace.collection, "ordered": insert.ordered}
    if insert.txn_number is not None:
        body |= {"lsid": {"id": Binary(insert.session.rjust(16), 4)}, "txnNumber": Int64(insert.txn_number)}
    if insert.write_concern:
        body["writeConcern"] = decode(insert.write_concern)
    body["$db"] = collection.namespace.database
    flags = 0 if insert.expects_reply else op_msg.MORE_TO_COME
    raw = op_msg.build(1, 0, encode(body), (("documents", insert.documents),), flags)
    exchange = Exchange(connection, _Client(connection, reply), Message.from_bytes(raw), Told())
    _, is_started = Inserts(handler).submit(exchange, exchange.parsed(), collection)
    assert is_started
