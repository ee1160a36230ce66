"""The metrics of the access to time-series collections."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from catalog.committer import CommitterMetrics
from proxy.observe.access_numbers import AccessNumbers


def test_access_and_coalesced_inserts_are_shown() -> None:
    numbers = CommitterMetrics()
    numbers.commands, numbers.measurements, numbers.unknown_outcomes = 2, 30, 1
    registry = CollectorRegistry()
    registry.register(AccessNumbers(lambda: ("native", "rights"), numbers))  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    assert 'tsproxy_timeseries_access{access="native",why="rights"} 1.0' in text
    assert "tsproxy_coalesced_commands_total 2.0" in text
    assert "tsproxy_coalesced_measurements_total 30.0" in text
    assert "tsproxy_coalesced_unknown_outcomes_total 1.0" in text
