"""The counters of the proxy's catalog inside the backend's statistics (W80, W82)."""

from __future__ import annotations

from typing import Any

from rewrite.commands.statistics import (
    NATIVE_COUNTERS,
    merge_collection_statistics,
    merge_counters,
    merge_server_status,
    merge_storage_statistics,
)

NOTHING = dict.fromkeys(NATIVE_COUNTERS, 0)
BACKEND: dict[str, Any] = {
    "bucketsNs": "db.system.buckets.x",
    "bucketCount": 2,
    "avgBucketSize": 400,
    **NOTHING,
    "numBytesUncompressed": 0,
}
OURS = {**NOTHING, "numBucketInserts": 2, "numCommits": 4, "numMeasurementsCommitted": 10}


def test_w80_counters_are_added_and_the_average_follows_from_the_sums() -> None:
    """Averages are integer divisions and stand right after the measurements."""
    reported = {**BACKEND, "numCommits": 1, "numMeasurementsCommitted": 4, "avgNumMeasurementsPerCommit": 4}
    merged = merge_counters(reported, {**OURS, "avgNumMeasurementsPerCommit": 2})
    assert merged["numBucketInserts"] == 2
    assert merged["numCommits"] == 5
    assert merged["numMeasurementsCommitted"] == 14
    assert merged["avgNumMeasurementsPerCommit"] == 2
    names = list(merged)
    assert names.index("avgNumMeasurementsPerCommit") == names.index("numMeasurementsCommitted") + 1
    assert names[-1] == "numBytesUncompressed"


def test_w80_without_commits_there_is_no_average() -> None:
    assert merge_counters(BACKEND, NOTHING) == BACKEND


def test_w83_newer_counters_appear_once_they_count_something() -> None:
    assert "numBucketsReopened" not in merge_counters(BACKEND, {**OURS, "numBucketsReopened": 0})
    assert merge_counters(BACKEND, {**OURS, "numBucketsReopened": 3})["numBucketsReopened"] == 3


def test_w80_only_the_timeseries_part_of_coll_stats_changes() -> None:
    reply = {"ns": "db.x", "size": 5, "timeseries": BACKEND, "ok": 1.0}
    merged = merge_storage_statistics(reply, OURS)
    assert list(merged) == list(reply)
    assert merged["timeseries"]["numCommits"] == 4
    assert merge_storage_statistics({"ns": "db.y", "ok": 1.0}, OURS) == {"ns": "db.y", "ok": 1.0}


def test_c23_the_stage_reports_the_same_numbers() -> None:
    document = {"ns": "db.x", "host": "h", "storageStats": {"size": 5, "timeseries": BACKEND}}
    assert merge_collection_statistics(document, OURS)["storageStats"]["timeseries"]["numCommits"] == 4
    assert merge_collection_statistics({"ns": "db.x"}, OURS) == {"ns": "db.x"}


STATUS: dict[str, Any] = {
    "host": "h",
    "process": "mongod",
    "localTime": 0,
    "asserts": {},
    "batchedDeletes": {},
    "catalogStats": {},
    "mem": {},
    "ok": 1.0,
}
GAUGES = {"numBuckets": 3, "numOpenBuckets": 3, "numIdleBuckets": 1, "memoryUsage": 900}


def test_w82_the_section_stands_where_a_server_puts_it() -> None:
    merged = merge_server_status(STATUS, {**GAUGES, **OURS}, {"serverStatus": 1})
    names = list(merged)
    assert names[names.index("bucketCatalog") - 1 : names.index("bucketCatalog") + 2] == [
        "batchedDeletes",
        "bucketCatalog",
        "catalogStats",
    ]
    assert list(merged["bucketCatalog"]) == [*GAUGES, *NATIVE_COUNTERS, "avgNumMeasurementsPerCommit"]
    assert merged["bucketCatalog"]["numBuckets"] == 3


def test_w82_two_catalogs_are_added() -> None:
    reported = {**STATUS, "bucketCatalog": {**GAUGES, **OURS}}
    merged = merge_server_status(reported, {**GAUGES, **OURS}, {"serverStatus": 1})
    assert merged["bucketCatalog"]["numBuckets"] == 6
    assert merged["bucketCatalog"]["numCommits"] == 8


def test_w82_absent_before_first_use_and_when_switched_off() -> None:
    assert merge_server_status(STATUS, dict.fromkeys((*GAUGES, *NOTHING), 0), {"serverStatus": 1}) == STATUS
    asked = {"serverStatus": 1, "bucketCatalog": 0}
    assert merge_server_status(STATUS, {**GAUGES, **OURS}, asked) == STATUS
