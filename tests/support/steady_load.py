"""Clients that write and read all the time, and remember every error and every acknowledged row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import pymongo

Client = pymongo.MongoClient[dict[str, Any]]


class SteadyLoad:
    """Threads with a client of their own each: writers of measurements and of documents, and readers of both."""

    def __init__(self, connect: Callable[[], Client], database: str, *, writers: int = 4, readers: int = 3) -> None:
        self._connect = connect
        self._database = database
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.written: list[int] = []
        self.reads = 0
        works = [self._write] * writers + [self._read] * readers
        self._threads = [threading.Thread(target=self._run, args=(work, n)) for n, work in enumerate(works)]

    def __enter__(self) -> Self:
        with self._connect() as client:
            client[self._database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
            client[self._database].plain.insert_one({"_id": -1})
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def goes_on(self) -> Callable[[], bool]:
        """Whether there were some more reads and writes since this call."""
        reads, written = self.reads, len(self.written)
        return lambda: self.reads > reads + 20 and len(self.written) > written + 50

    def stop(self) -> None:
        """End all threads, each after its current command."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[Any, int], None], number: int) -> None:
        with self._connect() as client:
            count = 0
            while not self._stop.is_set():
                count += 1
                try:
                    work(client[self._database], number * 1_000_000 + count)
                except Exception as error:  # noqa: BLE001 - all of them are the test's result
                    self.errors.append(f"{time.monotonic():.3f} {work.__name__} {error!r}"[:500])
                # As fast as possible would only keep a busy machine busy.
                time.sleep(0.002)

    def _write(self, database: Any, number: int) -> None:
        database.ts.insert_one({"t": datetime.now(UTC), "m": number // 1_000_000, "v": number})
        self.written.append(number)
        database.plain.insert_one({"_id": number})

    def _read(self, database: Any, number: int) -> None:
        database.ts.find_one({"m": number % 4})
        database.plain.find_one({"_id": -1})
        list(database.ts.aggregate([{"$group": {"_id": "$m", "n": {"$sum": 1}}}]))
        self.reads += 1
