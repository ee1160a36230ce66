"""The counters of spans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

DROPS: Final = ("queue_full", "export_failed", "stopped")
"""Why spans are dropped. Each is shown from the start: an increase from nothing would not be noticed."""


class TraceNumbers(Collector):
    """Counts spans on their way to the collector.

    Each number has one writer, so no lock is needed: ``ended`` and ``refused`` are counted by the thread of the event
    loop, ``exported`` and ``failed`` by the exporter's.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.ended = 0
        """Sampled spans that were put into the queue."""
        self.refused = 0
        """Sampled spans for which the queue had no room."""
        self.exported = 0
        self.failed = 0
        self.left = 0
        """Spans that were still in the queue when the proxy stopped."""
        registry.register(self)

    @property
    def waiting(self) -> int:
        """Spans in the queue, and those that are being exported."""
        return self.ended - self.exported - self.failed - self.left

    def collect(self) -> Iterable[Metric]:
        """The metrics with their current values."""
        yield CounterMetricFamily("tsproxy_trace_spans", "Spans that were exported.", value=self.exported)
        dropped = CounterMetricFamily(
            "tsproxy_trace_spans_dropped", "Sampled spans that were not exported.", labels=("reason",)
        )
        for reason, count in zip(DROPS, (self.refused, self.failed, self.left), strict=True):
            dropped.add_metric((reason,), count)
        yield dropped
        yield GaugeMetricFamily("tsproxy_trace_spans_waiting", "Spans that wait to be exported.", value=self.waiting)
