"""Open buckets are let go when they would fill more than half of the server's cache (W51)."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.support.twins import Twins, run

NOON = dt.datetime(2024, 5, 17, 12, tzinfo=dt.UTC)
SERIES = 2_400
"""Their buckets would fill more than half of the cache of the test's servers, 512 MiB, which is 2,097 buckets."""
ROWS = 7
FAT = "x" * 20_000
"""Six rows fill a bucket of 128,000 bytes; five fill one that has to leave room for 2,400 others."""
NAME = "numBucketsClosedDueToCachePressure"


def fill(database: Any) -> dict[str, Any]:
    """Many series, and then large rows for one of them; returns the counters of the collection."""
    database.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    first = [{"_id": number, "t": NOON, "m": number, "v": ""} for number in range(SERIES)]
    assert run(database, {"insert": "x", "documents": first, "ordered": False})["n"] == SERIES
    for number in range(ROWS):
        row = {"_id": SERIES + number, "t": NOON + dt.timedelta(seconds=number), "m": 0, "v": FAT}
        assert run(database, {"insert": "x", "documents": [row]})["n"] == 1
    counters: dict[str, Any] = run(database, {"collStats": "x"})["timeseries"]
    return counters


def test_w51_one_bucket_leaves_room_for_the_others(twins: Twins, mongod_version: tuple[int, ...]) -> None:
    """Every server behind the proxy has it; natively, it is seen on 7.0.28."""
    counters = fill(twins.virtual)
    assert counters[NAME] >= 1
    assert counters["numBucketsClosedDueToSize"] == 0
    stored = run(twins.stored, {"find": "x", "filter": {"m": 0}, "sort": {"_id": 1}, "projection": {"_id": 1}})
    assert [row["_id"] for row in stored["cursor"]["firstBatch"]] == [0, *range(SERIES, SERIES + ROWS)]
    if mongod_version >= (7, 0, 0):
        assert fill(twins.native)[NAME] >= 1
