"""Clients' sessions that have no backend."""

from __future__ import annotations

from catalog.errors import BackendUnavailable
from catalog.identity import NOBODY, Identity
from proxy.request.session import Session
from proxy.upstream.connection import Upstream
from proxy.upstream.dialing import Dialer


async def nowhere() -> tuple[str, int]:
    raise BackendUnavailable("nowhere")


def session(identity: Identity = NOBODY) -> Session:
    return Session(1, "peer", Upstream(Dialer(nowhere, None, 1.0), lambda: None), identity)
