"""Writers, proxies, somebody who meddles, and a server: one run of everything under one seed."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.background.joining import Joining
from catalog.background.joining_pace import JoiningOptions
from catalog.background.orphan_parts import GONE_SECONDS
from catalog.background.replacing import Forms
from catalog.bson.codec import decode, encode
from catalog.catalog import BucketCatalog, CatalogOptions
from catalog.commit.committer import Committer, CommitterOptions
from catalog.commit.round import RoundLimits
from catalog.commit.statements import StatementLog
from catalog.growth.growth import GrowthOptions
from catalog.identity import NOBODY
from catalog.kernel import Limits, bucket_id
from catalog.namespaces import VirtualCollection
from catalog.ports import COPIES_SECONDS, Acknowledgement
from proxy.inserts.held_insert import Recipient
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.slices import Slices
from proxy.readers.register import ReaderRegister
from proxy.request.session import Session
from tests.simulation.auditor import Auditor, rows_of
from tests.simulation.commands import CommandLine
from tests.simulation.in_parts import JoinPort, Reader
from tests.simulation.loop import SeededLoop
from tests.simulation.native import Coalescing, TimeSeries, submit
from tests.simulation.peers import RETRY_AFTER_BLOCK_SECONDS, Network, Node
from tests.simulation.server import MAX_COUNT, Faults, Server, new_bucket_like
from tests.support.sessions import session
from tests.support.update_expressions import milliseconds

PATIENCE_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 4 * PATIENCE_SECONDS + 5
"""Waiting for others, seeking the backend, sending again, looking: each is over after the patience."""
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LOSSY = Faults(lost_after=0.2, late=0.1, lost_before=0.2)
CONCERNS = (b"", encode({"w": 1}), encode({"w": "majority"}))
TIME_ERROR = 2
TO_PROXY_SECONDS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.01, 0.3, 3.0, 10.0)
"""From a client, where proxies have numbers."""
LINKS_SUFFER = ("cut", "slow", "fast", "block")
LULL_EVERY = 7
"""Inserts of a writer between two lulls."""


@dataclass
class Plan:
    """What kind of run it is; drawn from the seed unless a test fixes it."""

    writers: int = 12
    inserts_each: int = 25
    series: int = 6
    faults: Faults = field(default_factory=Faults)
    meddling: bool = True
    meddling_pauses_seconds: tuple[float, ...] = (0.01, 0.1, 1.0)
    deletes: bool = False
    """The one process itself deletes rows, one bucket after the other."""
    restarts: bool = True
    restart_pauses_seconds: tuple[float, ...] = (1, 5, 30)
    retries_after_restart: bool = False
    max_count: int = MAX_COUNT
    memory_threshold_bytes: int = 100_000_000
    cache_share_bytes: int = 0
    linger_seconds: float = 0.0
    max_pending_bytes: int = 1_000_000
    round_statements: int = 2_000
    reopening: bool = True
    in_parts: bool = False
    sealed: bool = False
    may_join: bool = True
    readers: int = 0
    proxies: int = 1
    """Processes on the same collection, which do not know of each other."""
    linked: bool = False
    """They ask one another, and retries go to any of them."""
    cuts: bool = False
    """Links are cut, slow and blocked."""
    numbered: bool = False
    """The backend is a replica set: writes have numbers, and fences keep them out (linked processes only)."""
    loyalty: float = 0.0
    """The share of its inserts that a client sends through one of the linked processes first, always the same."""
    one_way: bool = False
    """Most of these blocks are in one direction only: questions arrive, and their answers do not."""
    coalesced_share: float = 0.0
    """Of the inserts of one document, coalesced into native ones."""
    in_place: tuple[int, ...] = ()
    """Those of them that do not write in parts."""
    lull_seconds: float = 0.0
    """All writers stop now and then, and go on one by one within this time."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Plan:
        return cls(
            writers=chance.choice((2, 12, 40)),
            series=chance.choice((1, 6, 30)),
            faults=chance.choice((Faults(), Faults(), Faults.none(), LOSSY)),
            meddling=chance.random() < 0.7,
            restarts=chance.random() < 0.5,
            memory_threshold_bytes=chance.choice((20_000, 100_000_000)),
            cache_share_bytes=chance.choice((0, 2_000, 20_000)),
            linger_seconds=chance.choice((0.0, 0.0, 0.02)),
            max_pending_bytes=chance.choice((2_000, 1_000_000)),
            round_statements=chance.choice((2, 2_000)),
            reopening=chance.random() < 0.8,
        )


