"""Valid messages to begin from: every opcode, section form and way through the proxy."""

from __future__ import annotations

import datetime as dt
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import bson
import crc32c
from bson import ObjectId
from bson.int64 import Int64

DATABASE = "fuzz"
NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
HEADER = struct.Struct("<iiii")
OP_QUERY, OP_COMPRESSED, OP_MSG = 2004, 2012, 2013
MORE_TO_COME, CHECKSUM = 2, 1


def message(opcode: int, body: bytes) -> bytes:
    """With request id 0, which the sender replaces."""
    return HEADER.pack(16 + len(body), 0, 0, opcode) + body


def msg(
    command: Mapping[str, Any], *, flags: int = 0, documents: tuple[str, list[dict[str, Any]]] | None = None
) -> bytes:
    """An OP_MSG, with a document sequence and a checksum if asked."""
    body = struct.pack("<I", flags) + b"\0" + bson.encode({**command, "$db": command.get("$db", DATABASE)})
    if documents is not None:
        name, rows = documents
        payload = name.encode() + b"\0" + b"".join(map(bson.encode, rows))
        body += b"\1" + struct.pack("<i", len(payload) + 4) + payload
    if flags & CHECKSUM:
        whole = HEADER.pack(20 + len(body), 0, 0, OP_MSG) + body
        return whole + struct.pack("<I", crc32c.crc32c(whole))
    return message(OP_MSG, body)


def compressed(inner: bytes) -> bytes:
    """The same in OP_COMPRESSED with zlib."""
    opcode = HEADER.unpack_from(inner)[3]
    return message(OP_COMPRESSED, struct.pack("<iiB", opcode, len(inner) - 16, 2) + zlib.compress(inner[16:]))


def row(value: int) -> dict[str, Any]:
    """One measurement."""
    return {"_id": ObjectId(), "t": NOW, "m": {"a": value % 3}, "v": value, "s": "x" * (value % 40), "d": [1, {"e": 2}]}


def seeds() -> list[bytes]:
    """What a client of a time-series collection and its neighbours may send."""
    rows = [row(value) for value in range(4)]
    session = {"lsid": {"id": bson.Binary(b"\1" * 16, 4)}}
    plain = [
        msg({"hello": 1, "$db": "admin"}),
        msg({"hello": 1, "compression": ["zlib"], "client": {"driver": {"name": "f", "version": "1"}}, "$db": "admin"}),
        msg({"ping": 1}),
        msg({"insert": "ts", "documents": rows}),
        msg({"insert": "ts"}, documents=("documents", rows)),
        msg({"insert": "ts", "ordered": False, **session, "txnNumber": Int64(1)}, documents=("documents", rows)),
        msg({"insert": "ts", "writeConcern": {"w": 0}}, documents=("documents", rows[:1]), flags=MORE_TO_COME),
        msg({"insert": "plain"}, documents=("documents", [{"x": 1}])),
        msg({"find": "ts", "filter": {"m.a": 1, "v": {"$gt": 0}}, "sort": {"t": 1}, "batchSize": 2, **session}),
        msg({"find": "plain", "filter": {"x": {"$in": [1, 2, "a"]}}}),
        msg({"aggregate": "ts", "pipeline": [{"$group": {"_id": "$m.a", "n": {"$sum": "$v"}}}], "cursor": {}}),
        msg({"count": "ts", "query": {"v": 1}}),
        msg({"distinct": "ts", "key": "m.a"}),
        msg({"update": "ts"}, documents=("updates", [{"q": {"m.a": 9}, "u": {"$set": {"m.b": 1}}, "multi": True}])),
        msg({"delete": "ts"}, documents=("deletes", [{"q": {"v": -1}, "limit": 0}])),
        msg({"findAndModify": "ts", "query": {"v": -1}, "remove": True}),
        msg({"getMore": Int64(123456789), "collection": "ts"}),
        msg({"killCursors": "ts", "cursors": [Int64(123456789)]}),
        msg({"createIndexes": "ts", "indexes": [{"key": {"m.a": 1}, "name": "m_a"}]}),
        msg({"listIndexes": "ts"}),
        msg({"listCollections": 1, "filter": {"type": "timeseries"}}),
        msg({"collStats": "ts"}),
        msg({"collMod": "ts", "expireAfterSeconds": 1_000_000}),
        msg({"explain": {"find": "ts"}, "verbosity": "queryPlanner"}),
        msg({"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=u,r=abc", "$db": "admin"}),
        msg({"find": "ts", "$readPreference": {"mode": "secondaryPreferred"}}, flags=CHECKSUM),
    ]
    query = struct.pack("<i", 0) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + bson.encode({"isMaster": 1})
    return [*plain, message(OP_QUERY, query), *(compressed(each) for each in (plain[2], plain[4], plain[8]))]
