"""What the proxy offers on every version of the server, also where the server itself does not (V1, U8, W72).

The judge is a plain collection that holds the same documents, since native before 6.0 refuses much of this.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from proxy.hello.documents import MAX_WIRE_VERSION
from tests.support.twins import Twins, run

NOON_MS = 1_700_000_000_000
TM = {"timeField": "t", "metaField": "m"}
MIXED: tuple[Any, ...] = (1, "a", None, 2.5, {"p": 1}, [1, {"p": 2}], True, {"p": "b"})
REFRESH_SECONDS = 30.0
TRANSIENT = (26, 48, 72, 166)
"""What servers answer while a collection is halfway dropped or made; 72 before 6.0."""


def measurements(count: int) -> list[dict[str, Any]]:
    """Three series whose column ``v`` holds values of many types."""
    return [
        {"_id": n, "t": DatetimeMS(NOON_MS + n * 60_000), "m": {"a": n % 3}, "v": MIXED[n % len(MIXED)], "n": n}
        for n in range(count)
    ]


def fill(twins: Twins, count: int = 48, *, natively: bool = False) -> None:
    """A collection behind the proxy and a plain one, with the same documents."""
    twins.virtual.command({"create": "x", "timeseries": TM})
    writer = twins.stored if natively else twins.virtual
    for database, name in ((writer, "x"), (twins.stored, "plain")):
        assert run(database, {"insert": name, "documents": measurements(count)})["n"] == count


def rows(database: Any, name: str, query: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """What a ``find`` answers, by ``_id``; rows as sets of fields (Q2)."""
    reply = run(database, {"find": name, "filter": query, "sort": {"_id": 1}, "batchSize": 1000, **options})
    assert reply["ok"] == 1, reply
    found: list[dict[str, Any]] = reply["cursor"]["firstBatch"]
    return found


QUERIES: list[dict[str, Any]] = [
    {},
    {"v": {"$gt": 1}},
    {"v": "a"},
    {"v.p": {"$gte": 1}},
    {"v.p": "b"},
    {"v.p": {"$exists": True}},
    {"$expr": {"$gte": ["$v.p", 1]}},
    {"v": None},
    {"v": {"$in": [True, 2.5]}},
    {"m.a": 1, "t": {"$gte": DatetimeMS(NOON_MS + 600_000)}},
    {"t": {"$lt": DatetimeMS(NOON_MS + 600_000)}, "v": {"$type": "string"}},
]


@pytest.mark.parametrize("natively", [False, True], ids=["buckets_of_the_proxy", "buckets_of_the_server"])
def test_q16_buckets_of_mixed_types_lose_no_row(twins: Twins, natively: bool) -> None:
    """5.0 mixes types in a bucket; whoever wrote it, reads through the proxy are those of a plain collection."""
    fill(twins, natively=natively)
    for query in QUERIES:
        expected = rows(twins.stored, "plain", query)
        assert rows(twins.virtual, "x", query) == expected, query
        assert run(twins.virtual, {"count": "x", "query": query})["n"] == len(expected)
    pipeline = [{"$group": {"_id": "$m.a", "high": {"$max": "$n"}, "low": {"$min": "$n"}}}, {"$sort": {"_id": 1}}]
    command = {"pipeline": pipeline, "cursor": {}}
    ours, judge = (run(twins.virtual, {"aggregate": name, **command}) for name in ("x", "plain"))
    assert ours["cursor"]["firstBatch"] == judge["cursor"]["firstBatch"]


AMONG_OTHERS: list[list[Any]] = [
    [5, [-3, 9], 7],
    [5, [-3, 9], True],
    ["a", ["B", "z"], "b"],
    [[True, 3], False],
    [{"p": 5}, {"p": [-3, 9]}, {"p": 7}],
    [1, [{"p": -3}], {"p": 7}, True],
    [[], None, 3],
]
SOUGHT: list[Any] = [-3, 9, 0, 7, True, False, "B", "z", "c"]


@pytest.mark.parametrize("natively", [False, True], ids=["buckets_of_the_proxy", "buckets_of_the_server"])
def test_q16_arrays_among_other_values_are_found_by_their_elements(twins: Twins, natively: bool) -> None:
    """Buckets of 5.0 have no summary of elements of an array that is neither the least nor the greatest value."""
    twins.virtual.command({"create": "x", "timeseries": TM})
    documents = [
        {"_id": 10 * series + n, "t": DatetimeMS(NOON_MS + n), "m": series, "v": value}
        for series, values in enumerate(AMONG_OTHERS)
        for n, value in enumerate(values)
    ]
    for database, name in ((twins.stored if natively else twins.virtual, "x"), (twins.stored, "plain")):
        assert run(database, {"insert": name, "documents": documents})["n"] == len(documents)
    for path in ("v", "v.p"):
        for value in SOUGHT:
            for operator in ("$lt", "$lte", "$eq", "$gte", "$gt"):
                query = {path: {operator: value}}
                assert rows(twins.virtual, "x", query) == rows(twins.stored, "plain", query), query
            query = {path: {"$in": [value, 1000]}}
            assert rows(twins.virtual, "x", query) == rows(twins.stored, "plain", query), query
    for query in ({"v": {"$lt": 0}}, {"v.p": {"$lt": 0}}):
        counts = [
            run(twins.virtual, {"delete": name, "deletes": [{"q": query, "limit": 0}]})["n"] for name in ("x", "plain")
        ]
        assert counts[0] == counts[1] > 0
    assert rows(twins.virtual, "x", {}) == rows(twins.stored, "plain", {})


@pytest.mark.parametrize("natively", [False, True], ids=["buckets_of_the_proxy", "buckets_of_the_server"])
def test_u3_u8_updates_of_meta_and_deletes_work_everywhere(twins: Twins, natively: bool) -> None:
    """Native 5.0.4 refuses both (V1); counts are of measurements."""
    fill(twins, natively=natively)
    update = {"q": {"m.a": 1}, "u": {"$set": {"m.site": "north"}}, "multi": True}
    for name in ("x", "plain"):
        reply = run(twins.virtual, {"update": name, "updates": [update]})
        assert (reply["n"], reply["nModified"]) == (16, 16)
    for query, limit in (({"v": {"$type": "string"}}, 0), ({"m.a": 2, "n": {"$lt": 20}}, 0), ({"n": 45}, 1)):
        counts: list[Any] = [
            run(twins.virtual, {"delete": name, "deletes": [{"q": query, "limit": limit}]}) for name in ("x", "plain")
        ]
        assert counts[0].get("n") == counts[1].get("n") != 0, counts
    removed = run(twins.virtual, {"findAndModify": "x", "query": {"n": 46}, "remove": True})
    assert removed["value"]["_id"] == 46
    run(twins.stored, {"delete": "plain", "deletes": [{"q": {"n": 46}, "limit": 1}]})
    assert rows(twins.virtual, "x", {}) == rows(twins.stored, "plain", {})
    # A server's own reading of the stored buckets says the same.
    assert rows(twins.stored, "x", {}) == rows(twins.stored, "plain", {})


def test_h3_collation_of_the_command(twins: Twins) -> None:
    """Native 5.0 refuses it (167)."""
    fill(twins)
    command = {"collation": {"locale": "en", "strength": 2}}
    assert rows(twins.virtual, "x", {"v": "A"}, **command) == rows(twins.stored, "plain", {"v": "A"}, **command) != []


def test_i11_hints_by_the_users_key(twins: Twins) -> None:
    """Native 5.0 knows them by name only."""
    fill(twins)
    index = {"key": {"m.a": 1, "t": -1}, "name": "i"}
    assert run(twins.virtual, {"createIndexes": "x", "indexes": [index]})["ok"] == 1
    for hint in ("i", {"m.a": 1, "t": -1}, {"$natural": -1}):
        assert len(rows(twins.virtual, "x", {"m.a": 1}, hint=hint)) == 16


@pytest.mark.parametrize("again", ["no", "same", "other time field"])
def test_w72_dropped_and_made_again_behind_the_proxys_back(twins: Twins, again: str) -> None:
    """No row goes where nobody finds it, and nothing is left that is in the way of the next ``create`` (V1)."""
    fill(twins, 3)
    twins.stored.command({"drop": "x"})
    if again != "no":
        options = TM if again == "same" else {"timeField": "u", "metaField": "m"}
        twins.stored.command({"create": "x", "timeseries": options})
    reply = run(twins.virtual, {"insert": "x", "documents": [{"_id": 7, "t": DatetimeMS(NOON_MS), "m": {"a": 9}}]})
    names = {entry["name"] for entry in run(twins.stored, {"listCollections": 1})["cursor"]["firstBatch"]}
    match again:
        case "no":
            assert (reply["ok"], reply.get("code")) == (0, 26) or reply["writeErrors"][0]["code"] == 26, reply
            assert "system.buckets.x" not in names
            twins.stored.command({"create": "x", "timeseries": TM})
        case "same":
            assert reply["n"] == 1
            assert [row["_id"] for row in rows(twins.stored, "x", {})] == [7]
        case _:
            assert reply.get("n", 0) == 0 or reply["writeErrors"], reply
            assert rows(twins.stored, "x", {}) == []


def test_w72_writers_go_on_while_the_collection_is_made_again(twins: Twins) -> None:
    """Every insert is stored in an incarnation of the collection or refused; buckets never turn into a plain one."""
    fill(twins, 1)
    ended = threading.Event()
    unexpected: list[Any] = []

    def write(series: int) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            document = {"t": DatetimeMS(NOON_MS + number), "m": {"s": series, "k": number}}
            reply = run(twins.virtual, {"insert": "x", "documents": [document], "ordered": False})
            code = reply.get("code") or next((error["code"] for error in reply.get("writeErrors", ())), None)
            if code not in (None, *TRANSIENT):
                unexpected.append(reply)

    writers = [threading.Thread(target=write, args=(series,)) for series in range(4)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(8):
            threading.Event().wait(0.15)
            twins.stored.command({"drop": "x"})
            _create(twins)
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    assert not unexpected, unexpected[:3]
    listed = run(twins.stored, {"listCollections": 1, "filter": {"name": "system.buckets.x"}})
    assert "timeseries" in listed["cursor"]["firstBatch"][0]["options"]


def _create(twins: Twins) -> None:
    """Make the collection natively, after what a writer may have to take back (48)."""
    deadline = time.monotonic() + REFRESH_SECONDS
    while (reply := run(twins.stored, {"create": "x", "timeseries": TM}))["ok"] != 1:
        assert reply["code"] == 48, reply
        # A client's insert may have made a plain collection while there was none; native ones do the same.
        if "A timeseries collection already exists" not in reply["errmsg"]:
            run(twins.stored, {"drop": "x"})
        assert time.monotonic() < deadline, reply
        threading.Event().wait(0.02)


def test_the_wire_version_shown_is_the_documented_one(twins: Twins, mongod_version: tuple[int, ...]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
    version = re.escape(".".join(map(str, mongod_version)))
    row = re.search(rf"^\| MongoDB {version}[, ].*? \| .*? \| (\d+) \| ", text, re.MULTILINE)
    assert row is not None, "docs/compatibility.md has no row for this server"
    assert twins.virtual.client.admin.command("hello")["maxWireVersion"] == int(row[1])
    assert re.search(rf"at most {MAX_WIRE_VERSION}, that of MongoDB 7\.0", text) is not None
