"""A backend of documents in memory with a network in front that loses, delays and repeats."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bson import ObjectId

from catalog.bson import raw
from catalog.bson.codec import decode, encode
from catalog.commit.restart_dedup import NOTHING_UPDATE
from catalog.commit.rows import digest_of, rows_in
from catalog.errors import BackendUnavailable, CommandError, Fenced, Withheld
from catalog.kernel import Measurement
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.ports import (
    Acknowledgement,
    Applied,
    BulkOutcome,
    MaySend,
    OnOutcome,
    PreparedJoin,
    Rejected,
    Span,
    Unknown,
    WriteConcern,
)
from proxy.backend.write_numbers import WriteNumber, WriteNumbers
from tests.simulation.auditor import Auditor
from tests.simulation.numbered import Sessions
from tests.support.begins import Begins
from tests.support.catalog_parts import is_of_family
from tests.support.update_expressions import MISSING, at, matches, milliseconds, updated

MAX_COUNT = 20


@dataclass
class Faults:
    """How probable each fault is, by command."""

    refused: float = 0.02
    lost_before: float = 0.03
    lost_after: float = 0.03
    late: float = 0.02
    rejected: float = 0.01
    interrupted: float = 0.01
    statement_error: float = 0.005
    stall: float = 0.003
    failed_read: float = 0.03
    waits: float = 0.0
    """Of commits that may wait, for a connection: nothing of the process is in progress meanwhile."""

    @classmethod
    def none(cls) -> Faults:
        return cls(0, 0, 0, 0, 0, 0, 0, 0, 0)


@dataclass
class Stored:
    """One incarnation of the bucket collection."""

    collection: VirtualCollection
    documents: dict[bytes, dict[str, Any]] = field(default_factory=dict)


@dataclass
class _Sent:
    number: int
    sender: object
    is_hidden: bool
    """Whether it lies in the network."""


class Server:
    """Executes commands one at a time, as a single-document-atomic server does."""

    def __init__(self, chance: random.Random, auditor: Auditor) -> None:
        self.chance = chance
        self.auditor = auditor
        self.faults = Faults()
        self.failed: Callable[[BaseException], None] = lambda error: None
        """Called if the auditor finds that a command has done harm."""
        self.stalled_until = 0.0
        self.current: Stored | None = None
        self.commands = 0
        self.joins = 0
        self.scans = 0
        self.withheld = 0
        """Commits that were not sent because others might have executed a part of them."""
        self.deleted: set[bytes] = set()
        """Buckets that somebody deleted; see ``Port._send``."""
        self.sessions = Sessions()
        self._incarnations = 0
        self._handed_over = 0
        self._sent: dict[asyncio.Task[None], _Sent] = {}
        """What was handed over and has not run."""

    def create(self) -> VirtualCollection:
        """The collection comes into being, under a new identity."""
        self._incarnations += 1
        options = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
        uuid = self._incarnations.to_bytes(16, "big")
        collection = VirtualCollection(Namespace("db", "c"), options, uuid)
        self.current = Stored(collection)
        return collection

    def drop(self) -> None:
        """The collection is gone with all that it held."""
        if self.current is not None:
            for document in self.current.documents.values():
                self.auditor.removed(document)
        self.current = None

    def operations(self, sender: object) -> frozenset[str]:
        """What of this sender has yet to run, by number."""
        return frozenset(
            str(each.number) for each in self._sent.values() if each.sender is sender and not each.is_hidden
        )

    def is_connected(self, sender: object) -> bool:
        """Whether anything of this sender has yet to run, although it may lie in the network."""
        return any(each.sender is sender for each in self._sent.values())

    def hand_over(
        self, work: Callable[[], None], delay_seconds: float, sender: object = None, *, is_hidden: bool = False
    ) -> None:
        """The command is on the server now; it runs whatever becomes of the connection.

        ``is_hidden``: it is not on the server before ``delay_seconds`` have passed.
        """
        self._handed_over += 1
        sent = _Sent(self._handed_over, sender, is_hidden)

        async def run() -> None:
            await asyncio.sleep(delay_seconds)
            sent.is_hidden = False
            loop = asyncio.get_running_loop()
            while loop.time() < self.stalled_until:  # noqa: ASYNC110 - it may be put off while it is waited for
                await asyncio.sleep(self.stalled_until - loop.time())
            work()

        task = asyncio.get_running_loop().create_task(run())
        self._sent[task] = sent
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        del self._sent[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    async def settle(self) -> None:
        """Wait until every command that was handed over has run."""
        while self._sent:
            await asyncio.wait(set(self._sent))

    # --- execution -----------------------------------------------------------------------------------------

    def insert(
        self, collection: VirtualCollection, documents: Sequence[bytes], interrupt: bool
    ) -> Applied | CommandError:
        if (stored := self._resolved(collection)) is None:
            return CommandError(361, "Collection UUID does not match that specified")
        errors: dict[int, CommandError] = {}
        for index, encoded in enumerate(documents):
            if interrupt and index * 2 >= len(documents):
                return CommandError(11601, "operation was interrupted")
            document = decode(encoded)
            identity = document["_id"].binary
            if identity in stored.documents:
                errors[index] = CommandError(11000, "E11000 duplicate key error")
            elif self.chance.random() < self.faults.statement_error:
                errors[index] = CommandError(121, "Document failed validation")
            else:
                stored.documents[identity] = document
                self.auditor.stored(document, 0)
        return Applied(len(documents) - len(errors), errors, Acknowledgement())

    def update(
        self, collection: VirtualCollection, statements: Sequence[bytes], interrupt: bool
    ) -> Applied | CommandError:
        if (stored := self._resolved(collection)) is None:
            return CommandError(361, "Collection UUID does not match that specified")
        errors: dict[int, CommandError] = {}
        matched = 0
        for index, encoded in enumerate(statements):
            if interrupt and index * 2 >= len(statements):
                return CommandError(11601, "operation was interrupted")
            statement = decode(encoded)
            identity = statement["q"]["_id"].binary
            document = stored.documents.get(identity)
            if self.chance.random() < self.faults.statement_error:
                errors[index] = CommandError(121, "Document failed validation")
            elif document is not None and matches(document, statement["q"]):
                before = len(document["data"]["t"])
                stored.documents[identity] = updated(document, statement["u"])
                self.auditor.stored(stored.documents[identity], before)
                matched += 1
        return Applied(matched, errors, Acknowledgement())

    def _resolved(self, collection: VirtualCollection) -> Stored | None:
        current = self.current
        return current if current is not None and current.collection.uuid == collection.uuid else None


class Port:
    """``BucketStore`` of one proxy process towards the server."""

    def __init__(self, server: Server, numbers: WriteNumbers | None = None) -> None:
        """``numbers``: of this process, towards a replica set."""
        self.numbers = numbers
        self._server = server
        self._under_way: set[bytes] = set()
        self.begins = Begins()
        self.killed = False

    async def kill(self) -> None:
        """Nothing is sent any more, and nobody is told of what was."""
        self.killed = True
        await self.begins.cancel()

    def begin(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        told: OnOutcome,
        *,
        grows: bool,
    ) -> bool:
        if self.killed:
            return True  # nothing leaves the process any more
        if self.numbers is not None:
            return False  # as to replica sets
        if self._server.commands % 3 == 0:
            return False
        send = self.update if grows else self.insert
        return self.begins.begin(send(collection, statements, write_concern, deadline_seconds), told)

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        ids = [raw.fields_of(document)[b"_id"][1:] for document in documents]
        return await self._write(self._server.insert, collection, documents, ids, deadline_seconds, may_send)

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        ids = [raw.fields_of(raw.fields_of(each)[b"q"], 1)[b"_id"][1:] for each in statements if each != NOTHING_UPDATE]
        return await self._write(self._server.update, collection, statements, ids, deadline_seconds, may_send)

    async def _write(
        self,
        execute: Callable[[VirtualCollection, Sequence[bytes], bool], Applied | CommandError],
        collection: VirtualCollection,
        statements: Sequence[bytes],
        ids: Sequence[bytes],
        deadline_seconds: float,
        may_send: MaySend | None,
    ) -> BulkOutcome:
        """One commit of a bucket at a time, and one statement of a bucket in a command (W64)."""
        assert self._under_way.isdisjoint(ids), "two commits of one bucket at the same time"
        assert len(set(ids)) == len(ids), "one bucket twice in a command"
        self._under_way.update(ids)
        try:
            return await self._send(execute, collection, statements, deadline_seconds, may_send)
        finally:
            self._under_way.difference_update(ids)

    async def _send(
        self,
        execute: Callable[[VirtualCollection, Sequence[bytes], bool], Applied | CommandError],
        collection: VirtualCollection,
        statements: Sequence[bytes],
        deadline_seconds: float,
        may_send: MaySend | None,
    ) -> BulkOutcome:
        used: list[WriteNumber] = []
        outcome: BulkOutcome | None = None
        try:
            outcome = await self._attempt(execute, collection, statements, deadline_seconds, may_send, used)
        finally:
            is_fenced = self.numbers is not None and self.numbers.ended(used, outcome)
        return Rejected(Fenced()) if is_fenced else outcome

    async def _attempt(
        self,
        execute: Callable[[VirtualCollection, Sequence[bytes], bool], Applied | CommandError],
        collection: VirtualCollection,
        statements: Sequence[bytes],
        deadline_seconds: float,
        may_send: MaySend | None,
        used: list[WriteNumber],
    ) -> BulkOutcome:
        server, chance, faults = self._server, self._server.chance, self._server.faults
        loop = asyncio.get_running_loop()
        server.commands += 1
        await asyncio.sleep(chance.random() * 0.01)
        if may_send is not None and chance.random() < faults.waits:
            await asyncio.sleep(max(min(deadline_seconds - loop.time(), chance.choice((0.5, 5.0, 25.0))), 0))
        if may_send is not None and not may_send():
            server.withheld += 1
            return Rejected(Withheld())
        lot = chance.random()
        if (lot := lot - faults.refused) < 0:
            await asyncio.sleep(max(min(deadline_seconds, loop.time() + chance.choice((0, 1, 60))) - loop.time(), 0))
            return Rejected(BackendUnavailable("connection refused"))
        if self.numbers is not None:
            used.append(self.numbers.take())
        number = used[-1].number if used else 0  # a session that is given back may get another one
        if (lot := lot - faults.rejected) < 0:
            return Rejected(CommandError(13, "not authorized"))
        if (lot := lot - faults.lost_before) < 0:
            await asyncio.sleep(0.1)
            return Unknown(BackendUnavailable("connection reset"))
        answer: asyncio.Future[Applied | CommandError] = loop.create_future()
        interrupt = chance.random() < faults.interrupted

        def work() -> None:
            begun = server.sessions.begin(used[-1].session, number) if used else None
            outcome = begun if isinstance(begun, CommandError) else execute(collection, statements, interrupt)
            if not answer.done():
                answer.set_result(outcome)

        if (lot := lot - faults.stall) < 0 and loop.time() >= server.stalled_until:
            server.stalled_until = loop.time() + chance.choice((1, 20, 90))
        if (lot := lot - faults.late) < 0:
            # An insert that lies on the server while its repetition is executed, and its bucket filled and deleted,
            # would bring the bucket back to life; no guard can stop that, so it does not happen here.
            left_behind = work if execute == server.update else self._unless_deleted(work, statements)
            # Where fences can keep it out, it may also come from a process that was killed meanwhile.
            sender = None if self.numbers is None else self
            server.hand_over(left_behind, chance.choice((0.05, 1, 10, 50)), sender, is_hidden=True)
            await asyncio.sleep(0.1)
            return Unknown(BackendUnavailable("connection reset"))
        is_hidden = self.numbers is not None and chance.random() < 0.5
        server.hand_over(work, chance.random() * 0.01, self, is_hidden=is_hidden)
        try:
            async with asyncio.timeout_at(max(deadline_seconds, loop.time() + 1)):
                outcome = await answer
        except TimeoutError:
            return Unknown(BackendUnavailable("no answer in time"))
        await asyncio.sleep(chance.random() * 0.01)
        if (lot := lot - faults.lost_after) < 0:
            await asyncio.sleep(0.1)
            return Unknown(BackendUnavailable("connection reset"))
        return Rejected(outcome) if isinstance(outcome, CommandError) else outcome

    def _unless_deleted(self, work: Callable[[], None], documents: Sequence[bytes]) -> Callable[[], None]:
        def left_behind() -> None:
            if not any(raw.fields_of(each)[b"_id"][1:] in self._server.deleted for each in documents):
                work()

        return left_behind

    # --- reading -------------------------------------------------------------------------------------------

    async def _read(self, collection: VirtualCollection, deadline_seconds: float) -> list[dict[str, Any]]:
        server = self._server
        loop = asyncio.get_running_loop()
        await asyncio.sleep(server.chance.random() * 0.01)
        if loop.time() < server.stalled_until:
            await asyncio.sleep(max(min(server.stalled_until, deadline_seconds) - loop.time(), 0))
        if loop.time() < server.stalled_until or server.chance.random() < server.faults.failed_read:
            raise BackendUnavailable("connection reset")
        # Reads go by name; they do not know the incarnation.
        return [] if server.current is None else list(server.current.documents.values())

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        wanted = set(bucket_ids)
        documents = await self._read(collection, deadline_seconds)
        return {each["_id"].binary: encode(each) for each in documents if each["_id"].binary in wanted}

    async def stored_until_ms(self, collection: VirtualCollection, deadline_seconds: float) -> int:
        documents = await self._read(collection, deadline_seconds)
        return max((milliseconds(each["control"]["min"]["t"]) for each in documents), default=-(1 << 63))

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        documents = await self._read(collection, deadline_seconds)
        await asyncio.sleep(self._server.chance.random() * 0.01)
        times = {decode(raw.document((raw.element(b"m", meta),)))["m"] if meta else None: t for meta, t in wanted}
        return [
            encode(each)
            for each in documents
            if each.get("meta") in times
            and milliseconds(each["control"]["min"]["t"]) <= times[each.get("meta")]
            and times[each.get("meta")] < milliseconds(each["control"]["min"]["t"]) + 3_600_000
            and not each["control"].get("closed")
            and at(each, f"data.t.{MAX_COUNT - 1}") is MISSING
        ]

    async def fetch_family(
        self, collection: VirtualCollection, bucket_id: bytes, prefixes: Sequence[bytes], deadline_seconds: float
    ) -> Sequence[bytes]:
        documents = await self._read(collection, deadline_seconds)
        return [encode(each) for each in documents if is_of_family(each["_id"].binary, bucket_id, prefixes)]

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        wanted = {digest_of(each) for each in measurements}
        rows: Counter[bytes] = Counter()
        for document in await self._read(collection, deadline_seconds):
            for digest, count in _rows_in(encode(document)).items():
                if digest in wanted:
                    rows[digest] += count
        return dict(rows)

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        # Rows of the simulation are unique, so what is there is of the earlier process.
        return await self.stored_rows(collection, measurements, deadline_seconds)

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        raise NotImplementedError

    async def resolve(self, collection: VirtualCollection) -> VirtualCollection | None:
        await self._read(collection, asyncio.get_running_loop().time() + 30)
        current = self._server.current
        return None if current is None else current.collection


@lru_cache(4096)
def _rows_in(document: bytes) -> Mapping[bytes, int]:
    """Most documents are the same at the next search."""
    return rows_in(document)


def new_bucket_like(document: Mapping[str, Any], identity: bytes) -> dict[str, Any]:
    """A bucket of somebody else under an id that a proxy may choose next."""
    return {**document, "_id": ObjectId(identity)}
