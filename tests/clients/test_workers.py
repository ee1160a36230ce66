"""``workers``: several processes that serve the same addresses, seen from outside as one proxy."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure, PyMongoError

from proxy.process.embedded import is_alive
from proxy.process.exit_codes import ExitCode
from proxy.process.workers.member import SILENT
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, ready, started, tsproxy
from tests.support.wire import WireClient


@pytest.fixture(scope="module")
def proxy(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    directory = tmp_path_factory.mktemp("workers")
    config = directory / "tsproxy.toml"
    config.write_text("max_connections = 101\n")
    made = ProxyProcess(directory, mongod.uri, flags=["--workers", "2", "--config", str(config)])
    made.start(wait=False)
    made.wait_until(lambda: ready(made))
    yield made
    made.stop()


def workers_of(proxy: ProxyProcess) -> dict[int, int]:
    """The process ids of the workers, by their numbers."""
    found: dict[int, int] = {}
    with ExitStack() as stack:
        for _ in range(8):
            # Their pools have connections of their own, so that all workers are reached.
            client = stack.enter_context(proxy.client(directConnection=True))
            worker = client.admin.command({"tsproxy": "status"})["worker"]
            found[worker["number"]] = worker["pid"]
            assert worker["of"] == 2
    return found


def test_one_log_says_once_that_all_are_ready(proxy: ProxyProcess) -> None:
    assert proxy.log.count(" listens on ") == 1
    assert proxy.log.count("  ready") == proxy.log.count(" ready ") == 1 or "workers=2" in proxy.log
    assert "worker=0" in proxy.log
    assert "worker=1" in proxy.log


def test_connections_are_spread_evenly(proxy: ProxyProcess) -> None:
    """A worker leaves them to the other for two milliseconds only, so a busy machine gets some attempts."""

    def spread() -> list[float]:
        numbers = proxy.metrics()
        return [numbers[f'tsproxy_worker_connections_open{{worker="{number}"}}'] for number in (0, 1)]

    def difference() -> float:
        proxy.wait_until(lambda: sum(spread()) == 0)
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection((LOOPBACK, proxy.port)))
            proxy.wait_until(lambda: sum(spread()) == 20)
            first, second = spread()
            return abs(first - second)

    assert any(difference() <= 2 for _ in range(10))


def test_metrics_and_inserts_are_those_of_one_proxy(proxy: ProxyProcess, db_name: str) -> None:
    labels = '{command="insert",outcome="ok",way="ingest"}'
    before = proxy.metrics().get(f"tsproxy_requests_total{labels}", 0)
    with ExitStack() as stack:
        clients = [stack.enter_context(proxy.client()) for _ in range(4)]
        clients[0][db_name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        for number, client in enumerate(clients):
            client[db_name].c.insert_one({"t": datetime.now(UTC), "m": number})
        assert clients[0][db_name].c.count_documents({}) == 4
        pages = list(clients[1][db_name].c.find({}, batch_size=2))
        assert len(pages) == 4
    numbers = proxy.metrics()
    assert numbers[f"tsproxy_requests_total{labels}"] == before + 4
    assert numbers['tsproxy_limit{setting="max_connections"}'] == 101
    assert (numbers["tsproxy_workers"], numbers["tsproxy_workers_ready"], numbers["tsproxy_ready"]) == (2, 2, 1)


def test_pause_and_resume_are_for_all(proxy: ProxyProcess) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(proxy.client()) for _ in range(4)]
        first, *_ = clients
        for client in clients:
            client.admin.command("ping")
        assert first.admin.command({"tsproxy": "pause"})["state"] == "paused"
        states = {}
        for client in clients:
            status = client.admin.command({"tsproxy": "status"})
            states[status["worker"]["number"]] = status["state"]
        assert set(states.values()) == {"paused"}
        assert first.admin.command({"tsproxy": "resume"})["was"] == "paused"
        for client in clients:
            assert client.admin.command({"tsproxy": "status"})["state"] == "serving"


def test_connection_of_another_worker_can_be_killed(proxy: ProxyProcess) -> None:
    with ExitStack() as stack:
        victims: list[WireClient] = []
        ids: list[int] = []
        # Connections of the test before may not be closed yet, so that one of the workers takes all for a moment.
        while len(ids) < 4 or {number % 2 for number in ids} != {0, 1}:
            assert len(ids) < 40, "all at one worker"
            victims.append(stack.enter_context(WireClient(proxy.port)))
            ids.append(victims[-1].command({"hello": 1, "$db": "admin"})["connectionId"])
        assert len(set(ids)) == len(ids)
        client = stack.enter_context(proxy.client())
        for number in ids:
            assert client.admin.command({"tsproxy": "kill", "connection": number})["killed"] == number
        for victim in victims:
            with pytest.raises(ConnectionError):
                victim.command({"ping": 1, "$db": "admin"})
        with pytest.raises(OperationFailure, match="no client has the connection"):
            client.admin.command({"tsproxy": "kill", "connection": 999_999})


def test_settings_are_reloaded_in_all(proxy: ProxyProcess) -> None:
    (proxy.log_path.parent / "tsproxy.toml").write_text("max_connections = 51\n")
    proxy.signal(signal.SIGHUP)
    proxy.wait_until(lambda: proxy.metrics()['tsproxy_limit{setting="max_connections"}'] == 51)
    (proxy.log_path.parent / "tsproxy.toml").write_text("max_connections = 'many'\n")
    with proxy.client() as client, pytest.raises(OperationFailure, match="max_connections"):
        client.admin.command({"tsproxy": "reload"})
    (proxy.log_path.parent / "tsproxy.toml").write_text("max_connections = 52\n")
    with proxy.client() as client:
        assert client.admin.command({"tsproxy": "reload"})["changed"] == {"max_connections": 52}
    proxy.wait_until(lambda: proxy.metrics()['tsproxy_limit{setting="max_connections"}'] == 52)


def test_workers_are_restarted_one_after_the_other_and_nobody_notices(proxy: ProxyProcess, db_name: str) -> None:
    before = workers_of(proxy)
    stop, failures, done = threading.Event(), [], []

    def work() -> None:
        with proxy.client(retryWrites=False, retryReads=False) as client:
            while not stop.is_set():
                try:
                    client[db_name].plain.insert_one({})
                    done.append(time.monotonic())
                except PyMongoError as error:
                    failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    proxy.signal(signal.SIGUSR2)
    proxy.wait_until(lambda: "all workers were restarted" in proxy.log)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(done) > 100
    assert not set(workers_of(proxy).values()) & set(before.values())
    assert ready(proxy)


def test_worker_that_is_killed_is_replaced(proxy: ProxyProcess) -> None:
    victim = workers_of(proxy)[1]
    before = proxy.metrics()["tsproxy_connections_total"]
    os.kill(victim, signal.SIGKILL)
    proxy.wait_until(lambda: proxy.metrics()["tsproxy_worker_restarts_total"] == 1)
    with proxy.client() as client:
        assert client.admin.command("ping")["ok"]  # the other one serves
    proxy.wait_until(lambda: ready(proxy))
    assert "signal=SIGKILL" in proxy.log
    assert proxy.metrics()["tsproxy_connections_total"] >= before
    assert workers_of(proxy)[1] != victim


def test_workers_end_with_their_supervisor(proxy: ProxyProcess) -> None:
    workers = workers_of(proxy)
    proxy.kill()
    proxy.start(wait=False)  # the addresses are free at once
    proxy.wait_until(lambda: not any(is_alive(str(pid)) for pid in workers.values()))
    proxy.wait_until(lambda: ready(proxy))
    assert proxy.stop() == ExitCode.STOPPED


def failing(tmp_path: Path, *flags: str, **environment: str) -> Any:
    return tsproxy("serve", "--workers", "2", "--listen", f"{LOOPBACK}:0", "--status-listen", "", *flags, **environment)


def test_wrong_settings_are_told_once_before_any_worker(tmp_path: Path) -> None:
    (tmp_path / "certificate").write_text("none")
    ended = failing(
        tmp_path, "--backend", "mongodb://localhost/", "--tls-certificate-file", str(tmp_path / "certificate")
    )
    assert ended.returncode == ExitCode.FIX_SETTINGS
    assert ended.stderr.count("tls_certificate_file") == 2  # once as a setting, once as the error
    assert "worker=" not in ended.stderr


def test_what_no_worker_can_mend_ends_all_with_one_message(tmp_path: Path) -> None:
    ended = failing(
        tmp_path,
        *("--backend", f"mongodb://{LOOPBACK}:1/", "--fail-fast", "true", "--server-selection-timeout-ms", "200"),
    )
    assert ended.returncode == ExitCode.TRY_AGAIN
    assert ended.stderr.count("cannot connect to the backend") == 1


@pytest.mark.parametrize("workers", [3, 5])
def test_many_workers_start_with_the_default_settings(tmp_path: Path, mongod: MongodProcess, workers: int) -> None:
    with started(ProxyProcess(tmp_path, mongod.uri, flags=["--workers", str(workers)])) as many:
        many.wait_until(lambda: many.metrics().get("tsproxy_workers_ready") == workers)


def test_a_worker_that_hangs_is_named_and_replaced_when_it_is_killed(tmp_path: Path, mongod: MongodProcess) -> None:
    flags = ("--workers", "2", "--status-page", "off")
    with started(ProxyProcess(tmp_path, mongod.uri, flags=flags)) as hangs, ExitStack() as clients:
        hangs.wait_until(lambda: ready(hangs))
        here = clients.enter_context(hangs.client(maxPoolSize=1)).admin
        own = here.command({"tsproxy": "status"})["worker"]["number"]
        (number, pid), *_ = ((number, pid) for number, pid in workers_of(hangs).items() if number != own)
        os.kill(pid, signal.SIGSTOP)
        try:
            hangs.wait_until(lambda: hangs.status("/readyz") == (503, f"not ready: worker {number}: {SILENT}\n"), 20)
            assert hangs.metrics()["tsproxy_workers_ready"] == 1
            # tests/clients/test_pauses_of_workers.py has the commands that all others execute nevertheless.
            with pytest.raises(OperationFailure, match=f"worker {number} does not answer") as raised:
                here.command({"tsproxy": "kill", "connection": 999_999})
            assert raised.value.code == 6, "HostUnreachable, as of a backend that does not answer"
            os.kill(pid, signal.SIGCONT)
            hangs.wait_until(lambda: ready(hangs), 20)
        finally:
            os.kill(pid, signal.SIGKILL)
        hangs.wait_until(lambda: workers_of(hangs).get(number, pid) != pid)
