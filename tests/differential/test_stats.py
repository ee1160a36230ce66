"""``collStats``, ``$collStats`` and ``serverStatus`` through the proxy (C22, C23, W80-W82)."""

from __future__ import annotations

from typing import Any

from bson.datetime_ms import DatetimeMS

from tests.support.twins import Twins, run

NOON = 1_700_000_000_000
TM = {"timeField": "t", "metaField": "m"}

OWN_TO_STORAGE = {"size", "storageSize", "freeStorageSize", "totalIndexSize", "totalSize", "wiredTiger", "indexDetails"}
COMPRESSION = {
    "avgBucketSize", "numBytesUncompressed", "numBytesCompressed", "numSubObjCompressionRestart",
    "numCompressedBuckets", "numUncompressedBuckets", "numFailedDecompressBuckets",
}  # fmt: skip
"""Buckets of the proxy stay uncompressed, so these may differ."""

TIMING = {"numWaits"}
"""Depends on who is faster."""

OF_THE_SERVER_ALONE = {"numMeasurementsGroupCommitted"}
"""The proxy has no such counter, so it shows it only once the server's own catalog is in use (W83)."""


def statistics(reply: dict[str, Any]) -> dict[str, Any]:
    """What two collections with the same contents have in common."""
    kept = {name: value for name, value in reply.items() if name not in OWN_TO_STORAGE}
    return kept | {"timeseries": {n: v for n, v in reply["timeseries"].items() if n not in COMPRESSION | TIMING}}


def test_c22_w80_collection_statistics(twins: Twins) -> None:
    """The same counters in the same order, from the empty collection on; dropping resets them."""
    for _ in range(2):
        twins.same({"create": "x", "timeseries": TM})
        for number in range(4):
            native, virtual = twins.both({"collStats": "x"})
            assert list(virtual) == list(native)
            assert list(virtual["timeseries"]) == list(native["timeseries"])
            assert statistics(virtual) == statistics(native)
            rows = [{"t": DatetimeMS(NOON + number * 4_000_000 + n), "m": n % 5, "v": n} for n in range(20)]
            twins.same({"insert": "x", "documents": rows})
        assert virtual["timeseries"]["numBucketsClosedDueToTimeForward"] == 10
        twins.same({"drop": "x"})


def test_c22_scale_plain_collections_and_errors(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"insert": "plain", "documents": [{"_id": 1}]})
    for command in ({"collStats": "x", "scale": 0}, {"collStats": "x", "scale": "a"}, {"collStats": 5}):
        twins.same(command)
    native, virtual = twins.both({"collStats": "x", "scale": 1024})
    assert virtual["scaleFactor"] == native["scaleFactor"] == 1024
    for name in ("plain", "missing", "system.buckets.x"):
        native, virtual = twins.both({"collStats": name})
        assert list(virtual) == list(native)


def test_c23_the_stage_reports_the_proxys_counters(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"insert": "x", "documents": [{"t": DatetimeMS(NOON), "m": 1, "v": 1}]})
    command = {"aggregate": "x", "pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}}
    native, virtual = (reply["cursor"]["firstBatch"][0] for reply in twins.both(command))
    assert list(virtual) == list(native)
    assert virtual["ns"] == native["ns"]
    assert statistics(virtual["storageStats"]) == statistics(native["storageStats"])
    for stage in ({"latencyStats": {}}, {}):
        native, virtual = twins.both({**command, "pipeline": [{"$collStats": stage}]})
        assert virtual["cursor"]["firstBatch"][0].keys() == native["cursor"]["firstBatch"][0].keys()


def test_w82_server_status_counts_the_proxys_catalog(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM})
    before = run(twins.virtual.client.admin, {"serverStatus": 1}).get("bucketCatalog", {})
    rows = [{"t": DatetimeMS(NOON + n), "m": n % 5, "v": n} for n in range(20)]
    twins.virtual.command({"insert": "x", "documents": rows})
    status = run(twins.virtual.client.admin, {"serverStatus": 1})
    section = status["bucketCatalog"]
    assert section["numMeasurementsCommitted"] - before.get("numMeasurementsCommitted", 0) == 20
    assert section["numBucketsOpenedDueToMetadata"] - before.get("numBucketsOpenedDueToMetadata", 0) == 5
    assert section["memoryUsage"] > 0
    # The server's own catalog is in use too, so its order of sections and fields can be compared.
    twins.native.command({"create": "y", "timeseries": TM})
    twins.native.command({"insert": "y", "documents": rows})
    native = run(twins.native.client.admin, {"serverStatus": 1})
    sections = list(status)
    assert sections[sections.index("bucketCatalog") + 1] == list(native)[list(native).index("bucketCatalog") + 1]
    names = list(native["bucketCatalog"])
    # A server whose own catalog was in use before adds what it alone counts.
    ours = [name for name in section if name not in OF_THE_SERVER_ALONE]
    assert [name for name in ours if name in names] == [name for name in names if name not in OF_THE_SERVER_ALONE]
    both = run(twins.virtual.client.admin, {"serverStatus": 1})["bucketCatalog"]
    assert [name for name in both if name in names] == names
    assert "bucketCatalog" not in run(twins.virtual.client.admin, {"serverStatus": 1, "bucketCatalog": 0})


def test_top_counts_what_is_executed_on_buckets(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"insert": "x", "documents": [{"t": DatetimeMS(NOON), "m": 1}]})
    for database in (twins.native, twins.virtual):
        run(database, {"find": "x"})
    totals = run(twins.native.client.admin, {"top": 1})["totals"]
    counted = {
        side: [
            {name: totals[f"{database.name}.{each}"][name]["count"] > 0 for name in ("insert", "queries")}
            for each in ("x", "system.buckets.x")
        ]
        for side, database in (("native", twins.native), ("virtual", twins.stored))
    }
    nothing, both = {"insert": False, "queries": False}, {"insert": True, "queries": True}
    assert counted == {"native": [both, {"insert": False, "queries": True}], "virtual": [nothing, both]}
