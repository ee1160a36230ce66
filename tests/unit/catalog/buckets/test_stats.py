"""Counters under their native names and in native order (W80-W83)."""

from __future__ import annotations

import pytest

from catalog.buckets.stats import NATIVE_COUNTERS, Counters, counters_document
from catalog.kernel.rollover import RolloverReason


def test_counters_of_6_0_come_first_and_in_its_order() -> None:
    """W80"""
    assert NATIVE_COUNTERS == (
        "numBucketInserts",
        "numBucketUpdates",
        "numBucketsOpenedDueToMetadata",
        "numBucketsClosedDueToCount",
        "numBucketsClosedDueToSchemaChange",
        "numBucketsClosedDueToSize",
        "numBucketsClosedDueToTimeForward",
        "numBucketsClosedDueToTimeBackward",
        "numBucketsClosedDueToMemoryThreshold",
        "numCommits",
        "numWaits",
        "numMeasurementsCommitted",
    )
    assert tuple(counters_document(Counters()))[:12] == NATIVE_COUNTERS


def test_average_is_whole_and_absent_without_commits() -> None:
    """W80"""
    assert "avgNumMeasurementsPerCommit" not in counters_document(Counters())
    document = counters_document(Counters(numCommits=2, numMeasurementsCommitted=7))
    assert document["avgNumMeasurementsPerCommit"] == 3
    assert list(document).index("avgNumMeasurementsPerCommit") == 12


@pytest.mark.parametrize("reason", RolloverReason)
def test_every_reason_has_its_counter(reason: RolloverReason) -> None:
    """W41-W48, W83"""
    counters = Counters()
    counters.closed(reason)
    counted = {name: value for name, value in counters_document(counters).items() if value}
    assert len(counted) == 1
    assert next(iter(counted)).startswith("numBucketsClosedDueTo")


def test_count_adds_one() -> None:
    counters = Counters()
    counters.count("numWaits")
    counters.count("numWaits")
    assert counters.numWaits == 2
