"""Buckets whose meta value is an empty timestamp reach the server as they are (W37)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId, Timestamp, encode
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from catalog.bson.raw import document, element, fields_of, sub_document
from catalog.commit.empty_timestamps import has_empty_timestamp, inserting_statement
from tests.support.mongod import MongodProcess

TIME = DatetimeMS(1_704_067_200_000)
ONE, TWO = b"\x10\1\0\0\0", b"\x10\2\0\0\0"


def deep(levels: int) -> bytes:
    """An element value of this many levels."""
    value = ONE
    for _ in range(levels):
        value = b"\x03" + document([element(b"a", value)])
    return value


VALUES: dict[str, bytes] = {
    "a number": ONE,
    "a name twice": b"\x03" + document([element(b"a", ONE), element(b"a", TWO)]),
    "odd names": b"\x03" + document([element(name, ONE) for name in (b"$x", b"a.b", b"", b"0", b"$literal")]),
    "as deep as can be": deep(177),
    "an old type": b"\x06",
    "a NaN of its own": b"\x01" + bytes.fromhex("efbeadde0000f07f"),
    "nearly 16 MB": b"\x05" + (16_770_000).to_bytes(4, "little") + b"\0" + bytes(16_770_000),
}


def bucket(value: bytes, meta: Any) -> bytes:
    """A bucket document of ours."""
    head = encode({"_id": ObjectId(), "control": {"version": 1, "min": {"t": TIME}, "max": {"t": TIME}}})[4:-1]
    times = sub_document(b"t", [element(b"0", fields_of(encode({"t": TIME}))[b"t"])])
    data = sub_document(b"data", [times, sub_document(b"v", [element(b"0", value)])])
    return document([head, *([] if meta is None else [encode({"meta": meta})[4:-1]]), data])


@pytest.mark.parametrize("name", VALUES)
def test_w37_the_statement_inserts_once_and_byte_for_byte(mongod: MongodProcess, db_name: str, name: str) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    made = bucket(VALUES[name], Timestamp(0, 0))
    updates = [RawBSONDocument(inserting_statement(made))]
    replies = [
        database.command("update", "system.buckets.x", updates=updates, bypassDocumentValidation=True) for _ in range(2)
    ]
    assert [each["n"] for each in replies] == [1, 0]
    assert [each["code"] for each in replies[1]["writeErrors"]] == [11000]
    (stored,) = database["system.buckets.x"].find_raw_batches({})
    assert stored == made


@pytest.mark.parametrize(
    ("meta", "empty"),
    [
        (Timestamp(0, 0), True),
        (Timestamp(0, 1), False),
        (Timestamp(1, 0), False),
        ({"a": Timestamp(0, 0)}, False),
        ([Timestamp(0, 0)], False),
        (0, False),
        (None, False),
    ],
    ids=str,
)
def test_w37_only_a_whole_meta_value_is_replaced_by_servers(
    mongod: MongodProcess, db_name: str, meta: Any, empty: bool
) -> None:
    made = bucket(ONE, meta)
    assert has_empty_timestamp(made) is empty
    plain = mongod.shared_client[db_name]["plain"]
    plain.insert_one(RawBSONDocument(made))
    (stored,) = plain.find_raw_batches({})
    assert (stored == made) is not empty
