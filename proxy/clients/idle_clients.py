"""Closes clients whose last command ended too long ago."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proxy.clients.connection import ClientConnection
from proxy.settings.table import Settings

SILENT_SECONDS: Final = 30.0
"""A client that has sent no command by then is closed: drivers send a ``hello`` as soon as they are connected."""
STALE_SECONDS: Final = 1.5
"""A client that has logged in at a former primary is closed after this time without a command. Drivers check whether a
connection is closed before they use one that was idle for a second."""


def close_idle(
    clients: Iterable[ClientConnection], settings: Settings, now_seconds: float, *, requires_login: bool
) -> None:
    """Close those of ``clients`` that were idle for too long; a command that has arrived in part does not count."""
    login_seconds = settings.max_unauthenticated_seconds if requires_login else 0.0
    for client in clients:
        if client.is_busy or client.session is None:
            continue
        idle_seconds = now_seconds - client.active_at_seconds
        upstream = client.session.upstream
        limits = (
            settings.idle_timeout_seconds,
            0.0 if client.session.identity else login_seconds,
            SILENT_SECONDS if client.active_at_seconds == client.session.came_at_seconds else 0.0,
            STALE_SECONDS if upstream.is_bound and upstream.is_retired else 0.0,
        )
        if any(0 < limit <= idle_seconds for limit in limits):
            client.close()
