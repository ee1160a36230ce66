"""The numbers of the proxy at one moment, as the status page needs them: what rises, and what is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from catalog.buckets.stats import CLOSED_COUNTERS
from proxy.observe.metrics import CatalogReadings, Metrics

COMMIT: Final = "commit"
"""Its response times stand beside those of the ways, one for each kind: ``commit insert``, ``commit update``."""

ErrorKey = tuple[str, str, str]
"""Command, way and class of an error."""


@dataclass(frozen=True, slots=True)
class Reading:
    """``counts``, ``latencies``, ``errors`` and ``rollovers`` only rise; ``gauges`` may fall.

    ``at_seconds`` is monotonic. ``latencies`` has the counts of ``LATENCY_BOUNDS_SECONDS`` by way; ``errors`` only has
    those that have occurred.
    """

    at_seconds: float
    is_ready: bool
    counts: Mapping[str, int]
    latencies: Mapping[str, tuple[int, ...]]
    errors: Mapping[ErrorKey, int]
    rollovers: Mapping[str, int]
    gauges: Mapping[str, int]


def read(metrics: Metrics, now_seconds: float) -> Reading:
    """Read everything once."""
    catalog = metrics.catalog
    latencies = {way: tuple(histogram.counts) for way, histogram in metrics.request_numbers.latencies.items()}
    for kind, histogram in metrics.commits.seconds.items():
        latencies[f"{COMMIT} {kind}"] = tuple(histogram.counts)
    errors = {
        (command, way, each.value): count
        for (command, way), meter in metrics.request_numbers.meters.items()
        for each, count in meter.errors.items()
        if count
    }
    connections = metrics.connections
    return Reading(
        at_seconds=now_seconds,
        is_ready=metrics.is_ready(),
        counts={
            "requests": sum(sum(histogram.counts) for histogram in metrics.request_numbers.latencies.values()),
            "errors": sum(errors.values()),
            "slow": metrics.slow.total,
            "receivedBytes": connections.bytes_received,
            "sentBytes": connections.bytes_sent,
            "rejectedConnections": sum(connections.rejected.values()),
            "internalErrors": metrics.invariant_violations,
            **(_counts(catalog) if catalog is not None else _NO_CATALOG_COUNTS),
        },
        latencies=latencies,
        errors=errors,
        rollovers={} if catalog is None else _rollovers(catalog),
        gauges={"connections": connections.open, **(_gauges(catalog) if catalog is not None else _NO_CATALOG_GAUGES)},
    )


def _counts(catalog: CatalogReadings) -> dict[str, int]:
    counters, committer = catalog.counters(), catalog.committer
    return {
        "measurements": counters.numMeasurementsCommitted + catalog.native(),
        "batched": counters.numMeasurementsCommitted,
        "batches": counters.numCommits,
        "commits": committer.commands,
        "bucketsInserted": counters.numBucketInserts,
        "bucketsUpdated": counters.numBucketUpdates,
        "unknownOutcomes": committer.unknown_outcomes,
        "commitFailures": committer.failures,
        "joinedParts": catalog.joined(),
        "joinsPutOff": catalog.joins_put_off(),
    }


def _rollovers(catalog: CatalogReadings) -> dict[str, int]:
    counters = catalog.counters()
    return {reason.name.lower(): getattr(counters, name) for reason, name in CLOSED_COUNTERS.items()}


def _gauges(catalog: CatalogReadings) -> dict[str, int]:
    gauges = catalog.gauges()
    measurements, size_bytes = catalog.uncommitted()
    return {
        "openBuckets": gauges["numOpenBuckets"],
        "idleBuckets": gauges["numIdleBuckets"],
        "catalogBytes": gauges["memoryUsage"],
        "unjoinedParts": catalog.unjoined(),
        "uncommittedMeasurements": measurements,
        "uncommittedBytes": size_bytes,
    }


_NO_CATALOG_COUNTS: Final = dict.fromkeys(
    (
        *("measurements", "batched", "batches", "commits", "bucketsInserted", "bucketsUpdated"),
        *("unknownOutcomes", "commitFailures", "joinedParts", "joinsPutOff"),
    ),
    0,
)
"""Before the backend was reached."""
_NO_CATALOG_GAUGES: Final = dict.fromkeys(
    ("openBuckets", "idleBuckets", "catalogBytes", "unjoinedParts", "uncommittedMeasurements", "uncommittedBytes"), 0
)

NO_COUNTS: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        ("requests", "errors", "slow", "receivedBytes", "sentBytes", "rejectedConnections", "internalErrors"), 0
    ),
    **_NO_CATALOG_COUNTS,
}
NO_GAUGES: Final[Mapping[str, int]] = {"connections": 0, **_NO_CATALOG_GAUGES}
"""All names of counts and gauges, before anything has happened."""
