"""Which clients are closed because they say nothing; tests/unit/proxy/clients/test_server.py has real ones."""

from __future__ import annotations

from typing import cast

from proxy.clients.connection import ClientConnection
from proxy.clients.idle_clients import SILENT_SECONDS, close_idle
from proxy.request.session import Session
from proxy.settings.table import Settings
from tests.support.sessions import session


class Client:
    def __init__(self, active_at_seconds: float, *, is_busy: bool = False) -> None:
        self.session: Session | None = session()
        self.session.came_at_seconds = 0.0
        self.is_busy = is_busy
        self.active_at_seconds = active_at_seconds
        self.closed = False

    def close(self) -> None:
        self.closed = True


def closed(settings: Settings, now_seconds: float, *clients: Client, requires_login: bool = False) -> list[bool]:
    seen = [cast("ClientConnection", each) for each in clients]
    close_idle(seen, settings, now_seconds, requires_login=requires_login)
    return [each.closed for each in clients]


def test_idle_clients_but_not_busy_ones() -> None:
    settings = Settings(idle_timeout_seconds=10.0)
    assert closed(settings, 20.0, Client(5.0), Client(15.0), Client(5.0, is_busy=True)) == [True, False, False]
    assert closed(Settings(), 1e6, Client(5.0)) == [False]


def test_clients_that_never_said_anything() -> None:
    assert closed(Settings(), SILENT_SECONDS + 1, Client(0.0)) == [True]


def test_clients_that_have_not_logged_in_where_they_must() -> None:
    settings = Settings(max_unauthenticated_seconds=5.0)
    assert closed(settings, 20.0, Client(10.0), requires_login=True) == [True]
    assert closed(settings, 20.0, Client(10.0)) == [False]
