"""Metrics of several processes are those of one."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from docs.generator.metric_page import families
from proxy.observe.metrics import Metrics
from proxy.process.workers.sums import GAUGES, Families, Sums

SUMMED_GAUGES = {
    "tsproxy_connections_open",
    "tsproxy_limited_connections",
    "tsproxy_limited_commands",
    "tsproxy_limited_commands_waiting",
    "tsproxy_limited_inserts_waiting",
    "tsproxy_limit",
    "tsproxy_open_buckets",
    "tsproxy_idle_buckets",
    "tsproxy_catalog_memory_bytes",
    "tsproxy_unjoined_parts",
    "tsproxy_uncommitted_measurements",
    "tsproxy_pursued_bytes",
    "tsproxy_pursued_measurements",
    "tsproxy_uncommitted_bytes",
    "tsproxy_trace_spans_waiting",
}


def shown(inserts: int, connections: int) -> Families:
    registry = CollectorRegistry()
    metrics = Metrics(registry, {"max_connections": 5})
    metrics.backend_up = bool(inserts)
    for _ in range(inserts):
        metrics.requests("insert", "ingest").done(0.004)
    for _ in range(connections):
        metrics.connections.accept()
    return Families(generate_latest(registry).decode())


class Summed(Collector):
    def __init__(self, sums: Sums, *running: Families) -> None:
        self.sums, self.running = sums, running

    def collect(self) -> Any:
        return self.sums.of(self.running)

    def value(self, name: str, **labels: str) -> float | None:
        registry = CollectorRegistry()
        registry.register(self)
        return registry.get_sample_value(name, labels)


def test_counters_histograms_and_gauges_of_all() -> None:
    summed = Summed(Sums(), shown(2, 1), shown(3, 4))
    labels = {"command": "insert", "way": "ingest", "outcome": "ok"}
    assert summed.value("tsproxy_requests_total", **labels) == 5
    assert summed.value("tsproxy_request_seconds_bucket", way="ingest", le="0.005") == 5
    assert summed.value("tsproxy_request_seconds_sum", way="ingest") == pytest.approx(0.02)
    assert summed.value("tsproxy_connections_open") == 5
    assert summed.value("tsproxy_limit", setting="max_connections") == 10
    assert summed.value("tsproxy_backend_up") == 1
    assert Summed(Sums(), shown(2, 1), shown(0, 0)).value("tsproxy_backend_up") == 0


def test_what_a_worker_has_counted_stays_when_it_ends() -> None:
    sums = Sums()
    sums.ended(shown(2, 1))
    sums.ended(shown(1, 0))
    labels = {"command": "insert", "way": "ingest", "outcome": "ok"}
    assert Summed(sums).value("tsproxy_requests_total", **labels) == 3
    assert Summed(sums, shown(4, 1)).value("tsproxy_requests_total", **labels) == 7
    assert Summed(sums, shown(4, 1)).value("tsproxy_connections_open") == 1


def test_text_of_the_sum_of_one_is_its_own() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, {"max_connections": 5})
    metrics.requests("insert", "ingest").done(0.004)
    text = generate_latest(registry).decode()
    again = CollectorRegistry()
    again.register(Summed(Sums(), Families(text)))
    assert sorted(generate_latest(again).decode().splitlines()) == sorted(text.splitlines())


def test_it_is_decided_for_every_gauge() -> None:
    gauges = {family.name for family in families() if family.type == "gauge"}
    assert gauges - GAUGES.keys() == SUMMED_GAUGES
