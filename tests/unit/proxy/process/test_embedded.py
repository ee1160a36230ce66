"""The embedded mongod's life: found, locked, started, watched, stopped, never orphaned."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)
from structlog.testing import capture_logs

from proxy.process.embedded import DirectoryLock, EmbeddedFailed, EmbeddedMongod, EmbeddedOptions, find_mongod, is_alive
from proxy.settings.config import ConfigurationError
from tests.support.link import Link
from tests.support.mongod import MongodProcess, wheel_mongod
from tests.support.process import ChildProcess


def options(directory: Path, binary: Path | None = None) -> EmbeddedOptions:
    return EmbeddedOptions(binary or wheel_mongod(), directory, cache_size_gb=0.25)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


async def until(condition: object, seconds: float = 30) -> None:
    """Wait until ``condition()`` is true."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in another process
            await asyncio.sleep(0.01)


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedMongod]:
    """A started one with its watch."""
    mongod = EmbeddedMongod(options(tmp_path / "data"))
    await mongod.start()
    watch = asyncio.ensure_future(mongod.watch())
    yield mongod
    await mongod.stop()
    await watch


def test_configured_mongod_is_preferred_to_path_and_path_to_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured, on_path = script(tmp_path / "mine", ""), script(tmp_path / "mongod", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_mongod(configured) == configured
    assert find_mongod(None) == on_path
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_mongod(None) == wheel_mongod()


def test_configured_mongod_must_be_executable(tmp_path: Path) -> None:
    (tmp_path / "mongod").touch(mode=0o600)
    with pytest.raises(ConfigurationError, match=r"embedded_mongod = .* not an executable file"):
        find_mongod(tmp_path / "mongod")


def test_without_any_mongod_the_ways_out_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"--backend.*tsproxy\[embedded\].*--embedded-mongod"):
        find_mongod(None)


async def test_it_serves_and_stops_with_clean_files(tmp_path: Path) -> None:
    mongod = EmbeddedMongod(options(tmp_path))
    assert mongod.why_not_ready() == "the embedded mongod has not been started"
    await mongod.start()
    pid = mongod.pid
    assert pid is not None
    assert mongod.why_not_ready() == ""
    with pymongo.MongoClient[dict[str, object]](mongod.uri) as client:
        client.db.c.insert_one({"_id": 1})
    await mongod.stop()
    assert not is_alive(str(pid))
    assert (tmp_path / "mongod.lock").read_bytes() == b""  # mongod empties it when it ends well
    again = EmbeddedMongod(options(tmp_path))
    await again.start()
    with pymongo.MongoClient[dict[str, object]](again.uri) as client:
        assert client.db.c.find_one() == {"_id": 1}
    await again.stop()


async def test_the_proxy_uses_a_socket_that_only_its_user_may_use(embedded: EmbeddedMongod, tmp_path: Path) -> None:
    with pymongo.MongoClient[dict[str, object]](embedded.proxy_uri) as client:
        assert client.admin.command("whatsmyuri")["you"].startswith("anonymous unix socket")
    [path] = (tmp_path / "data").glob("*.sock")
    assert path.stat().st_mode & 0o077 == 0


async def test_another_server_on_its_port_is_never_taken_for_it(tmp_path: Path, mongod: MongodProcess) -> None:
    """Also where the data directory can hold no socket."""
    embedded = EmbeddedMongod(options(tmp_path / ("long" * 30)))
    await embedded.start()
    watch = asyncio.ensure_future(embedded.watch())
    first, foreign = embedded.pid, Link(mongod.port)
    assert first is not None
    foreign.port = int(embedded.uri.split(":")[2].split("/")[0])
    with pymongo.MongoClient[dict[str, Any]](embedded.proxy_uri, serverSelectionTimeoutMS=100) as client:
        assert client.admin.command("serverStatus")["pid"] == first
        os.kill(first, signal.SIGKILL)
        await until(lambda: embedded.why_not_ready() != "")
        with foreign:
            await until(lambda: "another program uses the port" in embedded.why_not_ready())
            with pymongo.MongoClient[dict[str, Any]](embedded.uri) as misled:
                assert misled.admin.command("serverStatus")["pid"] == mongod.pid
            with pytest.raises(PyMongoError):
                client.admin.command("ping")
        await until(lambda: embedded.why_not_ready() == "")
        assert client.admin.command("serverStatus")["pid"] == embedded.pid
    await embedded.stop()
    await watch


