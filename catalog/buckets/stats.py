"""Counters of the catalog under their native names (W80-W83)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from catalog.kernel.rollover import RolloverReason


@dataclass(slots=True)
class Counters:
    """Events of the buckets of one collection, or of all, since startup or the last drop (W80, W82)."""

    numBucketInserts: int = 0
    numBucketUpdates: int = 0
    numBucketsOpenedDueToMetadata: int = 0
    numBucketsClosedDueToCount: int = 0
    numBucketsClosedDueToSchemaChange: int = 0
    numBucketsClosedDueToSize: int = 0
    numBucketsClosedDueToTimeForward: int = 0
    numBucketsClosedDueToTimeBackward: int = 0
    numBucketsClosedDueToMemoryThreshold: int = 0
    numCommits: int = 0
    numWaits: int = 0
    numMeasurementsCommitted: int = 0
    numBucketsClosedDueToReopening: int = 0
    numBucketsReopened: int = 0
    numBucketsKeptOpenDueToLargeMeasurements: int = 0
    numBucketsClosedDueToCachePressure: int = 0
    numBucketsQueried: int = 0
    numBucketQueriesFailed: int = 0
    numBytesUncompressed: int = 0
    numBytesCompressed: int = 0
    numCompressedBuckets: int = 0
    numUncompressedBuckets: int = 0

    def count(self, name: str) -> None:
        """One more of ``name``."""
        setattr(self, name, getattr(self, name) + 1)

    def closed(self, reason: RolloverReason) -> None:
        """Count a closed bucket under its reason."""
        self.count(CLOSED_COUNTERS[reason])

    def compressed(self, before_bytes: int, after_bytes: int) -> None:
        """Count an attempted compression; equal sizes mean that the bucket stayed uncompressed (W81)."""
        self.numBytesUncompressed += before_bytes
        self.numBytesCompressed += after_bytes
        self.count("numCompressedBuckets" if after_bytes < before_bytes else "numUncompressedBuckets")


CLOSED_COUNTERS: Mapping[RolloverReason, str] = {
    RolloverReason.COUNT: "numBucketsClosedDueToCount",
    RolloverReason.SCHEMA_CHANGE: "numBucketsClosedDueToSchemaChange",
    RolloverReason.SIZE: "numBucketsClosedDueToSize",
    RolloverReason.TIME_FORWARD: "numBucketsClosedDueToTimeForward",
    RolloverReason.TIME_BACKWARD: "numBucketsClosedDueToTimeBackward",
    RolloverReason.MEMORY: "numBucketsClosedDueToMemoryThreshold",
    RolloverReason.REOPENING: "numBucketsClosedDueToReopening",
    RolloverReason.CACHE_PRESSURE: "numBucketsClosedDueToCachePressure",
}

NATIVE_COUNTERS = tuple(field.name for field in fields(Counters))[:12]
"""Counters that 6.0.5 also reports, in its order; the others are those of newer servers (W83)."""


def counters_document(counters: Counters) -> dict[str, int]:
    """The counters as ``collStats.timeseries`` and ``serverStatus.bucketCatalog`` show them (W80, W82)."""
    document = {name: getattr(counters, name) for name in NATIVE_COUNTERS}
    if counters.numCommits:
        document["avgNumMeasurementsPerCommit"] = counters.numMeasurementsCommitted // counters.numCommits
    for name in tuple(field.name for field in fields(Counters))[12:]:
        document[name] = getattr(counters, name)
    return document