class Clock:
    """Virtual time of the loop."""

    def monotonic_seconds(self) -> float:
        return asyncio.get_running_loop().time()


class Ids:
    """Counts; each process has places of its own."""

    PLACES = 1 << 12

    def __init__(self, process: int) -> None:
        self._first_segment = process * 256
        self.first_place = process * self.PLACES
        self._segments = 0
        self.places = 0

    def suffix(self) -> bytes:
        self.places += 1
        return self.peek(0)

    def segment(self) -> bytes:
        return ((self._first_segment + self._segments) % (1 << 16)).to_bytes(2, "big")

    def next_segment(self) -> None:
        self._segments += 1

    def made(self, stored_id: bytes) -> bool:
        return int.from_bytes(stored_id[6:9], "big") // self.PLACES == self.first_place // self.PLACES

    def peek(self, ahead: int) -> bytes:
        """The id that comes after ``ahead`` others."""
        assert self.places + ahead <= self.PLACES
        return self.segment() + (self.first_place + self.places + ahead - 1).to_bytes(3, "big") + bytes(3)


class Process:
    """One life of a proxy."""

    def __init__(
        self,
        number: int,
        server: Server,
        plan: Plan,
        report: Callable[[BaseException], None],
        network: Network | None = None,
        natively: TimeSeries | None = None,
    ) -> None:
        """``natively``: coalesces small inserts into inserts of this collection."""
        self.ids = Ids(number)
        self.catalog = BucketCatalog(
            CatalogOptions(
                limits=Limits(max_count=plan.max_count, min_size_bytes=100),
                cache_share_bytes=plan.cache_share_bytes,
                memory_threshold_bytes=plan.memory_threshold_bytes,
                reopening=plan.reopening,
                archived_per_series=3,
                growth=GrowthOptions(
                    in_parts=plan.in_parts,
                    sealed=plan.sealed,
                    batches_in_round=2,
                    rows_in_place=8,
                    segment_parts=20,
                    segment_seconds=0.5,
                    rest_seconds=0.2,
                ),
            ),
            Clock(),
            self.ids,
        )
        statements = StatementLog()
        self.node = (
            None if network is None else Node(network, number, statements, report, self.ids, numbered=plan.numbered)
        )
        self.readers = ReaderRegister(lambda _: False) if self.node is None else self.node.readers
        line = CommandLine(server, allowed=plan.may_join, may_be_late=not plan.readers)
        alone = plan.proxies == 1 and not plan.meddling
        numbers = None if self.node is None else self.node.write_numbers
        self.port = port = JoinPort(server, line, self.readers, numbers, sealed=plan.sealed, alone=alone)
        joining = JoiningOptions(many=4, patience_seconds=5)
        self.joining = Joining(self.catalog, port, Clock(), self.readers, joining, lambda _: None, Forms(report))
        self._joining = asyncio.get_running_loop().create_task(self.joining.run()) if plan.in_parts else None
        self.committer = Committer(
            self.catalog,
            port,
            Clock(),
            CommitterOptions(
                linger_seconds=plan.linger_seconds,
                server_selection_timeout_seconds=PATIENCE_SECONDS,
                limits=RoundLimits(statements=plan.round_statements),
            ),
            report,
        )
        self.handler = InsertHandler(
            self.catalog,
            self.committer,
            statements,
            max_pending_bytes=plan.max_pending_bytes,
            retryable_writes=True,
            slices=Slices(itertools.count().__next__),
        )
        self.coalescing: Coalescing | None = None
        if natively is not None:
            self.coalescing = Coalescing(
                server, natively, port, Clock(), self.committer, self.handler, plan.coalesced_share
            )
            self.handler.use(None, self.coalescing)  # type: ignore[arg-type]
        if self.node is not None:
            reclaiming = [] if self.coalescing is None else [self.coalescing.reclaiming]
            self.node.follow(self.handler, [self.committer.reclaiming, *reclaiming], port, self.joining)
        self.alive = True
        self._takes_messages = plan.numbered or self.coalescing is not None
        # Every process makes the server stall once in a while, for all of them.
        self._longest_wait_seconds = plan.proxies * LONGEST_WAIT_SECONDS
        self._waiting: dict[asyncio.Future[bytes | None], None] = {}
        """In order: sets would make a run depend on addresses."""

    async def insert(self, command: InsertCommand, collection: VirtualCollection, connection: Session) -> bytes | None:
        """Answers once, within bounds; a killed process drops the connection."""
        if not self.alive:
            raise ConnectionResetError
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = None

        def reply(document: bytes | None, acknowledgement: Acknowledgement | None) -> None:
            if self.alive:
                assert not answer.done() or answer.cancelled(), "answered twice"
                if not answer.done():
                    answer.set_result(document)

        if self._takes_messages:
            submit(self.handler, command, collection, connection, lambda document: reply(document, None))
        else:
            self.handler.take(command, collection, NOBODY, Recipient(reply, connection))
        try:
            async with asyncio.timeout(self._longest_wait_seconds):
                return await asyncio.shield(answer)
        finally:
            self._waiting.pop(answer, None)

    async def kill(self) -> None:
        """Nothing of it happens any more; what the server has, the server has."""
        self.alive = False
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(ConnectionResetError())
        if self.node is not None:
            await self.node.kill()
        await self.stop_joining()
        committer = self.committer
        running = [committer._tasks] + ([] if self.coalescing is None else [self.coalescing.coalescer._tasks])
        for each in running:
            each.spawn = lambda work: work.close()  # type: ignore[method-assign]
        committer.kick = lambda: None  # type: ignore[method-assign]
        committer._outcomes._wake = lambda: None
        await self.port.kill()
        while any(running) or committer._pursuit:
            tasks = sorted(itertools.chain(*running), key=lambda task: int(task.get_name().rpartition("-")[2]))
            tasks += [committer._pursuit] if committer._pursuit else []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def end_commits(self) -> None:
        """Nothing is under way or in doubt any more."""
        committer = self.committer
        tasks = committer._tasks
        while committer._pursuit is not None or tasks or tasks.without_task:  # noqa: ASYNC110 - nothing tells its end
            await asyncio.sleep(1)
        await committer.drain()
        if self.coalescing is not None:
            await self.coalescing.coalescer.drain()

    async def stop_joining(self) -> None:
        """The background work is over."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait({self._joining})
            if not self._joining.cancelled() and (error := self._joining.exception()) is not None:
                raise error

    def check_rest(self) -> None:
        """Nothing is left behind once everything was answered."""
        committer, catalog = self.committer, self.catalog
        assert committer.batches_ready == 0
        assert not committer._lanes, "lanes of nobody"
        assert not committer._tasks
        assert not committer._tasks.without_task
        assert not committer._outcomes.doubts
        assert self.handler.pending.size_bytes == 0
        assert not self.handler.statements.active, "statements without an end"
        assert not self.handler.statements.contested
        assert not self.handler._held
        if self.coalescing is not None:
            coalescer = self.coalescing.coalescer
            assert coalescer.documents_ready == 0
            assert coalescer.pursued() == (0, 0)
            assert not coalescer._lanes
        assert not catalog._work.unclaimed
        assert not catalog._work.ready
        for buckets in catalog._collections.values():
            assert not any(buckets.lanes)
            for series in buckets.series.values():
                assert series.parked is None
        for bucket in catalog._memory:
            assert bucket.is_idle
            assert not bucket.waiting
        gauges = catalog.gauges()
        assert gauges["numBuckets"] == gauges["numIdleBuckets"] == len(list(catalog._memory))
        for namespace in list(catalog._collections):
            catalog.clear(namespace)
            assert not catalog._collections[namespace].series
        assert not any(catalog.gauges().values()), catalog.gauges()
        assert not catalog.growth.parted
        assert not catalog.growth.unjoined


class World:
    """One run."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.chance = random.Random(seed)
        self.plan = plan or Plan.drawn(self.chance)
        self.loop = SeededLoop(self.chance)
        self.auditor = Auditor(self.plan.max_count, HOUR_MS)
        self.server = Server(self.chance, self.auditor)
        self.server.faults = self.plan.faults
        self.server.failed = self._fail
        self.failures: list[BaseException] = []
        self.network = Network(self.server) if self.plan.linked else None
        self.natively = TimeSeries(self.server) if self.plan.coalesced_share else None
        self._numbers = 0
        self._processes = 0
        self._lull = asyncio.Barrier(self.plan.writers)
        self._on_their_way = 0
        """Messages to proxies."""
        self._connections: dict[tuple[bytes, Process], Session] = {}
        """Of clients that wait for no answer, by session and process."""

    def run(self) -> int:
        """Runs to the end; returns the number of steps."""
        self.loop.set_exception_handler(self._unhandled)
        self._run = self.loop.create_task(self._main())
        try:
            self.loop.run_until_complete(self._run)
        except asyncio.CancelledError:
            raise self.failures[0] from None
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
        return self.loop.steps

    def _fail(self, error: BaseException) -> None:
        """What follows would only hide it."""
        self.failures.append(error)
        self._run.cancel()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        if not isinstance(error, ConnectionResetError):
            self.failures.append(error)

    async def _main(self) -> None:
        self.collection = self.server.create()
        self.processes = [self._start(place) for place in range(self.plan.proxies)]
        for process in self.processes:
            if process.node is not None:
                await process.node.begin()
        writers = [asyncio.create_task(self._writer(number)) for number in range(self.plan.writers)]
        others = []
        if self.plan.meddling:
            others.append(asyncio.create_task(self._meddle()))
        if self.plan.deletes:
            others.append(asyncio.create_task(self._delete_rows()))
        restarts = []
        if self.plan.restarts:
            restarts = [asyncio.create_task(self._restart(place)) for place in range(self.plan.proxies)]
        if self.plan.cuts:
            others.append(asyncio.create_task(self._cut()))
        others += [asyncio.create_task(self._read(number + 1)) for number in range(self.plan.readers)]
        await asyncio.gather(*writers)
        await self._cancelled(restarts)
        if self.plan.in_parts and self.network is not None:
            # What killed processes have left is joined while others read and are cut off.
            await asyncio.sleep(2 * GONE_SECONDS)
        await self._cancelled(others)
        self.server.faults = Faults.none()
        for place, process in enumerate(self.processes):
            if not process.alive:
                # The task that killed it may have been cancelled halfway.
                await process.kill()
                await self.server.settle()
                self.processes[place] = self._start(place)
        await self._end_asking()
        for process in self.processes:
            await process.end_commits()
        await self.server.settle()
        if self.plan.in_parts:
            await asyncio.sleep(2 * COPIES_SECONDS)
            for process in self.processes:
                await process.stop_joining()
        for document in self.server.current.documents.values() if self.server.current else ():
            self.auditor.check_bucket(document)
        self.auditor.check_end()
        for process in self.processes:
            process.check_rest()
        assert self.failures == []

    async def _cancelled(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        self.failures += [error for error in ended if isinstance(error, AssertionError)]

    async def _end_asking(self) -> None:
        """Nothing is asked any more, and nobody looks for others."""
        nodes = [process.node for process in self.processes if process.node is not None]
        if self.network is not None:
            self.network.blocked.clear()
        while any(node.asking._pending for node in nodes) or (nodes and self._may_be_contested()):  # noqa: ASYNC110 - nothing tells its end
            await asyncio.sleep(0.1)
        for node in nodes:
            await node.kill()

    def _may_be_contested(self) -> bool:
        """Whether anything is in progress that is asked about if links end, or the server refuses it."""
        return self._on_their_way > 0 or any(process.handler.uncommitted()[0] for process in self.processes)

    def _start(self, place: int) -> Process:
        self._processes += 1
        plan = replace(self.plan, in_parts=self.plan.in_parts and place not in self.plan.in_place)
        return Process(self._processes, self.server, plan, self.failures.append, self.network, self.natively)

    # --- writers -------------------------------------------------------------------------------------------

    def _measurement(self) -> dict[str, Any]:
        chance = self.chance
        self._numbers += 1
        offset_ms = chance.randrange(HOUR_MS // 4) + int(self.loop.time() * 1000)
        if chance.random() < 0.2:
            offset_ms -= HOUR_MS * chance.randrange(6)
        measurement: dict[str, Any] = {"_id": ObjectId(self._numbers.to_bytes(12, "big"))}
        measurement["t"] = DatetimeMS(START_MS + offset_ms)
        series = chance.randrange(self.plan.series)
        if series:
            measurement["m"] = f"s{series}" if series % 2 else series
        if chance.random() < 0.8:
            measurement["v"] = chance.randrange(100)
        if chance.random() < 0.1:
            measurement["x.y"] = chance.randrange(100)
        return measurement

    async def _writer(self, number: int) -> None:
        chance = self.chance
        for transaction in range(1, self.plan.inserts_each + 1):
            await asyncio.sleep(chance.choice((0, 0, 0.01, 1.0)))
            if self.plan.lull_seconds and transaction % LULL_EVERY == 0:
                await self._lull.wait()
                await asyncio.sleep(chance.random() * self.plan.lull_seconds)
            documents = [self._measurement() for _ in range(chance.choice((1, 1, 1, 4, 30)))]
            for document in documents:
                self.auditor.sends(document)
            if chance.random() < 0.05:
                del documents[chance.randrange(len(documents))]["t"]
            retryable = chance.random() < 0.6
            raws = [encode(document) for document in documents]
            command = InsertCommand(
                documents=raws,
                ordered=chance.random() < 0.5,
                write_concern=chance.choice(CONCERNS),
                session=b"session %d" % number if retryable else b"",
                txn_number=transaction if retryable else None,
                statement_ids=range(len(documents)) if retryable else None,
                expects_reply=chance.random() < 0.95,
                size_bytes=sum(map(len, raws)),
            )
            place = number % self.plan.proxies
            if self.plan.linked and (not self.plan.loyalty or chance.random() >= self.plan.loyalty):
                place = chance.randrange(self.plan.proxies)
            await self._insert(command, documents, place)

    async def _insert(self, command: InsertCommand, documents: list[dict[str, Any]], place: int) -> None:
        chance = self.chance
        retryable = command.txn_number is not None
        first = self.processes[place]
        numbered = self.plan.numbered
        for attempt in range(3):
            if attempt and numbered:
                place = self._another(place)
            elif attempt and self.network is not None:
                if not self.network.is_sound:
                    await asyncio.sleep(RETRY_AFTER_BLOCK_SECONDS)
                place = chance.randrange(self.plan.proxies)
            process = self.processes[place]
            if numbered and retryable and chance.random() < 0.2:
                # A connection was lost, or a load balancer has repeated the message.
                twin = asyncio.create_task(self._sent(command, self.processes[self._another(place)]))
                twin.add_done_callback(partial(self._repeated, command, documents))
            if process is not first and not self.plan.retries_after_restart:
                break
            task = asyncio.create_task(self._sent(command, process))
            may_retry = retryable and attempt < 2
            if may_retry and chance.random() < (0.4 if numbered else 0.2):
                # The client gives the connection up and sends the statement again.
                await asyncio.wait({task}, timeout=chance.choice((0.0, 0.02, 1.0, 3.0 if numbered else 40.0)))
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                continue
            if not may_retry and chance.random() < 0.03:
                task.add_done_callback(self._gone)
                break
            try:
                reply = await task
            except ConnectionResetError:
                if may_retry and self.network is not None:
                    continue
                if may_retry and self.plan.retries_after_restart:
                    while self.processes[place] is process:  # noqa: ASYNC110 - as a driver looks for a server
                        await asyncio.sleep(0.1)
                    continue
                break
            if reply is None:
                break
            document = decode(reply)
            if may_retry and "RetryableWriteError" in document.get("errorLabels", ()):
                await asyncio.sleep(chance.choice((0, 0, 1) if numbered else (0, 1, 10)))
                continue
            self._heard(command, documents, document)
            return
        for document in documents:
            self.auditor.answered(document["_id"], stored=False)

    async def _sent(self, command: InsertCommand, process: Process) -> bytes | None:
        """The answer; the client uses a connection again that has brought one, in time or not."""
        key = (command.session, process)
        connection = self._connections.pop(key, None) or session()
        if self.plan.numbered:
            self._on_their_way += 1
            await asyncio.sleep(self.chance.choice(TO_PROXY_SECONDS))
            self._on_their_way -= 1
        reply = await process.insert(command, self.collection, connection)
        self._connections[key] = connection
        return reply

    def _another(self, place: int) -> int:
        return (place + self.chance.randrange(1, self.plan.proxies)) % self.plan.proxies

    def _repeated(
        self, command: InsertCommand, documents: list[dict[str, Any]], task: asyncio.Task[bytes | None]
    ) -> None:
        """What one of two proxies has said; the client has more than one answer, but each of them is true."""
        self._gone(task)
        if task.exception() is None and (reply := task.result()) is not None:
            document = decode(reply)
            if document["ok"] and "writeErrors" not in document:
                self._heard(command, documents, document)

    def _gone(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionResetError):
            self.failures.append(error)

    def _heard(self, command: InsertCommand, documents: list[dict[str, Any]], reply: dict[str, Any]) -> None:
        if not reply["ok"]:
            for document in documents:
                self.auditor.answered(document["_id"], stored=False)
            return
        errors = {entry["index"]: entry["code"] for entry in reply.get("writeErrors", ())}
        for index, document in enumerate(documents):
            assert (errors.get(index) == TIME_ERROR) == ("t" not in document and index in errors)
            stopped = command.ordered and errors and index > min(errors)
            self.auditor.answered(document["_id"], stored=index not in errors and not stopped)
        if not command.ordered:
            assert reply["n"] == len(documents) - len(errors)

    async def _read(self, number: int) -> None:
        while True:
            await asyncio.sleep(self.chance.choice((0.01, 0.3, 2.0)))
            process = self.chance.choice(self.processes)
            if process.alive:
                reader = Reader(self.server, self.auditor, process.readers, number)
                await reader.scan(lambda: process.alive)  # noqa: B023 - called before the next round

    # --- what others do ------------------------------------------------------------------------------------

    async def _restart(self, place: int) -> None:
        while True:
            await asyncio.sleep(self.chance.choice(self.plan.restart_pauses_seconds))
            await self.processes[place].kill()
            # A command of the dead process that the server has not executed yet is beyond what can be known.
            if self.network is None:
                await self.server.settle()
            process = self._start(place)
            if process.node is not None:
                try:
                    await process.node.begin()
                except asyncio.CancelledError:
                    # Nobody else knows of it.
                    await process.kill()
                    raise
            self.processes[place] = process

    async def _cut(self) -> None:
        """Links end, become slow, or are blocked for a while."""
        network = self.network
        assert network is not None
        while True:
            await asyncio.sleep(self.chance.choice((0.1, 1.0, 5.0)))
            names = [process.node.name for process in self.processes if process.node is not None]
            match self.chance.choice((*LINKS_SUFFER, "isolate", "isolate") if self.plan.numbered else LINKS_SUFFER):
                case "cut":
                    links = [link for name in names for link in network.nodes[name].links]
                    if links:
                        self.chance.choice(links).close(by_far=self.chance.random() < 0.5)
                case "slow":
                    network.slowest_seconds = self.chance.choice((0.05, 0.5, 1.5))
                case "fast":
                    network.slowest_seconds = 0.01
                case "block":
                    await self._block(network, *self.chance.sample(names, 2))
                case "isolate":
                    await self._block(network, *self.chance.sample(names, len(names)))

    async def _block(self, network: Network, one: str, *others: str) -> None:
        ways = {(one, other) for other in others}
        if not self.plan.one_way or self.chance.random() < 0.3:
            ways |= {(other, one) for other in others}
        elif len(others) > 1 and self.chance.random() < 0.5:
            ways = {(other, one) for other in others}
        network.blocked |= ways
        await asyncio.sleep(self.chance.choice((0.5, 1.5, 4.0, 20.0)))
        network.blocked -= ways

    async def _meddle(self) -> None:
        actions = (self._close, self._delete, self._delete_row, self._append, self._change_meta, self._foresee)
        while True:
            await asyncio.sleep(self.chance.choice(self.plan.meddling_pauses_seconds))
            if self.chance.random() < 0.02:
                await self._drop()
                continue
            if self.server.current is None or not self.server.current.documents:
                continue
            identity = self.chance.choice(list(self.server.current.documents))
            self.chance.choice(actions)(identity)
            if self.chance.random() < 0.5:
                # It came through this proxy, which therefore knows.
                self._changed(self.chance.choice(self.processes), [identity])

    async def _delete_rows(self) -> None:
        """As deletes of single measurements do: they read like others, and say which buckets they change (U8)."""
        while True:
            await asyncio.sleep(self.chance.choice(self.plan.meddling_pauses_seconds))
            process = self.processes[0]
            readers = process.readers.active
            await readers.admitted("db")
            readers.enter("db")
            try:
                stored = [] if self.server.current is None else list(self.server.current.documents)
                chosen = self.chance.sample(stored, min(len(stored), 3))
                self._changed(process, chosen)
                for identity in chosen:
                    await asyncio.sleep(self.chance.choice((0.0, 0.001, 0.05)))
                    if self.server.current is not None and identity in self.server.current.documents:
                        self._delete_row(identity)
                self._changed(process, chosen)
            finally:
                readers.leave("db")

    def _changed(self, process: Process, bucket_ids: Sequence[bytes]) -> None:
        process.port.direct_writes.note(self.collection.namespace)
        process.catalog.clear(self.collection.namespace, bucket_ids)
        process.committer.kick()

    def _document(self, identity: bytes) -> dict[str, Any]:
        assert self.server.current is not None
        return self.server.current.documents[identity]

    def _close(self, identity: bytes) -> None:
        self._document(identity)["control"]["closed"] = True

    def _delete(self, identity: bytes) -> None:
        assert self.server.current is not None
        self.auditor.removed(self.server.current.documents.pop(identity))
        self.server.deleted.add(identity)

    def _delete_row(self, identity: bytes) -> None:
        """Direct writes that take rows away close the bucket, so that no append fits into the gap."""
        document = self._document(identity)
        rows = rows_of(document)
        if len(rows) < 2:
            return
        document["control"]["closed"] = True
        gone = self.chance.randrange(len(rows))
        self.auditor.removed(document, gone)
        del rows[gone]
        data: dict[str, dict[str, Any]] = {name: {} for name in document["data"]}
        for row, measurement in enumerate(rows):
            for name, value in measurement.items():
                data[name][str(row)] = value
        document["data"] = {name: column for name, column in data.items() if column}
        start = document["control"]["min"]["t"]
        for end, choose in (("min", min), ("max", max)):
            document["control"][end] = {name: choose(column.values()) for name, column in document["data"].items()}
        # Rounded down, and part of the id.
        document["control"]["min"]["t"] = start

    def _append(self, identity: bytes) -> None:
        """Another proxy found the bucket and goes on with it."""
        document = self._document(identity)
        count = len(document["data"]["t"])
        if count >= self.plan.max_count or document["control"].get("closed"):
            return
        measurement = {**self._measurement(), "t": document["control"]["max"]["t"]}
        measurement.pop("m", None)
        if "meta" in document:
            measurement["m"] = document["meta"]
        self.auditor.sends(measurement)
        for name, value in measurement.items():
            if name == "m":
                continue
            document["data"].setdefault(name, {})[str(count)] = value
            for end, choose in (("min", min), ("max", max)):
                ends = document["control"][end]
                ends[name] = choose(ends[name], value) if name in ends else value
        self.auditor.stored(document, count)
        self.auditor.answered(measurement["_id"], stored=True)

    def _change_meta(self, identity: bytes) -> None:
        document = self._document(identity)
        if "meta" not in document:
            return
        document["meta"] = "renamed"

    def _foresee(self, identity: bytes) -> None:
        """Another proxy uses an id that this one is about to choose."""
        assert self.server.current is not None
        document = self._document(identity)
        start_ms = milliseconds(document["control"]["min"]["t"])
        chosen = bucket_id(start_ms, self.chance.choice(self.processes).ids.peek(1))
        if chosen in self.server.current.documents:
            return
        measurement = {**self._measurement(), "t": document["control"]["min"]["t"], "v": 1}
        measurement.pop("m", None)
        measurement.pop("x.y", None)
        self.auditor.sends(measurement)
        bucket = new_bucket_like(
            {
                "_id": None,
                "control": {"version": 1, "min": dict(measurement), "max": dict(measurement), "closed": True},
                "data": {name: {"0": value} for name, value in measurement.items()},
            },
            chosen,
        )
        self.server.current.documents[chosen] = bucket
        self.auditor.stored(bucket, 0)
        self.auditor.answered(measurement["_id"], stored=True)

    async def _drop(self) -> None:
        knows = self.chance.random() < 0.5
        self.server.drop()
        namespace = self.collection.namespace
        if knows:
            process = self.chance.choice(self.processes)
            process.catalog.drop(namespace)
            process.committer.kick()
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.5)))
        created = self.server.create()
        if not knows:
            await asyncio.sleep(self.chance.choice((0.0, 1.0)))
        self.collection = created
