"""``update`` on native collections and through the proxy (U1-U4, U6, X1, X2)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64
from bson.datetime_ms import DatetimeMS

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.twins import Commands, Twins, masked

NOON = 1_700_000_000_000
TM = {"timeField": "t", "metaField": "m"}


def fill(twins: Twins, name: str = "x", count: int = 12, **options: Any) -> None:
    """A collection with three series."""
    twins.same({"create": name, "timeseries": options or TM})
    rows = [{"_id": n, "t": DatetimeMS(NOON + n * 1000), "m": {"a": n % 3, "l": [1, 2]}, "v": n} for n in range(count)]
    twins.same({"insert": name, "documents": rows})


def contents(twins: Twins) -> list[dict[str, Any]]:
    """The measurements behind the proxy, which must be those of the native twin."""
    native, virtual = twins.both(
        {"aggregate": "x", "pipeline": [{"$sort": {"_id": 1}}], "cursor": {"batchSize": 10_000}}
    )
    assert virtual["cursor"]["firstBatch"] == native["cursor"]["firstBatch"]
    rows: list[dict[str, Any]] = virtual["cursor"]["firstBatch"]
    return rows


SET = {"$set": {"m.b": 1}}

STATEMENTS: list[dict[str, Any]] = [
    # U1, in its order
    {"q": {}, "u": SET},
    {"q": {}, "u": SET, "multi": True, "upsert": True},
    {"q": {"v": 1}, "u": SET, "multi": True},
    {"q": {"$expr": {"$eq": ["$m.a", 1]}}, "u": SET, "multi": True},
    {"q": {"$where": "true"}, "u": SET, "multi": True},
    {"q": {"m.a": 1, "t": DatetimeMS(NOON)}, "u": SET, "multi": True},
    {"q": {}, "u": [{"$set": {"m.b": 1}}], "multi": True},
    {"q": {}, "u": {}, "multi": True},
    {"q": {}, "u": {"m": 1}, "multi": True},
    {"q": {}, "u": {"$set": {"v": 1}}, "multi": True},
    {"q": {}, "u": {"$set": {"mm": 1}}, "multi": True},
    {"q": {}, "u": {"$rename": {"m.a": "v"}}, "multi": True},
    {"q": {}, "u": {"$bad": {"m": 1}}, "multi": True},
    {"q": {"m.a": {"$bad": 1}}, "u": SET, "multi": True},
    {"q": {}, "u": {"$inc": {"m.l": 1}}, "multi": True},
    {"q": {}, "u": {"$set": {"m.a": 1, "m.a.b": 2}}, "multi": True},
    {"q": {}, "u": SET, "multi": True, "sort": {"m": 1}},
    {"q": {}, "u": SET, "multi": True, "c": {"d": 1}},
    {"q": 5, "u": SET, "multi": True},
    {"u": SET, "multi": True},
    # U2
    {"q": {"$and": [{"m.a": 1}, {"$or": [{"m.a": 1}, {"m.l": 1}]}]}, "u": SET, "multi": True},
    {"q": {"$nor": [{"m.a": 1}]}, "u": {"$set": {"m.c": 1}}, "multi": True},
    {"q": {"$jsonSchema": {"required": ["m"]}}, "u": {"$set": {"m.d": 1}}, "multi": True},
    {"q": {"$jsonSchema": {"required": ["v"]}}, "u": {"$set": {"m.e": 1}}, "multi": True},
    {"q": {"m": {"$elemMatch": {"a": 1}}}, "u": SET, "multi": True},
    {"q": {"m": {"$eq": {"a": 1, "l": [1, 2]}}}, "u": SET, "multi": True},
    {"q": {"m.a": {"$in": [1, 2]}}, "u": {"$set": {"m.f": 1}}, "multi": True},
    # U3, U4
    {"q": {"m.a": 1}, "u": SET, "multi": True},
    {"q": {"m.a": 1}, "u": {"$inc": {"m.a": 5}}, "multi": True},
    {"q": {"m.l": 1}, "u": {"$set": {"m.l.$": 9}}, "multi": True},
    {"q": {}, "u": {"$set": {"m.l.$[]": 8}}, "multi": True},
    {"q": {}, "u": {"$set": {"m.l.$[e]": 7}}, "arrayFilters": [{"e": 8}], "multi": True},
    {"q": {}, "u": {"$rename": {"m.a": "m.z"}}, "multi": True},
    {"q": {}, "u": {"$setOnInsert": {"m.y": 1}}, "multi": True},
    {"q": {"m.z": 0}, "u": {"$unset": {"m": ""}}, "multi": True},
    {"q": {"m": None}, "u": {"$set": {"m": {"z": 1, "a": 5}}}, "multi": True},
    {"q": {"m.z": "$$n"}, "u": SET, "multi": True},
    {"q": {"m.s": "A"}, "u": SET, "multi": True, "collation": {"locale": "en", "strength": 2}},
    {"q": {"m.a": "nothing"}, "u": SET, "multi": True},
]


def test_u1_to_u4_statements(twins: Twins) -> None:
    """Every reply, and what is stored after each."""
    fill(twins)
    for statement in STATEMENTS:
        reply = twins.same({"update": "x", "updates": [statement], "let": {"n": 1}})
        if reply.get("nModified"):
            contents(twins)
    assert len(contents(twins)) == 12


def test_u1_without_a_meta_field_nothing_can_be_updated(twins: Twins) -> None:
    fill(twins, timeField="t")
    twins.same({"update": "x", "updates": [{"q": {}, "u": {"$set": {"v": 1}}, "multi": True}]})


def test_ordered_and_unordered_commands(twins: Twins) -> None:
    fill(twins)
    good: dict[str, Any] = {"q": {"m.a": 1}, "u": {"$inc": {"m.n": 1}}, "multi": True}
    bad: dict[str, Any] = {"q": {"v": 1}, "u": SET, "multi": True}
    for ordered in (True, False):
        twins.same({"update": "x", "updates": [good, bad, good], "ordered": ordered})
    contents(twins)
    for command in (
        {"updates": []},
        {"updates": [good], "foo": 1},
        {"updates": [good], "writeConcern": {"w": 2}},
        {"updates": [good], "collectionUUID": 5},
        {},
    ):
        twins.same({"update": "x", **command})


def test_u2_objects_inside_operands_are_operands(twins: Twins) -> None:
    """Native 6.0.5 takes them for queries of their own: refuses the first, misreads the second."""
    fill(twins)
    twins.both({"update": "x", "updates": [{"q": {}, "u": {"$unset": {"m.l": ""}}, "multi": True}]})
    command = {"update": "x", "updates": [{"q": {"m": {"$in": [{"a": 1}]}}, "u": SET, "multi": True}]}
    native, virtual = twins.both(command)
    assert native["writeErrors"][0]["code"] == 72
    assert (virtual["n"], virtual["nModified"]) == (4, 4)
    rows = twins.virtual.command({"find": "x", "filter": {"m.b": 1}})["cursor"]["firstBatch"]
    assert sorted(row["_id"] for row in rows) == [1, 4, 7, 10]
    again = {"q": {"m": {"$in": [{"a": 1, "b": 1}, {"m": 1}]}}, "u": SET, "multi": True}
    assert twins.virtual.command({"update": "x", "updates": [again]}) == {"n": 4, "nModified": 0, "ok": 1.0}


def test_u4_compressed_buckets_count_their_measurements(twins: Twins) -> None:
    """6.0.5 compresses a bucket when it is full; what the proxy stored uncompressed counts the same."""
    twins.same({"create": "x", "timeseries": TM})
    rows = [{"_id": n, "t": DatetimeMS(NOON + n), "m": 1, "v": n} for n in range(2500)]
    twins.same({"insert": "x", "documents": rows})
    twins.same({"update": "x", "updates": [{"q": {"m": 1}, "u": {"$set": {"m": 2}}, "multi": True}]})
    assert len(contents(twins)) == 2500


def test_u6_updated_buckets_take_only_what_belongs_to_them(twins: Twins) -> None:
    """Measurements of the old meta value go elsewhere, untouched buckets go on, closed ones take no more (W72)."""
    fill(twins)
    twins.same({"update": "x", "updates": [{"q": {"m.a": 1}, "u": {"$set": {"m.b": 1}}, "multi": True}]})
    rows = [{"_id": n, "t": DatetimeMS(NOON + n * 1000), "m": {"a": n % 3, "l": [1, 2]}} for n in (20, 21, 22)]
    twins.same({"insert": "x", "documents": rows})
    series = [{"$group": {"_id": "$meta", "buckets": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    reply = twins.same({"aggregate": "system.buckets.x", "pipeline": series, "cursor": {}})
    assert [entry["buckets"] for entry in reply["cursor"]["firstBatch"]] == [1, 1, 1, 1]
    direct = {"q": {"meta.a": 2}, "u": {"$set": {"control.closed": True}}, "multi": True}
    twins.same({"update": "system.buckets.x", "updates": [direct]})
    twins.same({"insert": "x", "documents": [{"_id": 30, "t": DatetimeMS(NOON), "m": {"a": 2, "l": [1, 2]}}]})
    assert twins.same({"count": "system.buckets.x", "query": {"meta.a": 2}})["n"] == 2
    contents(twins)


@pytest.mark.parametrize("multi", [True, False])
def test_x2_retryable_updates_are_refused(
    set_twins: Twins, replica_set: MongodProcess, proxy_rs: ProxyProcess, multi: bool
) -> None:
    fill(set_twins)
    command = {"update": "x", "updates": [{"q": {"m.a": 1}, "u": SET, "multi": multi}]}
    replies = []
    for server, name in ((replica_set, set_twins.native.name), (proxy_rs, set_twins.virtual.name)):
        # Sessions of shared clients have seen other numbers, and others would see this one.
        with server.client() as client, client.start_session() as session:
            retryable = {**command, "txnNumber": Int64(1)}
            replies.append(masked(Commands(client, name).command(retryable, check=False, session=session), name))
    assert replies[1] == replies[0]
    assert replies[0]["writeErrors"][0]["code"] == 72


def test_x1_no_updates_in_transactions(set_twins: Twins) -> None:
    """The error comes before any other check, and aborts the transaction."""
    fill(set_twins)
    for command in (
        {"update": "x", "updates": [{"q": {"v": 1}, "u": SET}]},
        {"delete": "x", "deletes": [{"q": {"v": 1}, "limit": 1}]},
        {"findAndModify": "x", "query": {"v": 1}, "remove": True},
    ):
        replies = []
        for database in (set_twins.native, set_twins.virtual):
            with database.client.start_session() as session:
                session.start_transaction()
                replies.append(masked(database.command(command, check=False, session=session), database.name))
                replies[-1]["next"] = database.command({"find": "x"}, check=False, session=session)["code"]
                session.abort_transaction()
        assert replies[1] == replies[0], command
    assert len(contents(set_twins)) == 12
