"""What the status listener of the supervisor shows: all workers as one proxy."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from catalog.buckets.stats import Counters
from proxy.observe import page_files
from proxy.observe.busiest import BusiestCollections
from proxy.observe.history import SAMPLE_SECONDS, History, wall_ms
from proxy.observe.http_messages import Page
from proxy.observe.metrics import LIMITS, CatalogReadings, Metrics
from proxy.observe.process_metrics import ProcessMetrics
from proxy.observe.slow_ring import SlowRing
from proxy.observe.status_document import Process, Serving, StatusDocument
from proxy.process.workers.crew import Crew
from proxy.process.workers.member import Member
from proxy.process.workers.summed_readings import sum_of
from proxy.process.workers.sums import Families
from proxy.settings.table import Settings

OF_EACH: Final[Mapping[str, tuple[str, str]]] = {
    "process_resident_memory_bytes": ("tsproxy_worker_resident_memory_bytes", "Resident memory of each worker."),
    "tsproxy_connections_open": ("tsproxy_worker_connections_open", "Clients connected to each worker."),
    "process_cpu_seconds": ("tsproxy_worker_cpu_seconds", "CPU time of each worker."),
}
"""Metrics that are also shown for each worker, with the name and the text that they then have."""


def of_workers(size: int, members: Iterable[Member], restarts: int) -> Iterable[Metric]:
    """The metrics of the workers as such."""
    found = list(members)
    ready = sum(each.is_ready for each in found)
    yield GaugeMetricFamily("tsproxy_workers", "Worker processes, as configured.", value=size)
    yield GaugeMetricFamily("tsproxy_workers_ready", "Workers that can serve clients.", value=ready)
    yield CounterMetricFamily("tsproxy_worker_restarts", "Workers that have ended and were replaced.", value=restarts)
    for source, (name, text) in OF_EACH.items():
        kind = CounterMetricFamily if source.endswith("_seconds") else GaugeMetricFamily
        family = kind(name, text, labels=("worker",))
        for each in found:
            shown = each.families.by_name.get(source)
            if shown is not None:
                family.add_metric((str(each.number),), shown.samples[0].value)
        yield family


class Overview(Collector):
    """The metrics and the status page."""

    def __init__(self, settings: Settings, crew: Crew, embedded_restarts: Callable[[], int]) -> None:
        """``embedded_restarts``: of the embedded mongod, which workers do not know."""
        self.registry = CollectorRegistry()
        self._crew = crew
        self._own = CollectorRegistry()
        self._process = ProcessMetrics(self._own)
        self._embedded_restarts = embedded_restarts
        self.paths: Mapping[str, Page] = {}
        self._metrics = Metrics(CollectorRegistry(), {name: getattr(settings, name) for name in LIMITS})
        self._history = History(self._reading, wall_ms)
        self._document: StatusDocument | None = None
        if settings.status_listen is not None and settings.status_page != "off":
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            process = Process(metadata.version("tsproxy"), secrets.token_hex(8), started_at)
            # Names and slow commands stay with the workers.
            document = StatusDocument(process, "numbers", self._metrics, self._history, crew.why_not_ready)
            self._document = document
            self.paths = {**page_files.pages(), "/status.json": document.answer}
        self.registry.register(self)

    def follow(self, settings: Settings) -> None:
        """The settings were reloaded."""
        self._metrics.limits = {name: getattr(settings, name) for name in LIMITS}

    async def before_scrape(self) -> None:
        """Read the metrics of all workers."""
        await asyncio.gather(self._crew.look("metrics"), asyncio.to_thread(self._process.read))

    def collect(self) -> Iterable[Metric]:
        """The metrics of all workers, for the registry."""
        own = Families(generate_latest(self._own).decode())
        of_all = self._crew.sums.of([own, *(each.families for each in self._crew.everybody)])
        yield from (family for family in of_all if family.name != "tsproxy_embedded_restarts")
        yield CounterMetricFamily(
            "tsproxy_embedded_restarts", "Restarts of the embedded mongod.", value=self._embedded_restarts()
        )
        yield from of_workers(self._crew.size, self._crew.members.values(), self._crew.restarts)

    async def record(self) -> None:
        """Record the history of the page, and notice workers that hang, until the task is cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            await self._crew.look("reading")
            if self._document is not None:
                self._document.serving = self._serving()
                self._history.sample()

    def _reading(self) -> Any:
        readings = [each.reading for each in self._crew.members.values()]
        return sum_of([self._crew.gone, *readings], time.monotonic())

    def _serving(self) -> Serving | None:
        pages = [each.state.page for each in self._crew.members.values() if each.state.page is not None]
        if not pages:
            return None
        self._metrics.backend_up = all(page["answers"] for page in pages)
        in_parts = all(page["in_parts"] for page in pages)
        self._metrics.catalog = CatalogReadings(Counters, dict, _NoCommits(), lambda: in_parts)
        first = pages[0]
        states = {page["state"] for page in pages}
        state = next(iter(states)) if len(states) == 1 else "starting"
        return Serving(
            backend=lambda: first["backend"],
            names=dict,
            traffic=lambda: (state, sum(page["held"] for page in pages)),
            beside_others=lambda: first["beside_others"],
            has_access_control=lambda: True,
            slow=SlowRing(),
            busiest=BusiestCollections(list, time.monotonic),
            lacks=first["lacks"],
        )


class _NoCommits:
    rounds = commands = statements = unknown_outcomes = failures = 0