async def test_a_slow_start_is_waited_for_while_the_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery takes as long as it takes, at the first start and after a crash."""
    monkeypatch.setattr("proxy.process.embedded.START_SECONDS", 0.2)
    text = f"import os, sys, time; time.sleep(1.5); os.execv({str(wheel_mongod())!r}, sys.argv)"
    embedded = EmbeddedMongod(options(tmp_path / "data", script(tmp_path / "slow", text)))
    with capture_logs() as logs:
        await embedded.start()
        watch = asyncio.ensure_future(embedded.watch())
        first = embedded.pid
        assert first is not None
        at_start = len([each for each in logs if each["event"] == "the embedded mongod does not answer yet"])
        os.kill(first, signal.SIGKILL)
        await until(lambda: "has not answered for" in embedded.why_not_ready())
        await until(lambda: embedded.why_not_ready() == "")
    assert at_start > 1
    assert embedded.restarts == 1
    await embedded.stop()
    await watch


class AtFailedHeartbeat(ServerHeartbeatListener):
    """Calls a function once, some turns of the event loop after the driver could not connect."""

    def __init__(self, call: Callable[[], object], turns: int) -> None:
        self._call, self._turns = call, turns
        self._is_called = False

    def started(self, event: ServerHeartbeatStartedEvent) -> None: ...

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None: ...

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        if not self._is_called:
            self._is_called = True
            self._later(self._turns)

    def _later(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._later, turns - 1)
        else:
            self._call()


@pytest.mark.parametrize("turns", range(8))
async def test_a_stop_ends_a_start_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """Also a stop in the turn of the event loop in which the driver's wait for a server ends."""
    embedded = EmbeddedMongod(options(tmp_path / "data", script(tmp_path / "slow", "import time; time.sleep(60)")))
    starting: asyncio.Future[None]

    def stop() -> None:
        pids.append(embedded.pid)
        reasons.append(embedded.why_not_ready())
        starting.cancel()

    pids: list[int | None] = []
    reasons: list[str] = []
    connect = partial(AsyncMongoClient, event_listeners=[AtFailedHeartbeat(stop, turns)])
    monkeypatch.setattr("proxy.process.embedded.AsyncMongoClient", connect)
    starting = asyncio.ensure_future(embedded.start())
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert reasons[0] == "the embedded mongod is starting"
    assert not is_alive(str(pids[0]))


