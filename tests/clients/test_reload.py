"""SIGHUP and a changed file: what can change does, what cannot is named, mistakes change nothing."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pymongo.errors import ConnectionFailure

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, tsproxy


@pytest.fixture
def reloaded(mongod: MongodProcess, tmp_path: Path) -> Iterator[tuple[ProxyProcess, Callable[[str, str], str]]]:
    """A proxy, and a function that writes its file, sends SIGHUP and returns the log since, up to a word in it."""
    file = tmp_path / "tsproxy.toml"
    file.touch()
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--config", str(file), "--commit-rounds-in-flight", "3"]).start()

    def change(text: str, until: str) -> str:
        before = len(proxy.log)
        file.write_text(text)
        proxy.signal(signal.SIGHUP)
        proxy.wait_until(lambda: until in proxy.log[before:])
        return proxy.log[before:]

    yield proxy, change
    proxy.stop()
    assert proxy.returncode == 0


def limit(proxy: ProxyProcess, name: str) -> float:
    return proxy.metrics()[f'tsproxy_limit{{setting="{name}"}}']


def test_good_settings_take_effect(reloaded: tuple[ProxyProcess, Callable[[str, str], str]]) -> None:
    proxy, change = reloaded
    with proxy.client() as client:
        client.admin.command("ping")
        log = change("max_connections_per_address = 1\nmax_connections = 50\nlog_level = 'debug'", "settings reloaded")
        assert "max_connections" in log
        client.admin.command("ping")  # who is connected stays
        with pytest.raises(ConnectionFailure), proxy.client(serverSelectionTimeoutMS=500) as other:
            other.admin.command("ping")
        proxy.wait_until(lambda: "client connection rejected" in proxy.log)
        assert limit(proxy, "max_connections") == 50
        change("", "settings reloaded")
        assert limit(proxy, "max_connections") == 10_000
        with proxy.client() as other:
            other.admin.command("ping")
        before = len(proxy.log)
        with proxy.client() as other:
            other.admin.command("ping")
        assert "client connected" not in proxy.log[before:]


def test_mistakes_change_nothing_and_are_told(reloaded: tuple[ProxyProcess, Callable[[str, str], str]]) -> None:
    proxy, change = reloaded
    log = change("max_connections = 50\nmax_pending_bytes = 'much'\nmax_conections = 4", "keeping the previous ones")
    assert "max_pending_bytes = 'much'" in log
    assert "did you mean max_connections?" in log
    assert limit(proxy, "max_connections") == 10_000
    with proxy.client() as client:
        client.admin.command("ping")


def test_settings_that_need_a_restart_are_named_and_left(
    reloaded: tuple[ProxyProcess, Callable[[str, str], str]],
) -> None:
    proxy, change = reloaded
    log = change("max_connections = 50\nwrite_strategy = 'in_place'\nreopening = false", "require a restart")
    assert "settings reloaded" in log
    assert all(name in log.partition("require a restart")[2] for name in ("write_strategy", "reopening"))
    assert limit(proxy, "max_connections") == 50
    # A flag of the start is stronger than the file, as at the start.
    log = change("commit_rounds_in_flight = 5\nmax_connections = 51", "settings reloaded")
    assert "commit_rounds_in_flight" not in log


def test_listings_say_what_can_be_reloaded() -> None:
    listed = tsproxy("check-config").stdout.splitlines()
    marked = {line.split(" = ")[0] for line in listed if line.endswith("; reloadable")}
    assert "max_connections" in marked
    assert "listen" not in marked
    assert "[reloadable]" in tsproxy("serve", "--help").stdout


def test_the_threshold_of_slow_commands_changes(reloaded: tuple[ProxyProcess, Callable[[str, str], str]]) -> None:
    proxy, change = reloaded
    with proxy.client() as client:
        client.admin.command("ping")
        assert "slow command" not in proxy.log
        change("slow_command_ms = 0", "settings reloaded")
        client.admin.command("ping")
        proxy.wait_until(lambda: "slow command" in proxy.log)
        change('slow_command_ms = ""', "settings reloaded")
        assert proxy.metrics()["tsproxy_slow_threshold_seconds"] == float("inf")
        counted = proxy.metrics()['tsproxy_slow_commands_total{command="ping",way="relay"}']
        client.admin.command("ping")
        assert proxy.metrics()['tsproxy_slow_commands_total{command="ping",way="relay"}'] == counted


@pytest.mark.parametrize("workers", [1, 2])
def test_signals_during_the_start_are_not_lost_and_end_nothing(
    mongod: MongodProcess, tmp_path: Path, workers: int
) -> None:
    """The signals reach a program that has only begun to import its modules."""
    (tmp_path / "tsproxy.toml").touch()
    flags = ["--config", str(tmp_path / "tsproxy.toml"), "--workers", str(workers)]
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=flags).start(wait=False)
    try:
        proxy.wait_until(lambda: {signal.SIGHUP, signal.SIGUSR2} <= blocked(proxy.pid))
        assert "starting" not in proxy.log
        (tmp_path / "tsproxy.toml").write_text("max_connections = 50\n")
        proxy.signal(signal.SIGHUP)
        proxy.signal(signal.SIGUSR2)
        proxy.wait_until(lambda: "ready " in proxy.log)
        assert "settings reloaded" in proxy.log
        assert "SIGUSR2 ignored" in proxy.log or "workers are not restarted" in proxy.log
        assert not blocked(proxy.pid)
        with proxy.client() as client:
            assert client.admin.command("ping")["ok"] == 1
        assert proxy.stop() == 0
    finally:
        proxy.kill()


def blocked(pid: int) -> set[int]:
    """The signals that the main thread of a process holds back."""
    (line,) = re.findall(r"SigBlk:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    return {number for number in range(1, 65) if int(line, 16) >> number - 1 & 1}
