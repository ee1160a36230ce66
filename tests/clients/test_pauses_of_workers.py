"""Admin commands for all workers while one hangs, starts or is replaced: all end in the state asked for last."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.proxy import ProxyProcess, ready, started
from tests.support.wire import WireClient

REPLY_SECONDS = 15.0
"""A worker that hangs is noticed after about eight seconds."""


class Workers:
    """Two workers, and a listener for administrators."""

    def __init__(self, directory: Path, backend: str, flags: tuple[str, ...] = ()) -> None:
        self.admin_port = free_port()
        self.config = directory / "tsproxy.toml"
        self.config.write_text("")
        admin = ("--admin-listen", f"{LOOPBACK}:{self.admin_port}")
        self.proxy = ProxyProcess(
            directory, backend, flags=("--workers", "2", "--config", str(self.config), *admin, *flags)
        )

    def client(self) -> pymongo.MongoClient[dict[str, Any]]:
        """An administrator with one connection for commands."""
        uri = f"mongodb://{LOOPBACK}:{self.admin_port}/"
        return pymongo.MongoClient(uri, directConnection=True, maxPoolSize=1, serverSelectionTimeoutMS=10_000)

    def states(self, clients: int = 8) -> dict[int, tuple[int, str]]:
        """The process id and the state of each worker that answers, by its number."""
        found: dict[int, tuple[int, str]] = {}
        with ExitStack() as stack:
            for _ in range(clients):
                with suppress(AutoReconnect):
                    status = stack.enter_context(self.client()).admin.command({"tsproxy": "status"})
                    worker = status["worker"]
                    found[worker["number"]] = worker["pid"], status["state"]
        return found

    def until_all_are(self, state: str) -> None:
        """Wait until both workers answer, and are in this state."""
        self.proxy.wait_until(lambda: [each for _, each in self.states().values()] == [state, state], 30)

    @contextmanager
    def one_hangs(self) -> Iterator[tuple[Any, int, int]]:
        """An administrator at one worker, and the number and the process id of the other one, which hangs meanwhile."""
        with self.client() as client:
            own = client.admin.command({"tsproxy": "status"})["worker"]["number"]
            pid, _ = self.states(16)[1 - own]
            os.kill(pid, signal.SIGSTOP)
            try:
                yield client.admin, 1 - own, pid
            finally:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@pytest.fixture
def workers(tmp_path: Path, replica_set: MongodProcess) -> Iterator[Workers]:
    made = Workers(tmp_path, replica_set.uri)
    with started(made.proxy):
        made.proxy.wait_until(lambda: ready(made.proxy))
        yield made


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGCONT])
def test_resume_while_a_worker_hangs(workers: Workers, end: signal.Signals) -> None:
    with workers.one_hangs() as (admin, number, pid):
        os.kill(pid, signal.SIGCONT)
        assert admin.command({"tsproxy": "pause"})["state"] == "paused"
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        reply = admin.command({"tsproxy": "resume"})
        assert time.monotonic() - began < REPLY_SECONDS
        assert reply["was"] == "paused"
        assert [each["worker"] for each in reply["notReached"]] == [number]
        assert admin.command({"tsproxy": "status"})["state"] == "serving"
        os.kill(pid, end)
        workers.until_all_are("serving")
        assert "notReached" not in admin.command({"tsproxy": "resume"})


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGCONT])
@pytest.mark.parametrize(("command", "state"), [("pause", "paused"), ("drain", "draining")])
def test_pause_and_drain_while_a_worker_hangs(workers: Workers, end: signal.Signals, command: str, state: str) -> None:
    with workers.one_hangs() as (admin, number, pid):
        began = time.monotonic()
        reply = admin.command({"tsproxy": command})
        assert time.monotonic() - began < REPLY_SECONDS
        assert reply["state"] == state
        assert [each["worker"] for each in reply["notReached"]] == [number]
        os.kill(pid, end)
        workers.until_all_are(state)
        assert admin.command({"tsproxy": "resume"})["was"] == state
        workers.until_all_are("serving")


def test_the_last_of_several_commands_counts_when_a_worker_goes_on(workers: Workers) -> None:
    with workers.one_hangs() as (admin, _, pid):
        for command in ("pause", "resume", "pause", "resume", "pause"):
            admin.command({"tsproxy": command})
        os.kill(pid, signal.SIGCONT)
        workers.until_all_are("paused")
        time.sleep(1)
        workers.until_all_are("paused")


def test_a_restart_waits_until_clients_are_resumed(workers: Workers, db_name: str) -> None:
    """A worker that stops refuses what it holds; drivers retry only once, and there are two workers."""
    proxy, errors, done = workers.proxy, list[Exception](), list[int]()

    def insert(number: int) -> None:
        try:
            with proxy.client() as client:
                client[db_name].c.insert_one({"_id": number})
            done.append(number)
        except PyMongoError as error:
            errors.append(error)

    with workers.client() as client:
        assert client.admin.command({"tsproxy": "pause"})["state"] == "paused"
        threads = [threading.Thread(target=insert, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        proxy.signal(signal.SIGUSR2)
        proxy.wait_until(lambda: "waits until clients are resumed" in proxy.log)
        own = client.admin.command({"tsproxy": "status"})["worker"]["number"]
        victim = workers.states(16)[1 - own][0]
        time.sleep(1)
        assert "all workers were restarted" not in proxy.log
        client.admin.command({"tsproxy": "resume"})
    proxy.wait_until(lambda: "all workers were restarted" in proxy.log)
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(done) == list(range(8))
    assert victim not in [pid for pid, _ in workers.states(16).values()]


@pytest.mark.parametrize("nth", [1, 2])
def test_pause_and_resume_while_workers_are_restarted(workers: Workers, nth: int) -> None:
    """The worker that starts at this moment is not one of those that serve."""
    proxy = workers.proxy
    begun = proxy.log.count("starting")
    proxy.signal(signal.SIGUSR2)
    # The line of the supervisor, and those of the workers.
    proxy.wait_until(lambda: proxy.log.count("starting") >= begun + 1 + nth, 30)
    with workers.client() as client:
        client.admin.command({"tsproxy": "pause", "waitSeconds": 0})
    workers.until_all_are("paused")
    with workers.client() as client:
        client.admin.command({"tsproxy": "resume"})
    proxy.wait_until(lambda: "all workers were restarted" in proxy.log, 60)
    workers.until_all_are("serving")


def test_a_refused_pause_changes_nothing_for_a_worker_that_is_replaced(workers: Workers) -> None:
    with workers.client() as client:
        client.admin.command({"tsproxy": "drain"})
        with pytest.raises(OperationFailure, match="not possible while the proxy is draining"):
            assert client.admin.command({"tsproxy": "pause"})["state"] == "paused"
        own = client.admin.command({"tsproxy": "status"})["worker"]["number"]
        os.kill(workers.states(16)[1 - own][0], signal.SIGKILL)
        workers.until_all_are("draining")


def test_settings_are_reloaded_in_a_worker_that_starts(workers: Workers) -> None:
    begun = workers.proxy.log.count("starting")
    workers.proxy.signal(signal.SIGUSR2)
    workers.proxy.wait_until(lambda: workers.proxy.log.count("starting") >= begun + 2, 30)
    workers.config.write_text("slow_command_ms = 7\n")
    workers.proxy.signal(signal.SIGHUP)
    workers.proxy.wait_until(lambda: "all workers were restarted" in workers.proxy.log, 60)
    found: dict[int, Any] = {}
    with ExitStack() as stack:
        while len(found) < 2:
            config = stack.enter_context(workers.client()).admin.command({"tsproxy": "config"})
            found[config["worker"]["number"]] = config["settings"]["slow_command_ms"]
    assert found == {0: 7, 1: 7}


def test_a_worker_that_hangs_is_noticed_without_a_status_listener(tmp_path: Path, replica_set: MongodProcess) -> None:
    made = Workers(tmp_path, replica_set.uri, ("--status-listen", ""))
    with started(made.proxy):
        made.proxy.wait_until(lambda: "ready" in made.proxy.log and len(made.states()) == 2)
        with made.one_hangs() as (admin, number, _):
            began = time.monotonic()
            reply = admin.command({"tsproxy": "pause"})
            assert [each["worker"] for each in reply["notReached"]] == [number]
            assert time.monotonic() - began < REPLY_SECONDS


@pytest.mark.parametrize("flags", [(), ("--workers", "2")])
def test_a_stop_does_not_wait_for_commands_that_arrive_while_clients_are_paused(
    tmp_path: Path, replica_set: MongodProcess, flags: tuple[str, ...]
) -> None:
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=("--shutdown-grace-seconds", "20", *flags))
    with started(proxy), WireClient(proxy.port) as wire:
        assert wire.command({"ping": 1, "$db": "admin"})["ok"]
        with WireClient(proxy.port) as administrator:
            assert administrator.command({"tsproxy": "pause", "$db": "admin"})["state"] == "paused"
        assert wire.command({"hello": 1, "$db": "admin"})["ok"]
        began = time.monotonic()
        proxy.signal(signal.SIGTERM)
        proxy.wait_until(lambda: "stopping" in proxy.log)
        time.sleep(0.3)
        assert wire.command({"ping": 1, "$db": "admin"})["code"] == 91
        assert proxy.wait() == 0
        assert time.monotonic() - began < 8
