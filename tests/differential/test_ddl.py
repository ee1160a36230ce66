"""``create``, ``collMod``, ``drop`` and what lists collections, on native collections and through the proxy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bson import Int64
from bson.datetime_ms import DatetimeMS

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.twins import Twins, masked, run

T = {"timeField": "t"}
TM = {"timeField": "t", "metaField": "m"}
NOON = DatetimeMS(1_700_000_000_000)

CREATE_OPTIONS: list[dict[str, Any]] = [
    # C1
    {"timeseries": T},
    {"timeseries": {**T, "metaField": None, "granularity": None, "bucketMaxSpanSeconds": None}},
    {"timeseries": None},
    # C2
    {"timeseries": 5},
    {"timeseries": {}},
    {"timeseries": {"timeField": 5}},
    {"timeseries": {**T, "metaField": 5}},
    {"timeseries": {**T, "granularity": 5}},
    {"timeseries": {**T, "foo": 1}},
    {"timeseries": {**T, "bucketRoundingSeconds": 60}},
    {"timeseries": {"timeField": "a.b"}},
    {"timeseries": {**T, "metaField": "a.b"}},
    {"timeseries": {**T, "metaField": "_id"}},
    {"timeseries": {**T, "metaField": "t"}},
    {"timeseries": {**T, "granularity": "Seconds"}},
    {"timeseries": {**T, "bucketMaxSpanSeconds": 0}},
    {"timeseries": {**T, "bucketMaxSpanSeconds": "5"}},
    {"timeseries": {**T, "bucketMaxSpanSeconds": 3600}},
    {"timeseries": {**T, "bucketMaxSpanSeconds": 3601}},
    {"timeseries": {**T, "granularity": "hours", "bucketMaxSpanSeconds": 86400}},
    {"timeseries": {**TM, "granularity": "minutes"}},
    {"timeseries": {**TM, "granularity": "hours", "bucketMaxSpanSeconds": 2592000}},
    # C3
    *({"timeseries": {"timeField": name}} for name in ("", "$t", "_id", "control", "data", "meta")),
    *({"timeseries": {**T, "metaField": name}} for name in ("", "$m", "data", "control", "meta")),
    # C4
    {"timeseries": T, "expireAfterSeconds": 3600},
    {"timeseries": T, "expireAfterSeconds": 1.5},
    {"timeseries": T, "expireAfterSeconds": float("nan")},
    {"timeseries": T, "expireAfterSeconds": -1},
    {"timeseries": T, "expireAfterSeconds": Int64(2**40)},
    {"timeseries": T, "expireAfterSeconds": "off"},
    {"timeseries": T, "expireAfterSeconds": True},
    {"timeseries": T, "collation": {"locale": "en", "strength": 2}},
    {"timeseries": T, "collation": {"locale": "simple"}},
    {"timeseries": T, "collation": {"locale": "nope"}},
    {"timeseries": T, "storageEngine": {"wiredTiger": {"configString": "block_compressor=none"}}},
    {"timeseries": T, "storageEngine": {}},
    {"timeseries": T, "indexOptionDefaults": {"storageEngine": {"wiredTiger": {}}}},
    {"timeseries": T, "comment": "c", "maxTimeMS": 10_000, "writeConcern": {"w": 1}},
    {"timeseries": T, "capped": True, "size": 1000},
    {"timeseries": T, "capped": True},
    {"timeseries": T, "size": 1000},
    {"timeseries": T, "autoIndexId": True},
    {"timeseries": T, "idIndex": {"key": {"_id": 1}, "name": "_id_"}},
    {"timeseries": T, "validator": {}},
    {"timeseries": T, "validationLevel": "off"},
    {"timeseries": T, "validationAction": "warn"},
    {"timeseries": T, "viewOn": "y"},
    {"timeseries": T, "pipeline": []},
    {"timeseries": T, "clusteredIndex": {"key": {"_id": 1}, "unique": True}},
    {"timeseries": T, "changeStreamPreAndPostImages": {"enabled": True}},
    {"timeseries": T, "encryptedFields": {"fields": []}},
    {"timeseries": T, "temp": True},
    {"timeseries": T, "foo": 1},
]


def test_c1_to_c5_create_answers_and_stores_the_same(twins: Twins) -> None:
    """Reply, error and everything that ``listCollections`` shows afterwards."""
    for options in CREATE_OPTIONS:
        if twins.same({"create": "x", **options})["ok"]:
            native, virtual = twins.both({"listCollections": 1, "filter": {"name": {"$ne": "system.views"}}})
            assert listed(virtual) == listed(native), options
            twins.same({"drop": "x"})


def listed(reply: dict[str, Any]) -> list[Any]:
    """The collections of a reply in the order of their names (C20: the server's order is unspecified)."""
    return sorted(reply["cursor"]["firstBatch"], key=lambda entry: str(entry["name"]))


def test_c6_a_name_that_is_taken(twins: Twins) -> None:
    """By a time-series collection, a plain one, a view."""
    twins.same({"create": "x", "timeseries": T})
    twins.same({"create": "plain"})
    twins.same({"create": "view", "viewOn": "x", "pipeline": []})
    seconds: list[dict[str, Any]] = [{"timeseries": T}, {"timeseries": TM}, {}, {"viewOn": "y", "pipeline": []}]
    for options in seconds:
        for name in ("x", "plain", "view"):
            twins.same({"create": name, **options})


def test_c7_names(twins: Twins) -> None:
    for name in ("a.b", "a..b", "a.", ".a", "$a", "", "system.x", "a$b", "ä", "x" * 300, 5):
        if twins.same({"create": name, "timeseries": T})["ok"]:
            twins.same({"drop": name})


def test_c8_c9_bucket_namespaces_by_name(twins: Twins) -> None:
    twins.same({"create": "system.buckets.y", "timeseries": T})
    twins.same({"create": "system.buckets.z"})
    twins.same({"create": "v", "viewOn": "system.buckets.y", "pipeline": []})
    native, virtual = twins.both({"listCollections": 1})
    assert listed(virtual) == listed(native)


LISTINGS: list[dict[str, Any]] = [
    {},
    {"nameOnly": True},
    {"filter": {"type": "timeseries"}},
    {"filter": {"options.timeseries": {"$exists": True}}},
    {"filter": {"name": "x"}},
    {"filter": {"type": "timeseries"}, "nameOnly": True},
    {"filter": {"options.timeseries": {"$exists": True}}, "nameOnly": True},
    {"filter": {"info.readOnly": False}},
    {"cursor": {"batchSize": 1}},
    {"filter": {"$bad": 1}},
]


def test_c20_list_collections(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM, "expireAfterSeconds": 100, "collation": {"locale": "en"}})
    twins.same({"create": "plain"})
    for options in LISTINGS:
        native, virtual = twins.both({"listCollections": 1, **options})
        if "cursor" in native and "batchSize" not in str(options):
            assert listed(virtual) == listed(native), options
        else:
            assert virtual.keys() == native.keys(), options
            assert virtual.get("code") == native.get("code"), options


