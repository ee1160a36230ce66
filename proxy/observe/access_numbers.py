"""The metrics of how time-series collections are accessed, and of coalesced inserts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric


class CoalescedNumbers(Protocol):
    """The counters of coalesced inserts (``proxy.inserts.coalescing``)."""

    commands: int
    measurements: int
    unknown_outcomes: int


class NoneCoalesced:
    """Before there are any."""

    commands = 0
    measurements = 0
    unknown_outcomes = 0


@dataclass(slots=True)
class AccessNumbers:
    """``access``: how time-series collections are accessed, and why, as labels."""

    access: Callable[[], tuple[str, str]] = lambda: ("", "")
    coalesced: CoalescedNumbers = NoneCoalesced

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        access = GaugeMetricFamily(
            "tsproxy_timeseries_access",
            "Access mode in use (1), with the reason as a label.",
            labels=("access", "why"),
        )
        access.add_metric(self.access(), 1)
        yield access
        numbers = self.coalesced
        yield CounterMetricFamily(
            "tsproxy_coalesced_commands",
            "Coalesced inserts: native inserts with documents of many clients.",
            value=numbers.commands,
        )
        yield CounterMetricFamily(
            "tsproxy_coalesced_measurements", "Measurements stored by coalesced inserts.", value=numbers.measurements
        )
        yield CounterMetricFamily(
            "tsproxy_coalesced_unknown_outcomes",
            "Coalesced inserts with a lost reply, which are sent again if the backend has retryable writes.",
            value=numbers.unknown_outcomes,
        )
