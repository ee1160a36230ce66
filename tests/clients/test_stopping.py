"""A stop is short whatever the backend does, and says why it happens."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pymongo.errors import PyMongoError

from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.ports import accepts
from tests.support.proxy import ProxyProcess

GRACE_SECONDS = 1.0
MARGIN_SECONDS = 12.0
"""For closing connections, the interpreter's end, and a busy machine; far less than the server selection timeout."""


def time_now() -> datetime:
    return datetime.now(UTC)


def proxy_behind(link: Link, directory: Path) -> ProxyProcess:
    return ProxyProcess(directory, link.uri, flags=["--shutdown-grace-seconds", str(GRACE_SECONDS)])


def seconds_to_stop(proxy: ProxyProcess) -> float:
    began = time.monotonic()
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(90) == 0
    return time.monotonic() - began


def in_background(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        with suppress(PyMongoError):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_dead_backend_does_not_delay_a_stop(mongod: MongodProcess, tmp_path: Path, db_name: str, how: str) -> None:
    with Link(mongod.port) as link:
        proxy = proxy_behind(link, tmp_path).start()
        with proxy.client(retryWrites=False, retryReads=False) as client:
            client[db_name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
            for number in range(3):
                client[db_name].c.insert_one({"t": time_now(), "m": number})
            if how == "silent":
                link.hold()
            else:
                link.target_port = 1
                link.cut_all()
            waiting = [
                in_background(lambda: client[db_name].c.insert_one({"t": time_now(), "m": 1})),
                in_background(lambda: client[db_name].c.insert_many([{"t": time_now(), "m": m} for m in range(50)])),
                in_background(lambda: client[db_name].c.delete_many({"value": 5})),
                in_background(client[db_name].plain.find_one),
                in_background(lambda: client[f"{db_name}_2"].c.insert_one({"t": time_now()})),
            ]
            time.sleep(0.5)
            took_seconds = seconds_to_stop(proxy)
        link.release()
        for thread in waiting:
            thread.join()
    assert took_seconds < GRACE_SECONDS + MARGIN_SECONDS


def test_a_stop_says_that_it_happens_and_why(mongod: MongodProcess, tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        proxy = ProxyProcess(tmp_path / number.name, mongod.uri).start()
        proxy.signal(number)
        assert proxy.wait() == 0
        assert "stopping" in proxy.log
        assert f"reason={number.name}" in proxy.log.replace("'", "")
        assert "stopped" in proxy.log.partition("stopping")[2]


def test_stop_while_the_first_connection_to_the_backend_hangs(mongod: MongodProcess, tmp_path: Path) -> None:
    with Link(mongod.port) as link:
        link.hold()
        proxy = proxy_behind(link, tmp_path).start(wait=False)
        proxy.wait_until(lambda: accepts(proxy.status_port))
        time.sleep(0.5)
        assert seconds_to_stop(proxy) < MARGIN_SECONDS
