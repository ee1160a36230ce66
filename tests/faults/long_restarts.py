"""Restarts that nobody notices: under load, no operation fails, and none waits for a second."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pymongo
import pytest
from pymongo.errors import PyMongoError

from tests.support.activated import ActivatedProxy, listening
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.wanted import SCALE

RESTARTS = max(2, round(3 * SCALE))
WITHOUT_NEWS_SECONDS = 1.0
TICK_SECONDS = 0.05
PATIENCE_SECONDS = 600.0
"""For a start on a busy machine."""
FLAGS = ("--slow-command-ms", "")


class Load:
    """Six PyMongo clients with the default options, and what they see: single inserts, batches, finds with getMore."""

    def __init__(self, uri: str, database: str) -> None:
        self.uri, self.database = uri, database
        self.acknowledged = 0
        self.done_at: list[float] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(6)]
        self._threads.append(threading.Thread(target=self._tick))
        self.ticks_at: list[float] = []

    def _tick(self) -> None:
        """Show when the machine stands still, which is nobody's fault here."""
        while not self._stop.is_set():
            self.ticks_at.append(time.monotonic())
            time.sleep(TICK_SECONDS)

    def _work(self, number: int) -> None:
        with pymongo.MongoClient[dict[str, Any]](self.uri) as client:
            collection = client[self.database].c
            while not self._stop.is_set():
                now = datetime.now(UTC)
                stored = 0
                try:
                    match number % 3:
                        case 0:
                            collection.insert_one({"t": now, "m": number})
                            stored = 1
                        case 1:
                            collection.insert_many([{"t": now, "m": number} for _ in range(10)])
                            stored = 10
                        case _:
                            list(collection.find({"m": 0}, batch_size=10).limit(50))
                except PyMongoError as error:
                    self.errors.append(f"{number}: {type(error).__name__}: {error}")
                with self._lock:
                    self.acknowledged += stored
                    self.done_at.append(time.monotonic())

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def longest_gap_seconds(self) -> float:
        """The longest time without a completed operation, without the time in which this process did not run either."""
        stood_still = [
            (before, after) for before, after in pairwise(self.ticks_at) if after - before > 4 * TICK_SECONDS
        ]
        longest = 0.0
        for before, after in pairwise(sorted(self.done_at)):
            paused = sum(
                min(after, end) - max(before, start) for start, end in stood_still if start < after and end > before
            )
            longest = max(longest, after - before - paused)
        return longest

    def check(self, backend: MongodProcess) -> None:
        assert self.errors == []
        assert self.longest_gap_seconds() < WITHOUT_NEWS_SECONDS
        with backend.client() as client:
            assert client[self.database].c.count_documents({}) == self.acknowledged
        print(f"{RESTARTS} restarts, {len(self.done_at)} operations, longest gap {self.longest_gap_seconds():.3f} s")


def ready(proxy: ProxyProcess) -> bool:
    return " ready" in proxy.log


@pytest.fixture
def stopping() -> Iterator[list[ProxyProcess]]:
    started: list[ProxyProcess] = []
    yield started
    for each in started:
        each.stop()


@pytest.mark.timeout(3600)
def test_workers_are_restarted_one_after_the_other(
    either: MongodProcess, name: str, tmp_path: Path, stopping: list[ProxyProcess]
) -> None:
    proxy = ProxyProcess(tmp_path, either.uri, flags=["--workers", "2", *FLAGS])
    stopping.append(proxy)
    proxy.start(wait=False)
    proxy.wait_until(lambda: ready(proxy), PATIENCE_SECONDS)
    with Load(proxy.uri, name) as load:
        for number in range(RESTARTS):
            proxy.signal(signal.SIGUSR2)
            proxy.wait_until(
                lambda done=number + 1: proxy.log.count("all workers were restarted") == done, PATIENCE_SECONDS
            )
    load.check(either)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["reuse_port", "sockets of a service manager"])
def test_another_process_takes_over(
    either: MongodProcess, name: str, tmp_path: Path, stopping: list[ProxyProcess], way: str
) -> None:
    with listening() as client_socket, listening() as status_socket:
        sockets = {"listen": client_socket, "status_listen": status_socket}
        ports = ProxyProcess(tmp_path, None)

        def started(number: int) -> ProxyProcess:
            made: ProxyProcess
            directory = tmp_path / str(number)
            if way == "reuse_port":
                flags = ["--reuse-port", "true", *FLAGS]
                made = ProxyProcess(directory, either.uri, port=ports.port, flags=flags)
                made.status_port = ports.status_port
            else:
                made = ActivatedProxy(directory, either.uri, sockets, flags=FLAGS)
            stopping.append(made)
            made.start(wait=False)
            made.wait_until(lambda: ready(made), PATIENCE_SECONDS)
            return made

        old = started(0)
        with Load(old.uri, name) as load:
            for number in range(RESTARTS):
                new = started(number + 1)
                assert old.stop() == 0
                old = new
        load.check(either)
