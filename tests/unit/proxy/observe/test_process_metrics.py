"""The process metrics are those of the library, as they were at the last reading."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from proxy.observe.process_metrics import ProcessMetrics


def shown(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_values_change_with_a_reading_only() -> None:
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry)
    before = shown(registry)
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"} <= before.keys()
    with open(__file__), open(__file__):  # noqa: PTH123
        assert shown(registry) == before
        metrics.read()
        assert shown(registry)["process_open_fds"] == before["process_open_fds"] + 2
