"""What is read is what the metrics show."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from catalog.buckets.stats import Counters
from catalog.kernel.rollover import RolloverReason
from proxy.observe.metrics import CatalogReadings, Metrics
from proxy.observe.readings import read


class CommitterNumbers:
    rounds = commands = statements = unknown_outcomes = failures = 3


def test_before_the_backend_was_reached_there_are_zeroes() -> None:
    reading = read(Metrics(CollectorRegistry()), 5.0)
    assert (reading.at_seconds, reading.is_ready) == (5.0, False)
    assert set(reading.counts.values()) == set(reading.gauges.values()) == {0}
    assert reading.rollovers == reading.errors == {}


def test_everything_that_was_counted_is_read() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.is_ready = lambda: True
    metrics.requests("insert", "ingest").done(0.001)
    metrics.requests("insert", "ingest").done(0.001, 11000)
    metrics.requests("find", "relay").done(0.2)
    metrics.commit_answered("updates", 2, 0.02)
    metrics.slow.count("find", "relay")
    metrics.connections.accept()
    metrics.connections.reject("too_many")
    counters = Counters(numMeasurementsCommitted=40, numCommits=8)
    counters.closed(RolloverReason.SIZE)
    gauges = {"numOpenBuckets": 6, "numIdleBuckets": 5, "memoryUsage": 4}
    metrics.read_catalog(
        CatalogReadings(
            lambda: counters,
            lambda: gauges,
            CommitterNumbers(),
            unjoined=lambda: 9,
            uncommitted=lambda: (7, 700),
            native=lambda: 2,
        )
    )
    reading = read(metrics, 0.0)
    assert reading.is_ready
    assert reading.counts["requests"] == 3
    assert reading.counts["errors"] == reading.counts["slow"] == reading.counts["rejectedConnections"] == 1
    assert (reading.counts["measurements"], reading.counts["batched"], reading.counts["batches"]) == (42, 40, 8)
    assert reading.counts["commits"] == reading.counts["commitFailures"] == reading.counts["unknownOutcomes"] == 3
    assert reading.errors == {("insert", "ingest", "duplicate_key"): 1}
    assert reading.rollovers["size"] == 1
    assert {way: sum(counts) for way, counts in reading.latencies.items()} == {
        "ingest": 2,
        "relay": 1,
        "commit insert": 0,
        "commit update": 1,
    }
    assert reading.gauges == {
        "connections": 1,
        "openBuckets": 6,
        "idleBuckets": 5,
        "catalogBytes": 4,
        "unjoinedParts": 9,
        "uncommittedMeasurements": 7,
        "uncommittedBytes": 700,
    }
