"""What a service manager is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.process.notifying import Notifier


@pytest.fixture(params=["path", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        named = str(tmp_path / "notify") if request.param == "path" else f"@tsproxy-test-{tmp_path}"
        made.bind(named.replace("@", "\0"))
        made.setblocking(False)
        yield made, named


def test_what_is_told(listening: tuple[socket.socket, str]) -> None:
    receiver, named = listening
    environment = {"NOTIFY_SOCKET": named, "OTHER": "1"}
    notifier = Notifier(environment)
    assert environment == {"OTHER": "1"}
    notifier.waits("no backend\nat all")
    notifier.ready()
    reloads: list[str] = []
    notifier.reloading(lambda: reloads.append("now"))
    notifier.stopping()
    told = [receiver.recv(1000).decode() for _ in range(5)]
    assert told[0] == "STATUS=no backend"
    assert told[1].startswith("READY=1\n")
    assert told[2].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert told[3] == "READY=1"
    assert told[4].startswith("STOPPING=1\n")
    assert reloads == ["now"]


def test_a_reload_is_told_only_while_clients_are_served(listening: tuple[socket.socket, str]) -> None:
    """What begins and ends it says that the process is ready, which ends the start for a service manager."""
    receiver, named = listening
    notifier = Notifier({"NOTIFY_SOCKET": named})
    reloads: list[str] = []
    notifier.reloading(lambda: reloads.append("starting"))
    notifier.waits("no backend")
    notifier.ready()
    notifier.stopping()
    notifier.reloading(lambda: reloads.append("stopping"))
    told = [receiver.recv(1000).decode().partition("\n")[0] for _ in range(3)]
    assert told == ["STATUS=no backend", "READY=1", "STOPPING=1"]
    with pytest.raises(BlockingIOError):
        receiver.recv(1000)
    assert reloads == ["starting", "stopping"]


def filled(named: str) -> int:
    """Send as many messages as the queue takes; returns their number."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
        others.setblocking(False)
        for sent in count():
            try:
                others.sendto(b"STATUS=", named.replace("@", "\0"))
            except BlockingIOError:
                return sent
    raise AssertionError


def test_a_busy_service_manager_is_waited_for(listening: tuple[socket.socket, str]) -> None:
    """Without ``READY=1``, the unit would be starting for ever."""
    receiver, named = listening
    sent = filled(named)
    told: list[str] = []
    receiver.setblocking(True)
    # It looks only when the notifier is about to wait.
    reading = threading.Timer(0.05, lambda: told.extend(receiver.recv(1000).decode() for _ in range(sent + 1)))
    reading.start()
    Notifier({"NOTIFY_SOCKET": named}).ready()
    reading.join(10)
    assert told[-1].startswith("READY=1\n")


def test_a_service_manager_that_hangs_is_not_waited_for_long(listening: tuple[socket.socket, str]) -> None:
    _, named = listening
    filled(named)
    with capture_logs() as logs:
        Notifier({"NOTIFY_SOCKET": named}).ready()
    assert [entry["event"] for entry in logs] == ["cannot notify the service manager"]
    assert logs[0]["reason"]


def test_without_a_service_manager_nothing_happens_and_a_broken_one_is_logged() -> None:
    with capture_logs() as logs:
        Notifier({}).ready()
        assert logs == []
        Notifier({"NOTIFY_SOCKET": "/nowhere/notify"}).ready()
    assert [entry["event"] for entry in logs] == ["cannot notify the service manager"]
