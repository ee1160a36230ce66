"""A fleet of writers in a process of its own, which can be stopped like any other."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any, Self

from tests.support.fleet import Fleet

_SPAWN = multiprocessing.get_context("spawn")


class FleetProcess:
    """Writes into ``c`` of ``database`` from ``start`` to ``finish``."""

    def __init__(self, uri: str, database: str) -> None:
        self._fleet = Fleet(uri, database)
        near, far = _SPAWN.Pipe(duplex=False)
        self._results = near
        self._count = _SPAWN.Value("l", 0)
        self._over = _SPAWN.Event()
        self._process = _SPAWN.Process(
            target=_write, args=(uri, database, self._count, self._over, far), daemon=True, name="fleet"
        )

    def start(self) -> Self:
        """Begin to write."""
        self._process.start()
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def until(self, count: int, timeout_seconds: float = 60) -> None:
        """Wait until ``count`` more measurements were acknowledged."""
        before = self._count.value
        end = time.monotonic() + timeout_seconds
        while self._count.value < before + count:
            assert self._process.is_alive(), f"the writers ended with {self._process.exitcode}"
            assert time.monotonic() < end, f"{self._count.value - before} of {count} in {timeout_seconds} s"
            time.sleep(0.02)

    def finish(self, timeout_seconds: float = 60) -> Fleet:
        """End; the books of the fleet, after every operation was answered."""
        self._over.set()
        assert self._results.poll(timeout_seconds), "an operation is not answered"
        fleet = self._fleet
        fleet.books = self._results.recv()
        self._process.join(timeout_seconds)
        return fleet

    def kill(self) -> None:
        """End it whatever it does."""
        self._process.kill()


def _write(uri: str, database: str, count: Any, over: Any, results: Connection) -> None:
    async def run() -> None:
        fleet = Fleet(uri, database)

        async def events() -> None:
            while not over.is_set():
                count.value = len(fleet.books.acknowledged)
                await asyncio.sleep(0.02)

        await fleet.run_during(events)
        results.send(fleet.books)

    asyncio.run(run())
