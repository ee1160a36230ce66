"""Commands that are recognised by their bytes: whatever else is in such a message, the answer is the server's."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import bson
import pytest
from bson import Int64

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import (
    RawClient,
    body,
    command,
    conversation,
    document_of,
    op_msg_bytes,
    sequence,
    with_checksum,
)

DATABASE = "plain_relay"
FIND = {"find": "c", "filter": {"a": {"$lt": 3}}, "projection": {"_id": 0}, "$db": DATABASE}
INSERT = {"insert": "inserted", "$db": DATABASE}
AGGREGATE = {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$project": {"_id": 0}}], "cursor": {}}
USUAL = command(FIND) + op_msg_bytes(body(INSERT), sequence("documents", {"_id": "usual"}))
USUAL += command({**AGGREGATE, "$db": DATABASE})
DOCUMENT = {"a": 1}


def broken(document: Mapping[str, Any], old: bytes, new: bytes) -> bytes:
    raw = bson.encode(document)
    assert old in raw
    return op_msg_bytes(body(raw.replace(old, new, 1)))


VARIATIONS: dict[str, bytes] = {
    "the same": USUAL,
    "database first": command({"find": "c", "$db": DATABASE, "filter": {"a": 2}, "projection": {"_id": 0}}),
    "database of a reference": command({**FIND, "filter": {"r": {"$ref": "x", "$id": 1, "$db": "other"}}}),
    "database twice": broken({**FIND, "$dc": "other"}, b"$dc\0", b"$db\0"),
    "database of another type": command({**FIND, "$db": 5}),
    "no database": command({"find": "c", "filter": {}}),
    "no database, one inside": command({"find": "c", "filter": {"$db": DATABASE}}),
    "database longer than the message": broken(FIND, b"$db\0\x0c\0\0\0", b"$db\0\xff\xff\0\0"),
    "database shorter than none": broken(FIND, b"$db\0\x0c\0\0\0", b"$db\0\xff\xff\xff\xff"),
    "collection longer than the message": broken(FIND, b"find\0\x02\0\0\0", b"find\0\xff\xff\0\0"),
    "collection shorter than none": broken(FIND, b"find\0\x02\0\0\0", b"find\0\xff\xff\xff\xff"),
    "collection without an end": broken(FIND, b"find\0\x02\0\0\0c\0", b"find\0\x02\0\0\0cc"),
    "unknown argument": command({**FIND, "nonsense": 1}),
    "unknown element": broken({**FIND, "x": 1}, b"\x10x\0", b"\x99x\0"),
    "filter longer than the message": broken(FIND, b"filter\0", b"filter\0\xff"),
    "two bodies": op_msg_bytes(body(FIND), body(FIND)),
    "sequence nobody wants": op_msg_bytes(body(FIND), sequence("foo", DOCUMENT)),
    "sequence with bad BSON": op_msg_bytes(body(INSERT), sequence("documents", b"\x08\0\0\0\x01a\0\0")),
    "sequence too long": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT, size=400)),
    "sequence and field": op_msg_bytes(body({**INSERT, "documents": [{}]}), sequence("documents", DOCUMENT)),
    "a sequence twice": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT), sequence("documents", DOCUMENT)),
    "no documents": command(INSERT),
    "the same _id": op_msg_bytes(body(INSERT), sequence("documents", {"_id": "usual"})),
    "trailing byte": op_msg_bytes(body(FIND), b"\0"),
    "trailing bytes": op_msg_bytes(body(FIND), b"\0\0\0"),
    "BSON too long": op_msg_bytes(b"\0" + struct.pack("<i", 500) + bson.encode(FIND)[4:]),
    "BSON of 4": op_msg_bytes(b"\0" + struct.pack("<i", 4) + bson.encode(FIND)[4:]),
    "BSON negative": op_msg_bytes(b"\0" + struct.pack("<i", -1) + bson.encode(FIND)[4:]),
    "BSON without end": op_msg_bytes(body(bson.encode(FIND)[:-1] + b"\x01")),
    "checksum": with_checksum(command(FIND)),
    "bad checksum": with_checksum(command(FIND))[:-1] + b"\0",
    "no reply wanted": command(FIND, flags=2) + command(FIND),
    "exhaustAllowed": command(FIND, flags=1 << 16),
    "required flag": command(FIND, flags=4),
    "stream of changes": command({**AGGREGATE, "pipeline": [{"$changeStream": {}}], "$db": DATABASE}),
    "tailable": command({**FIND, "tailable": True}),
    "pipeline of another type": command({**AGGREGATE, "pipeline": 5, "$db": DATABASE}),
    "bad read concern": command({**FIND, "readConcern": {"level": "linearisable"}}),
    "transaction on a standalone": command(
        {**FIND, "lsid": {"id": bson.Binary(bytes(16), 4)}, "txnNumber": Int64(1), "autocommit": False,
         "startTransaction": True}
    ),
}  # fmt: skip


@pytest.fixture
def collection(mongod: MongodProcess) -> Iterator[None]:
    database = mongod.shared_client[DATABASE]
    database["c"].insert_many([{"_id": number, "a": number} for number in range(5)])
    yield
    mongod.shared_client.drop_database(DATABASE)


@pytest.mark.parametrize("name", VARIATIONS)
@pytest.mark.usefixtures("collection")
def test_message_that_begins_as_the_usual_one(mongod: MongodProcess, proxy: ProxyProcess, name: str) -> None:
    answers = []
    for port in (mongod.port, proxy.port):
        replies, closed = conversation(port, USUAL + USUAL + VARIATIONS[name])
        documents = [document_of(reply) for reply in replies]
        for document in documents:
            if document.get("code") == 22:
                document.pop("errmsg")
        answers.append((documents, closed))
        mongod.shared_client[DATABASE]["inserted"].drop()
    assert answers[1] == answers[0]


@pytest.mark.usefixtures("collection")
def test_collection_that_becomes_another_kind_is_noticed(mongod: MongodProcess, proxy: ProxyProcess) -> None:
    """A recognised insert goes to the catalog once its collection is one of time series, and back (W1, C20)."""
    insert = {"insert": "changing", "ordered": True, "$db": DATABASE}
    document = {"_id": 1, "t": bson.datetime_ms.DatetimeMS(1_600_000_000_000), "m": 1}
    with RawClient(proxy.port) as client:
        for kind in ("ordinary", "time series", "ordinary again"):
            if kind == "time series":
                options = {"timeField": "t", "metaField": "m"}
                assert client.run({"create": "changing", "timeseries": options, "$db": DATABASE})["ok"] == 1
            for number in range(3):
                client.send(op_msg_bytes(body(insert), sequence("documents", {**document, "_id": number})))
                reply = client.receive()
                assert reply is not None
                assert document_of(reply)["n"] == 1
                find = {"find": "changing", "filter": {"_id": number}, "$db": DATABASE}
                assert [row["m"] for row in client.run(find)["cursor"]["firstBatch"]] == [1]
            names = mongod.shared_client[DATABASE].list_collection_names()
            assert ("system.buckets.changing" in names) == (kind == "time series")
            assert client.run({"drop": "changing", "$db": DATABASE})["ok"] == 1
