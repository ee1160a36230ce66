"""Plain numbers as Prometheus sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from catalog.buckets.stats import Counters
from catalog.kernel.rollover import RolloverReason
from proxy.observe.error_classes import ErrorClass
from proxy.observe.metrics import LATENCY_BOUNDS_SECONDS, LIMITS, CatalogReadings, Metrics
from proxy.settings.table import ROWS


@dataclass
class CommitterNumbers:
    rounds: int = 0
    commands: int = 0
    statements: int = 0
    unknown_outcomes: int = 0
    failures: int = 0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=False)


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry)


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Every sample that the text format shows, by name and label values."""

    def read() -> Iterator[tuple[tuple[str, ...], float]]:
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                yield (sample.name, *sample.labels.values()), sample.value

    return dict(read())


def test_requests_are_counted_by_command_way_and_outcome(registry: CollectorRegistry, metrics: Metrics) -> None:
    meter = metrics.requests("insert", "ingest")
    meter.done(0.001)
    meter.done(0.002, 11000)
    metrics.requests("find", "relay").done(0.2)
    shown = samples(registry)
    assert shown["tsproxy_requests_total", "insert", "ok", "ingest"] == 1
    assert shown["tsproxy_requests_total", "insert", "error", "ingest"] == 1
    # Each class is shown from the start: an increase from nothing would not be noticed.
    assert {
        key[1]: value for key, value in shown.items() if key[0] == "tsproxy_request_errors_total" and key[2] == "insert"
    } == {each.value: float(each is ErrorClass.DUPLICATE_KEY) for each in ErrorClass}
    assert shown["tsproxy_requests_total", "find", "ok", "relay"] == 1
    assert shown["tsproxy_request_seconds_count", "ingest"] == 2
    assert shown["tsproxy_request_seconds_bucket", "0.25", "relay"] == 1


@pytest.mark.parametrize(("seconds", "bound"), [(0.000_03, "5e-05"), (0.000_08, "0.0001"), (0.000_2, "0.00025")])
def test_commands_below_a_millisecond_are_told_apart(
    registry: CollectorRegistry, metrics: Metrics, seconds: float, bound: str
) -> None:
    """The medians of small inserts and of ``ping`` are far below a millisecond."""
    metrics.requests("insert", "ingest").done(seconds)
    below = [value for key, value in samples(registry).items() if key[0] == "tsproxy_request_seconds_bucket"]
    assert samples(registry)["tsproxy_request_seconds_bucket", bound, "ingest"] == 1
    assert below.index(1) == LATENCY_BOUNDS_SECONDS.index(float(bound))


def test_a_meter_is_the_same_each_time(metrics: Metrics) -> None:
    assert metrics.requests("insert", "ingest") is metrics.requests("insert", "ingest")


def test_connections(registry: CollectorRegistry, metrics: Metrics) -> None:
    numbers = metrics.connections
    numbers.accept()
    numbers.accept()
    numbers.close()
    numbers.reject("too_many")
    numbers.bytes_received += 10
    numbers.bytes_sent += 20
    shown = samples(registry)
    assert shown[("tsproxy_connections_open",)] == 1
    assert shown[("tsproxy_connections_total",)] == 2
    assert shown["tsproxy_connections_rejected_total", "too_many"] == 1
    assert shown["tsproxy_connections_rejected_total", "too_many_handshakes"] == 0
    assert shown[("tsproxy_received_bytes_total",)] == 10
    assert shown[("tsproxy_sent_bytes_total",)] == 20


def test_limits_are_shown_beside_what_they_limit(registry: CollectorRegistry) -> None:
    Metrics(registry, {"max_connections": 500})
    assert samples(registry)["tsproxy_limit", "max_connections"] == 500


def test_limits_are_settings() -> None:
    assert set(LIMITS) <= set(ROWS)


def test_readiness_is_asked_for_by_each_scrape(registry: CollectorRegistry, metrics: Metrics) -> None:
    assert samples(registry)[("tsproxy_ready",)] == 0
    metrics.is_ready = lambda: True
    assert samples(registry)[("tsproxy_ready",)] == 1


def test_uncommitted_measurements_are_shown(registry: CollectorRegistry, metrics: Metrics) -> None:
    gauges = {"numOpenBuckets": 0, "numIdleBuckets": 0, "memoryUsage": 0}
    metrics.read_catalog(CatalogReadings(Counters, lambda: gauges, CommitterNumbers(), uncommitted=lambda: (7, 420)))
    shown = samples(registry)
    assert shown[("tsproxy_uncommitted_measurements",)] == 7
    assert shown[("tsproxy_uncommitted_bytes",)] == 420


def test_catalog_is_read_when_it_is_scraped(registry: CollectorRegistry, metrics: Metrics) -> None:
    counters, committer = Counters(), CommitterNumbers()
    gauges = {"numBuckets": 3, "numOpenBuckets": 3, "numIdleBuckets": 1, "memoryUsage": 4096}
    metrics.read_catalog(CatalogReadings(lambda: counters, lambda: gauges, committer, lambda: True, lambda: 3))
    counters.numCommits, counters.numMeasurementsCommitted = 4, 100
    counters.closed(RolloverReason.TIME_FORWARD)
    committer.rounds = 2
    shown = samples(registry)
    assert shown[("tsproxy_batch_measurements_count",)] == 4
    assert shown[("tsproxy_batch_measurements_sum",)] == 100
    assert shown["tsproxy_rollovers_total", "time_forward"] == 1
    assert shown["tsproxy_rollovers_total", "count"] == 0
    assert shown[("tsproxy_open_buckets",)] == 3
    assert shown[("tsproxy_grows_in_parts",)] == 1
    assert shown[("tsproxy_unjoined_parts",)] == 3
    assert shown[("tsproxy_commit_rounds_total",)] == 2


def test_every_family_can_be_scraped_before_anything_happened(registry: CollectorRegistry, metrics: Metrics) -> None:
    assert samples(registry)[("tsproxy_backend_up",)] == 0
    metrics.backend_up = True
    assert samples(registry)[("tsproxy_backend_up",)] == 1


def test_commit_commands_are_timed_by_kind(registry: CollectorRegistry, metrics: Metrics) -> None:
    gauges = {"numOpenBuckets": 0, "numIdleBuckets": 0, "memoryUsage": 0}
    metrics.read_catalog(CatalogReadings(Counters, lambda: gauges, CommitterNumbers()))
    metrics.commit_answered("documents", 3, 0.01)
    metrics.commit_answered("updates", 100, 0.02)
    metrics.commit_answered("", 0, 9.0)
    shown = samples(registry)
    assert shown["tsproxy_commit_seconds_count", "insert"] == shown["tsproxy_commit_seconds_count", "update"] == 1
    assert shown[("tsproxy_commit_statements_sum",)] == 103


def test_the_longest_hold_of_the_loop_is_told_once(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.held.observe(0.004)
    metrics.held.observe(0.25)
    assert samples(registry)["tsproxy_loop_held_longest_seconds",] == 0.25
    assert samples(registry)["tsproxy_loop_held_longest_seconds",] == 0
    assert samples(registry)["tsproxy_loop_held_seconds_count",] == 2
