"""The metrics of the access to time-series collections."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from catalog.commit.committer import CommitterMetrics
from proxy.observe.access_numbers import AccessNumbers


class Shown(Collector):
    """As the metrics of the process show them."""

    def __init__(self, numbers: AccessNumbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        return self._numbers.collect()


def test_access_and_coalesced_inserts_are_shown() -> None:
    numbers = CommitterMetrics()
    numbers.commands, numbers.measurements, numbers.unknown_outcomes = 2, 30, 1
    registry = CollectorRegistry()
    collector = AccessNumbers(lambda: ("native", "rights"), numbers)
    registry.register(Shown(collector))
    text = generate_latest(registry).decode()
    assert 'tsproxy_timeseries_access{access="native",why="rights"} 1.0' in text
    assert "tsproxy_coalesced_commands_total 2.0" in text
    assert "tsproxy_coalesced_measurements_total 30.0" in text
    assert "tsproxy_coalesced_unknown_outcomes_total 1.0" in text