def test_c21_database_statistics_count_a_view_and_a_collection(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM})
    native, virtual = twins.both({"dbStats": 1})
    counted = ("collections", "views", "objects", "indexes")
    assert [virtual[name] for name in counted] == [native[name] for name in counted]


REFUSED: list[dict[str, Any]] = [
    {"planCacheClear": "x"},
    {"reIndex": "x"},
    {"convertToCapped": "x", "size": 1000},
    {"cloneCollectionAsCapped": "x", "toCollection": "y", "size": 1000},
    {"validate": "x"},
    {"compact": "x"},
    {"findAndModify": "x", "query": {}, "update": {"$set": {"m": 1}}},
    {"explain": {"delete": "x", "deletes": [{"q": {}, "limit": 0}]}},
    {"explain": {"update": "x", "updates": [{"q": {}, "u": {"$set": {"m": 1}}, "multi": True}]}},
    {"mapReduce": "x", "map": "function(){}", "reduce": "function(){}", "out": {"inline": 1}},
    {"aggregate": "plain", "pipeline": [{"$out": "x"}], "cursor": {}},
    {"aggregate": "plain", "pipeline": [{"$merge": "x"}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$planCacheStats": {}}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$changeStream": {}}], "cursor": {}},
]


def test_c23_commands_that_are_not_for_time_series_collections(twins: Twins) -> None:
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"insert": "plain", "documents": [{"_id": 1}]})
    for command in REFUSED:
        assert not twins.same(command)["ok"], command
    native, virtual = (run(each, {"dataSize": f"{each.name}.x"}) for each in (twins.native, twins.virtual))
    assert masked(virtual, twins.virtual.name) == masked(native, twins.native.name)