async def test_it_is_started_again_as_soon_as_a_process_can_be_started(
    embedded: EmbeddedMongod, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = embedded.pid
    assert first is not None
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(sys, "executable", "/nowhere/python")
        os.kill(first, signal.SIGKILL)
        await until(lambda: any(each["event"] == "cannot restart the embedded mongod" for each in logs))
    await until(lambda: embedded.why_not_ready() == "")
    assert embedded.pid not in (first, None)
    assert [each["event"] for each in logs].count("the embedded mongod exited unexpectedly") == 1


async def test_another_process_than_the_one_started_is_refused(tmp_path: Path) -> None:
    text = f"import subprocess, sys; sys.exit(subprocess.call([{str(wheel_mongod())!r}, *sys.argv[1:]]))"
    text = f"import os, signal; signal.signal(15, lambda *_: os.killpg(0, 9)); {text}"
    embedded = EmbeddedMongod(options(tmp_path / "data", script(tmp_path / "wrapper", text)))
    with pytest.raises(EmbeddedFailed, match=r"a script must become the mongod \(exec\)"):
        await embedded.start()


async def test_sockets_that_a_killed_mongod_left_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "mongodb-12345.sock"
    left.touch()
    mongod = EmbeddedMongod(options(tmp_path))
    await mongod.start()
    assert not left.exists()
    await mongod.stop()


async def test_it_listens_on_loopback_only(embedded: EmbeddedMongod) -> None:
    port = int(embedded.uri.split(":")[2].split("/")[0])
    for family, address in ((socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as probe, pytest.raises(OSError, match=r"refused|unavailable|assign"):
            probe.connect((address, port))


async def test_directory_in_use_is_refused_by_name(embedded: EmbeddedMongod, tmp_path: Path) -> None:
    second = EmbeddedMongod(options(tmp_path / "data"))
    with pytest.raises(EmbeddedFailed, match=rf"embedded_data_directory = .*in use.*process {os.getpid()}"):
        await second.start()
    assert embedded.why_not_ready() == ""


async def test_directory_that_cannot_be_used_is_bad_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"embedded_data_directory = .* is not valid"):
        await DirectoryLock(tmp_path / "file" / "data").acquire()
    with pytest.raises(ConfigurationError, match=r"/file' is not valid: it is a file, not a directory"):
        await DirectoryLock(tmp_path / "file").acquire()


async def test_mongod_that_ends_at_once_is_told_with_its_log(tmp_path: Path) -> None:
    text = "import sys; log = sys.argv[sys.argv.index('--logpath') + 1]; open(log, 'w').write('no room'); sys.exit(7)"
    broken = script(tmp_path / "broken", text)
    mongod = EmbeddedMongod(options(tmp_path / "data", broken))
    with pytest.raises(EmbeddedFailed) as caught:
        await mongod.start()
    assert "ended with exit code 7" in caught.value.message
    assert caught.value.message.endswith("no room")
    lock = DirectoryLock(tmp_path / "data")
    await lock.acquire()  # nothing is held after the failure
    lock.release()


async def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    text = (
        "import sys; log = open(sys.argv[sys.argv.index('--logpath') + 1], 'w'); log.seek(100_000_000); "
        "log.write('\\n'.join('123456')); log.flush(); sys.exit(7)"
    )
    mongod = EmbeddedMongod(options(tmp_path / "data", script(tmp_path / "broken", text)))
    tracemalloc.start()
    try:
        with pytest.raises(EmbeddedFailed) as caught:
            await mongod.start()
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.message.endswith("ends with:\n2\n3\n4\n5\n6")


async def test_it_is_started_again_when_it_dies(embedded: EmbeddedMongod) -> None:
    """The URI stays, data that were written durably stay, and readiness tells the gap."""
    uri, first = embedded.uri, embedded.pid
    assert first is not None
    with pymongo.MongoClient[dict[str, object]](uri, w=1, journal=True) as client:
        client.db.c.insert_one({"_id": 1})
    os.kill(first, signal.SIGKILL)
    await until(lambda: "restarted" in embedded.why_not_ready())
    await until(lambda: embedded.why_not_ready() == "")
    assert embedded.uri == uri
    assert embedded.pid not in (first, None)
    assert embedded.restarts == 1
    with pymongo.MongoClient[dict[str, object]](uri) as client:
        assert client.db.c.find_one() == {"_id": 1}


OWNER = """
import asyncio, sys
from pathlib import Path
from proxy.process.embedded import EmbeddedMongod, EmbeddedOptions
async def main():
    mongod = EmbeddedMongod(EmbeddedOptions(Path(sys.argv[1]), Path(sys.argv[2]), 0.25))
    await mongod.start()
    print("pid", mongod.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_killed_owner_leaves_no_orphan_and_its_directory_can_be_used_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    owner = ChildProcess("owner", tmp_path / "owner.log")
    owner.spawn([sys.executable, "-c", OWNER, str(wheel_mongod()), str(data)], {"PYTHONPATH": "."})
    owner.wait_until(lambda: re.search(r"^pid \d+$", owner.log, re.MULTILINE) is not None)
    pid = int(owner.log.split()[-1])
    owner.kill()
    successor = EmbeddedMongod(options(data))
    await successor.start()  # waits until the old mongod has finished its files
    assert not is_alive(str(pid))
    await successor.stop()
