"""Sockets and notices of a service manager, and a process that takes over from another on the same sockets."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from proxy.process.exit_codes import ExitCode
from tests.support.activated import ActivatedProxy, listening
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started


def told(receiver: socket.socket) -> list[str]:
    """What the service manager has been told, without what changes each time."""
    found = []
    while True:
        try:
            found.append(receiver.recv(1000).decode().splitlines()[0])
        except BlockingIOError:
            return found


def test_new_process_serves_before_the_old_one_stops(mongod: MongodProcess, tmp_path: Path) -> None:
    with listening() as clients, listening() as status, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        sockets = {"listen": clients, "status_listen": status}
        old = ActivatedProxy(tmp_path / "old", mongod.uri, sockets, environment=environment)
        new = ActivatedProxy(tmp_path / "new", mongod.uri, sockets)
        try:
            old.start()
            old.wait_until(lambda: old.status("/readyz")[0] == 200)
            old.signal(signal.SIGHUP)
            old.wait_until(lambda: "settings reloaded" in old.log)
            with old.client(retryWrites=False, retryReads=False) as client:
                assert client.admin.command("ping")["ok"]
                assert (
                    client.admin.command({"tsproxy": "config"})["sources"]["listen"] == "socket of the service manager"
                )
                new.start()
                assert old.stop() == ExitCode.STOPPED
                assert client.admin.command({"tsproxy": "status"})["pid"] == new.pid
            assert "READY=1" in (notices := told(manager))
            assert [each for each in notices if not each.startswith("STATUS=")] == [
                "READY=1",
                "RELOADING=1",
                "READY=1",
                "STOPPING=1",
            ]
        finally:
            old.stop()
            new.stop()


def test_sockets_without_a_known_name_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with listening() as clients:
        proxy = ActivatedProxy(tmp_path, "mongodb://localhost/", {"listen": clients, "tsproxy.socket": clients})
        assert proxy.start(wait=False).wait() == ExitCode.FIX_SETTINGS
        assert "'tsproxy.socket' is not the name of a listener: set FileDescriptorName=" in proxy.log


def test_sockets_for_another_process_are_ignored_with_a_warning(mongod: MongodProcess, tmp_path: Path) -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "listen"}
    with started(ProxyProcess(tmp_path, mongod.uri, environment=environment)) as proxy, proxy.client() as client:
        assert client.admin.command("ping")["ok"]
        line = next(each for each in proxy.log.splitlines() if "sockets of the service manager ignored" in each)
        assert "warning" in line
        assert f"LISTEN_PID = '1' is not this process, which is {proxy.pid}" in line