def test_c23_renames_are_refused(twins: Twins) -> None:
    """From a time-series collection, onto one, and of its buckets."""
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"create": "plain"})
    for source, to in [("x", "y"), ("plain", "x"), ("system.buckets.x", "y")]:
        for drop_target in (False, True):
            replies = []
            for database in (twins.native, twins.virtual):
                names = {"renameCollection": f"{database.name}.{source}", "to": f"{database.name}.{to}"}
                reply = run(database.client.admin, {**names, "dropTarget": drop_target})
                replies.append(masked(reply, database.name))
            assert replies[1] == replies[0]


def test_c24_drop_counts_the_indexes_of_buckets(twins: Twins) -> None:
    for name in ("x", "system.buckets.x"):
        twins.same({"create": "x", "timeseries": TM})
        twins.same({"createIndexes": "x", "indexes": [{"key": {"m": 1}, "name": "m"}, {"key": {"v": 1}, "name": "v"}]})
        twins.same({"insert": "x", "documents": [{"t": NOON, "m": 1, "v": 1}]})
        assert twins.same({"drop": "system.views"})["code"] == 125
        assert twins.same({"drop": name})["nIndexesWas"] == 2
        assert twins.same({"drop": name})["code"] == 26
        assert twins.same({"count": "x"})["n"] == 0


def test_c24_a_view_whose_buckets_are_gone_stands_in_nobodys_way(twins: Twins) -> None:
    """C5: whoever drops a view of the buckets makes the server drop these alone. All else works, and so does a drop."""
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"create": "whole", "timeseries": TM})
    twins.same({"create": "of_buckets", "viewOn": "system.buckets.x", "pipeline": []})
    twins.same({"drop": "of_buckets"})
    listed = twins.same({"listCollections": 1, "filter": {"name": "x"}})["cursor"]["firstBatch"]
    assert [(each["type"], each["options"]) for each in listed] == [("timeseries", {})]
    for reply in twins.both({"insert": "x", "documents": [{"_id": 1, "t": NOON}]}):
        assert (reply["n"], len(reply["writeErrors"])) == (0, 1)
    for name in ("whole", "ordinary"):
        twins.same({"insert": name, "documents": [{"_id": 1, "t": NOON, "m": 1}]})
        twins.same({"find": name})
        twins.same({"count": name})
    twins.same({"find": "x"})
    twins.same({"create": "another", "timeseries": T})
    twins.same({"drop": "x"})
    twins.same({"create": "x", "timeseries": T})
    twins.same({"insert": "x", "documents": [{"_id": 1, "t": NOON, "m": 1}]})
    twins.same({"find": "x"})


def test_c24_after_a_drop_the_name_is_free_for_anything(twins: Twins) -> None:
    """The proxy must not take the new collection for the old one."""
    for options in ({"timeseries": TM}, {"timeseries": {"timeField": "time"}}, {}, {"timeseries": T}):
        twins.same({"create": "x", **options})
        field = options.get("timeseries", {}).get("timeField", "t")
        assert twins.same({"insert": "x", "documents": [{"_id": 1, field: NOON, "m": 1}]})["n"] == 1
        assert twins.same({"count": "x"})["n"] == 1
        twins.same({"drop": "x"})
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"dropDatabase": 1})
    assert twins.same({"insert": "x", "documents": [{"_id": 1}]})["n"] == 1


