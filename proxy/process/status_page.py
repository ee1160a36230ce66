"""Connects the status page with the components of the process."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from typing import Any

from proxy.backend.probing import without_timeseries
from proxy.observe import page_files
from proxy.observe.busiest import BusiestCollections
from proxy.observe.history import History, wall_ms
from proxy.observe.http_messages import HttpRequest, Page
from proxy.observe.metrics import Metrics
from proxy.observe.readings import read
from proxy.observe.status_document import Process, Serving, StatusDocument
from proxy.process.assembly import Assembly
from proxy.settings.config import Settings, redact_uri


class StatusPage:
    """The page of one process. Without ``status_page``, there are no paths, and nothing is recorded."""

    def __init__(self, settings: Settings, metrics: Metrics, why_not_ready: Callable[[], str]) -> None:
        self.paths: Mapping[str, Page] = {}
        self._document: StatusDocument | None = None
        self._metrics = metrics
        if settings.status_listen is None or settings.status_page == "off":
            return
        self._history = History(lambda: read(metrics, time.monotonic()), wall_ms)
        process = Process(
            metadata.version("tsproxy"), secrets.token_hex(8), datetime.now(UTC).isoformat(timespec="seconds")
        )
        self._document = StatusDocument(process, settings.status_page, metrics, self._history, why_not_ready)
        self.paths = {**page_files.pages(), "/status.json": self._document.answer}

    async def run(self) -> None:
        """Record the history until the task is cancelled."""
        if self._document is not None:
            await self._history.run(self._document.look)

    def before_metrics(self, request: HttpRequest) -> None:
        """The metrics show names to those to whom the page shows them."""
        self._metrics.show_names(self._document is not None and self._document.shows_names(request))

    def serves(self, serving: Serving) -> None:
        """The backend was reached."""
        if self._document is not None:
            self._document.serving = serving


def serving_of(assembly: Assembly, settings: Settings, traffic: Callable[[], tuple[str, int]]) -> Serving:
    """What the page shows of these components; ``traffic``: see ``Serving``."""
    backend, catalog, in_parts = assembly.backend, assembly.catalog, assembly.in_parts
    # Other proxies are looked for only if buckets may grow in parts.
    looks = in_parts is not None and in_parts.company is not None
    return Serving(
        backend=partial(_backend, assembly),
        names=lambda: {"uri": redact_uri(settings.backend or "embedded")},
        traffic=traffic,
        beside_others=lambda: catalog.growth.obstacles.is_beside_other_proxies if looks else None,
        has_access_control=lambda: backend.access.enforced,
        slow=assembly.slow.ring,
        busiest=BusiestCollections(catalog.collections, asyncio.get_running_loop().time),
        lacks=without_timeseries(backend.profile),
    )


def _backend(assembly: Assembly) -> dict[str, Any]:
    backend = assembly.backend
    profile = backend.profile
    kind = "sharded cluster" if profile.is_mongos else "replica set" if profile.is_replica_set else "standalone"
    return {
        "version": profile.shown_version,
        "timeseries": profile.has_native_timeseries,
        "kind": kind,
        "accessControl": backend.access.enforced,
        "access": profile.access.value,
        "accessReason": profile.reason,
    }
