"""Index commands on native collections and through the proxy (I1-I11)."""

from __future__ import annotations

from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from tests.support.twins import Twins, masked

NOON = 1_700_000_000_000
CREATE: dict[str, Any] = {"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}}

INDEXES: list[dict[str, Any]] = [
    # I1
    *(
        {"key": key}
        for key in (
            {"t": 1}, {"t": -1}, {"t": 2.5}, {"m": 1}, {"m": "hashed"}, {"m": "2d"}, {"m.p": "2dsphere"}, {"m.$**": 1},
            {"m.p.$**": 1}, {"v": 1}, {"v": -3}, {"_id": 1}, {"v.w": 1}, {"v": "2dsphere"}, {"mm": 1}, {"meta": 1},
            {"control.min.t": 1}, {"data.v": 1}, {"m": 1, "t": -1, "v": 1},
        )
    ),
    # I2
    *(
        {"key": key}
        for key in (
            {"t": "hashed"}, {"v": "hashed"}, {"v": "2d"}, {"v": True}, {}, {"v": 0}, {"$**": 1}, {"v.$**": 1},
            {"m": "text"}, {"v": "text"}, {"t": "2dsphere"},
        )
    ),
    *(
        {"key": {"v": 1}, **options}
        for options in (
            {"unique": True}, {"unique": False}, {"expireAfterSeconds": 5}, {"sparse": True}, {"sparse": False},
            {"hidden": True}, {"collation": {"locale": "en"}}, {"background": True}, {"v": 2}, {"v": 1},
            {"prepareUnique": True}, {"storageEngine": {"wiredTiger": {}}}, {"foo": 1}, {"name": ""}, {"name": "*"},
            {"name": "_id_"}, {"dropDups": True}, {"ns": "a.b"},
        )
    ),
    {"key": {"m": 1}, "sparse": True},
    {"key": {"t": 1}, "expireAfterSeconds": 5},
    {"key": {"m.p": "2d"}, "min": -5, "max": 5, "bits": 10},
    # I3
    *(
        {"key": {"v": 1}, "partialFilterExpression": predicate}
        for predicate in (
            {"m.a": 1}, {"v": {"$gt": 5}}, {"t": {"$gte": DatetimeMS(NOON)}}, {"v": {"$in": [1, 2]}},
            {"v": {"$exists": True}}, {"$and": [{"v": {"$lt": 5}}, {"m": 1}]}, {"$or": [{"v": 1}, {"w": 2}]},
            {"v": {"$ne": 1}}, {"v": {"$exists": False}}, {"v": {"$type": "int"}}, {"v": None}, {"v": [1]},
            {"m.a": {"$ne": 1}}, {"$expr": {"$gt": ["$v", 1]}},
        )
    ),
    {"key": {"v": 1}, "partialFilterExpression": {"v": 1}, "collation": {"locale": "en"}},
    {"key": {"m": 1}, "partialFilterExpression": {"m": 1}, "sparse": True},
]  # fmt: skip


def test_i1_to_i6_create_and_list(twins: Twins) -> None:
    """Replies and refusals, the stored bucket index, and the listing in the user's terms (I4, I6, I7)."""
    twins.same(CREATE)
    for spec in INDEXES:
        twins.same({"createIndexes": "x", "indexes": [{"name": "i", **spec}]})
        shown = twins.same({"listIndexes": "x"})["cursor"]["firstBatch"]
        twins.same({"listIndexes": "system.buckets.x"})
        twins.same({"aggregate": "x", "pipeline": STATISTICS, "cursor": {}})
        if shown:
            twins.same({"dropIndexes": "x", "index": "*"})


BY_NAME = {"$sort": {"name": 1}}
"""The server lists them in any order."""
STATISTICS: list[dict[str, Any]] = [{"$indexStats": {}}, {"$project": {"name": 1, "key": 1, "spec": 1}}, BY_NAME]


def test_i5_the_counts_and_the_conflicts(twins: Twins) -> None:
    twins.same(CREATE)
    a = {"key": {"m": 1}, "name": "a"}
    for indexes in (
        [a],
        [a],
        [{"key": {"m": 1}, "name": "b"}],
        [{"key": {"v": 1}, "name": "a"}],
        [{"key": {"m": 1}, "name": "a", "hidden": True}],
        [{"key": {"v": 1}, "name": "v"}, {"key": {"v": 0}, "name": "bad"}],
        [{"key": {"v": 1}, "name": "v"}, {"key": {"w": 1}, "name": "w"}],
        [],
    ):
        twins.same({"createIndexes": "x", "indexes": indexes})
    twins.same({"createIndexes": "x"})
    twins.same({"listIndexes": "missing"})


def test_i7_indexes_made_on_the_buckets(twins: Twins) -> None:
    """Those that mean nothing to a user are hidden, but counted."""
    twins.same(CREATE)
    keys: list[dict[str, Any]] = [
        {"control.min.t": 1}, {"control.max.t": -1, "control.min.t": -1}, {"control.max.t": 1}, {"control.min.v": 1},
        {"control.min.v": -1, "control.max.v": -1}, {"meta": 1, "control.min.t": 1}, {"control.min.t": 1, "meta": -1},
    ]  # fmt: skip
    for number, key in enumerate(keys):
        twins.same({"createIndexes": "system.buckets.x", "indexes": [{"key": key, "name": f"i{number}"}]})
    twins.same({"listIndexes": "x"})
    twins.same({"listIndexes": "system.buckets.x"})
    assert twins.same({"drop": "x"})["nIndexesWas"] == len(keys)


DROPPED: tuple[Any, ...] = (
    "m", "hidden", ["m", "v"], ["m", "none"], "*", "none", "_id_", {"m": 1}, {"v": 1}, {"w": 1}, {}, {"v": "hashed"}, 5,
)  # fmt: skip


def test_i8_drop_indexes(twins: Twins) -> None:
    twins.same(CREATE)
    indexes = [{"key": {"m": 1}, "name": "m"}, {"key": {"v": 1}, "name": "v"}, {"key": {"t": -1}, "name": "t"}]
    for index in DROPPED:
        twins.both({"createIndexes": "x", "indexes": indexes})
        hidden = {"key": {"control.min.w": 1}, "name": "hidden"}
        twins.both({"createIndexes": "system.buckets.x", "indexes": [hidden]})
        twins.same({"dropIndexes": "x", "index": index})
        twins.same({"listIndexes": "x"})


HINTS: tuple[Any, ...] = (
    "m", "none", "_id_", {"m": 1}, {"m": 1, "t": 1}, {"$natural": 1}, {"$natural": -1}, {"meta": 1}, {"_id": 1},
)  # fmt: skip


def test_i11_hints(twins: Twins) -> None:
    """Names and the user's keys are accepted, in every command that takes a hint; others are error 2."""
    twins.same(CREATE)
    indexes = [{"key": {"m": 1}, "name": "m"}, {"key": {"m": 1, "t": 1}, "name": "mt"}]
    twins.same({"createIndexes": "x", "indexes": indexes})
    for hint in HINTS:
        rows = [{"_id": n, "t": DatetimeMS(NOON + n), "m": n % 2} for n in range(4)]
        twins.same({"insert": "x", "documents": rows})
        for command in (
            {"find": "x", "filter": {"m": 1}, "hint": hint},
            {"count": "x", "query": {"m": 1}, "hint": hint},
            {"aggregate": "x", "pipeline": [{"$match": {"m": 1}}], "hint": hint, "cursor": {}},
            {"update": "x", "updates": [{"q": {"m": 1}, "u": {"$set": {"m": 5}}, "multi": True, "hint": hint}]},
            {"delete": "x", "deletes": [{"q": {"m": 5}, "limit": 0, "hint": hint}]},
        ):
            native, virtual = twins.both(command)
            assert brief(virtual) == brief(native), command
        twins.same({"delete": "x", "deletes": [{"q": {}, "limit": 0}]})


def brief(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply without the texts of query plans and without the order of fields in rows (Q2)."""
    if "cursor" in reply:
        rows = sorted(reply["cursor"]["firstBatch"], key=lambda row: int(row["_id"]))
        return {"ok": reply["ok"], "rows": rows}
    errors = [(error["index"], error["code"]) for error in reply.get("writeErrors", ())]
    return {name: reply.get(name) for name in ("ok", "n", "nModified", "code")} | {"errors": errors}


def test_x1_create_indexes_in_a_transaction_and_commit_quorum(set_twins: Twins) -> None:
    """On a replica set the reply names the quorum (I5)."""
    set_twins.same(CREATE)
    reply = set_twins.same({"createIndexes": "x", "indexes": [{"key": {"m": 1}, "name": "m"}]})
    assert reply["commitQuorum"] == "votingMembers"
    replies = []
    for database in (set_twins.native, set_twins.virtual):
        with database.client.start_session() as session:
            session.start_transaction()
            command = {"createIndexes": "x", "indexes": [{"key": {"v": 1}, "name": "v"}]}
            replies.append(masked(database.command(command, check=False, session=session), database.name))
            session.abort_transaction()
    assert replies[1] == replies[0]
    assert replies[0]["code"] == 263


def test_an_index_whose_name_is_no_text_disturbs_nobody(twins: Twins) -> None:
    """Servers take any bytes for a name; the proxy looks indexes up before it answers for a collection."""
    index = encode({"key": {"m.a": 1}, "name": "zzz"}).replace(b"zzz", b"\xeda_")
    twins.both(CREATE)
    twins.both({"insert": "x", "documents": [{"_id": 1, "t": DatetimeMS(NOON), "m": {"a": 1}}]})
    twins.both({"createIndexes": "x", "indexes": [RawBSONDocument(index)]})
    for database in (twins.native, twins.virtual):
        # Known no longer, so that it is looked up again.
        database.command({"create": "other", "timeseries": {"timeField": "t"}})
        assert [row["_id"] for row in database.command({"find": "x"})["cursor"]["firstBatch"]] == [1]
