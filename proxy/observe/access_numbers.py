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
            "1 for how time-series collections are read and written, and why.",
            labels=("access", "why"),
        )
        access.add_metric(self.access(), 1)
        yield access
        numbers = self.coalesced
        yield CounterMetricFamily(
            "tsproxy_coalesced_commands", "Native inserts with documents of many clients.", value=numbers.commands
        )
        yield CounterMetricFamily(
            "tsproxy_coalesced_measurements", "Measurements that they stored.", value=numbers.measurements
        )
        yield CounterMetricFamily(
            "tsproxy_coalesced_unknown_outcomes",
            "Those with a lost reply, which are sent again if the backend can tell what it has executed.",
            value=numbers.unknown_outcomes,
        )