COLL_MODS: list[list[dict[str, Any]]] = [
    # C40
    [{"timeseries": {"granularity": "minutes"}}, {"timeseries": {"granularity": "hours"}}, {"timeseries": {}}],
    [{"timeseries": {"granularity": "hours"}}, {"timeseries": {"granularity": "minutes"}}],
    [{"timeseries": {"granularity": "seconds"}}, {"timeseries": {"granularity": "days"}}],
    [{"timeseries": {"bucketMaxSpanSeconds": 5}}, {"timeseries": {"metaField": "x"}}, {"timeseries": 5}],
    # C41
    [{"expireAfterSeconds": 10}, {"expireAfterSeconds": "off"}, {"expireAfterSeconds": "on"}],
    [{"expireAfterSeconds": None}, {"expireAfterSeconds": True}, {"expireAfterSeconds": -1}],
    [{"expireAfterSeconds": 10, "timeseries": {"granularity": "minutes"}}],
    # C42
    [{"validator": {}}, {"validationLevel": "off"}, {"validationAction": "warn"}, {"recordPreImages": True}],
    [{"viewOn": "y"}, {"viewOn": "y", "pipeline": []}, {"foo": 1}, {}],
    [{"cappedSize": 1000}, {"cappedMax": 10}, {"changeStreamPreAndPostImages": {"enabled": True}}],
    # C43
    [{"index": {"name": "m", "hidden": True}}, {"index": {"keyPattern": {"m": 1}, "hidden": False}}],
    [{"index": {"keyPattern": {"v": 1}, "hidden": True}}, {"index": {"name": "v", "prepareUnique": True}}],
    [{"index": {"name": "m", "expireAfterSeconds": 5}}, {"index": {"name": "none", "hidden": True}}],
]


def test_c40_to_c43_coll_mod(twins: Twins) -> None:
    """Each reply, and what is listed afterwards."""
    for changes in COLL_MODS:
        twins.same({"create": "x", "timeseries": TM})
        twins.same({"createIndexes": "x", "indexes": [{"key": {"m": 1}, "name": "m"}, {"key": {"v": 1}, "name": "v"}]})
        twins.both({"create": "plain"})
        for name in ("x", "system.buckets.x", "plain", "missing"):
            for change in changes:
                twins.same({"collMod": name, **change})
        native, virtual = twins.both({"listCollections": 1})
        assert listed(virtual) == listed(native), changes
        twins.same({"listIndexes": "x"})
        twins.same({"drop": "x"})


def test_c40_the_new_span_counts_at_once(twins: Twins) -> None:
    """A measurement two hours later shares a bucket once the collection is one of minutes."""
    start = 1_700_000_000_000
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"collMod": "x", "timeseries": {"granularity": "minutes"}})
    rows = [{"_id": hour, "t": DatetimeMS(start + hour * 3_600_000), "m": 1} for hour in range(3)]
    assert twins.same({"insert": "x", "documents": rows})["n"] == 3
    assert twins.same({"count": "system.buckets.x"})["n"] == 1


def test_t1_expired_buckets_go(tmp_path: Path) -> None:
    """The server's own TTL works on buckets that the proxy wrote (T1), at its next pass."""
    server = MongodProcess(tmp_path / "mongod", arguments=("--setParameter", "ttlMonitorSleepSecs=1"))
    proxy = ProxyProcess(tmp_path / "proxy", server.start().uri)
    try:
        with proxy.start().client() as client:
            client.ttl.command({"create": "x", "timeseries": TM, "expireAfterSeconds": 1})
            now_ms = int(time.time() * 1000)
            rows = [{"_id": age_ms, "t": DatetimeMS(now_ms - age_ms), "m": 1} for age_ms in (36_000_000, 0)]
            client.ttl.command({"insert": "x", "documents": rows})
            proxy.wait_until(lambda: [row["_id"] for row in client.ttl.x.find()] == [0])
    finally:
        proxy.stop()
        server.remove()
