"""Load processes: each has some of the connections, one thread for each, and inserts into one side at a time.

Several processes share the connections, because one, which the interpreter's lock limits to one core, would often be
slower than the servers. A process ends when its pipe is closed.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final
from urllib.parse import parse_qsl

from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, PyMongoError

from proxy.tools.bench.reading import Reader
from proxy.tools.bench.schedule import Allotment, Turns
from proxy.tools.bench.shapes import CHECK_FIELD, Shape
from proxy.tools.bench.tally import Tally, class_of, is_unknown

PATIENCE_MS: Final = 10_000
"""How long a load process waits for a server, and for a reply; then it counts an error."""
PAUSE_SECONDS: Final = 0.1
"""After an error, so that a server that refuses everything is not flooded."""
LEAVE_SECONDS: Final = 2.0 + PATIENCE_MS / 1000

RowCollection = Collection[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """One side: its connection string and collection."""

    uri: str
    database: str
    collection: str


@dataclass(frozen=True, slots=True)
class Load:
    """What all load processes do. ``readers`` is the number of threads that read meanwhile."""

    targets: Mapping[str, Target]
    shape: Shape
    turns: Turns
    batch_rows: int
    readers: int


@dataclass(frozen=True, slots=True)
class Order:
    """What to do next: fill buckets if ``seconds`` is ``None``, or else insert for that time."""

    side: str
    seconds: float | None = None


def connect(uri: str) -> MongoClient[dict[str, Any]]:
    """A client with the time-outs of the bench, unless ``uri`` has others.

    Raises as ``MongoClient``; connects when it is first used.
    """
    wanted = {"serverSelectionTimeoutMS": PATIENCE_MS, "socketTimeoutMS": PATIENCE_MS, "appname": "tsproxy bench"}
    given = {name.lower() for name, _ in parse_qsl(uri.partition("?")[2])}
    options: dict[str, Any] = {name: value for name, value in wanted.items() if name.lower() not in given}
    return MongoClient(uri, maxPoolSize=None, **options)


class Processes:
    """The load processes, as the one that gives the orders sees them."""

    def __init__(self, load: Load, count: int) -> None:
        """Start ``count`` processes."""
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self.pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        # Ctrl-C reaches the whole group of processes; these end when the one that started them has ended the load.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for number in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(load, number, count, theirs, self._stop), daemon=True)
                process.start()
                theirs.close()
                self.pipes.append(ours)
                self._processes.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def give(self, order: Order) -> None:
        """Let all processes begin; each sends a ``Tally`` at the end. Raises ``OSError`` if one has ended."""
        for pipe in self.pipes:
            pipe.send(order)

    def close(self) -> None:
        """End all processes: at once between two commands, or after ``LEAVE_SECONDS`` in any case."""
        self._stop.set()
        for pipe in self.pipes:
            pipe.close()
        until_seconds = time.monotonic() + LEAVE_SECONDS
        for process in self._processes:
            process.join(max(0.0, until_seconds - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def work(load: Load, number: int, count: int, pipe: Connection, stop: Any) -> None:
    """The main function of load process ``number`` of ``count``."""
    with suppress(EOFError, OSError):
        worker = Worker(load, number, count, stop.is_set)
        try:
            while True:
                pipe.send(worker.carry_out(pipe.recv()))
        finally:
            worker.close()


class Worker:
    """The connections of one load process."""

    def __init__(self, load: Load, number: int, count: int, is_stopped: Callable[[], bool]) -> None:
        self._load = load
        self._is_stopped = is_stopped
        self._clients = {side: connect(target.uri) for side, target in load.targets.items()}
        connections = range(number, load.turns.connections, count)
        self._allotments = {
            side: [load.turns.allotment(connection) for connection in connections] for side in load.targets
        }
        self._readers = len(range(number, load.readers, count))

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()

    def carry_out(self, order: Order) -> Tally:
        """Insert, and read meanwhile; returns what was measured."""
        target, row = self._load.targets[order.side], self._load.shape.rows()
        collection: RowCollection = self._clients[order.side][target.database][target.collection]
        tallies: list[Tally] = []
        threads: list[threading.Thread] = []
        began_seconds, began_cpu = time.perf_counter(), time.process_time()
        until_seconds = began_seconds + (order.seconds or 0.0)

        def is_over() -> bool:
            return self._is_stopped() or time.perf_counter() >= until_seconds

        for allotment in self._allotments[order.side]:
            writer = Writer(collection, row, self._load.batch_rows)
            tallies.append(writer.tally)
            run = (
                (writer.fill, allotment, self._is_stopped)
                if order.seconds is None
                else (writer.run, allotment, is_over)
            )
            threads.append(threading.Thread(target=run[0], args=run[1:]))
        for number in range(self._readers if order.seconds is not None else 0):
            reader = Reader(collection, self._load.shape, self._load.turns.series, number)
            tallies.append(reader.tally)
            threads.append(threading.Thread(target=reader.run, args=(is_over,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = Tally()
        for tally in tallies:
            whole.add(tally)
        whole.seconds = time.perf_counter() - began_seconds
        whole.cpu_seconds = time.process_time() - began_cpu
        whole.busiest_share = whole.cpu_seconds / whole.seconds
        return whole


class Writer:
    """Inserts over one connection; ``tally`` has what was measured."""

    def __init__(self, collection: RowCollection, row: Callable[[int, int], dict[str, Any]], batch_rows: int) -> None:
        self.tally = Tally()
        self._collection = collection
        self._row = row
        self._batch_rows = batch_rows

    def fill(self, allotment: Allotment, is_over: Callable[[], bool]) -> None:
        """Insert the first rows of each series, as many as it should have before the measurement."""
        for places in allotment.filling():
            rows = [self._row(series, tick) for series, tick in places]
            # A row that is missing would be seen at the end: it is not counted as acknowledged.
            self.insert(rows)
            if is_over():
                return

    def run(self, allotment: Allotment, is_over: Callable[[], bool]) -> None:
        """Insert one batch after the other until ``is_over``."""
        while not is_over():
            self.insert([self._row(*allotment.next()) for _ in range(self._batch_rows)])

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Insert a batch with one command, and count it."""
        tally, refused = self.tally, frozenset[int]()
        since_seconds = time.perf_counter()
        try:
            if len(rows) == 1:
                self._collection.insert_one(rows[0])
            else:
                self._collection.insert_many(rows, ordered=False)
        except PyMongoError as error:
            tally.errors[class_of(error)] += 1
            if not isinstance(error, BulkWriteError) or error.details.get("writeConcernErrors"):
                tally.unknown_rows += len(rows) if is_unknown(error) else 0
                time.sleep(PAUSE_SECONDS)
                return
            refused = frozenset(each["index"] for each in error.details.get("writeErrors", ()))
        tally.inserting.add(time.perf_counter() - since_seconds)
        tally.commands += 1
        tally.rows += len(rows) - len(refused)
        tally.check += sum(row[CHECK_FIELD] for index, row in enumerate(rows) if index not in refused)
