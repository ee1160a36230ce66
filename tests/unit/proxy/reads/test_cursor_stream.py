from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from catalog.namespaces import Namespace
from proxy.reads.cursor_names import rename_cursor
from proxy.reads.cursor_stream import HEAD_BYTES, LARGE_BYTES, CursorStream, Renaming
from proxy.wire import op_msg

NAME = Namespace("db", "x")
GROWN = -len("system.buckets.")
ROWS = [{"n": number, "padding": "y" * 1000} for number in range(100)]


def reply(batch: str = "firstBatch", rows: list[dict[str, Any]] | None = None, **more: Any) -> bytes:
    cursor = {batch: ROWS if rows is None else rows, "id": Int64(77), "ns": "db.system.buckets.x"}
    return bson.encode({"cursor": {**cursor, **more}, "ok": 1.0, "operationTime": bson.Timestamp(1, 2)})


def through(document: bytes, size: int) -> tuple[bytes, list[bytes]]:
    """What the client gets, and in which pieces before the reply was complete."""
    raw = op_msg.build(3, 4, document)
    first = raw[: max(size, HEAD_BYTES)]
    stream = CursorStream.of(first)
    assert stream is not None
    early = [stream.head(first, GROWN, 8, 9), stream.feed(first[stream.body_at() :])]
    for start in range(len(first), len(raw), size):
        early.append(stream.feed(raw[start : start + size]))
    renamed, cursor_id, backend = rename_cursor(stream.without_batch(), NAME)
    assert (cursor_id, backend) == (77, Namespace("db", "system.buckets.x"))
    return b"".join(early) + stream.tail(renamed), early


@pytest.mark.parametrize("size", [1, 60, 999, 50_000, 102_000, 10_000_000])
@pytest.mark.parametrize("batch", ["firstBatch", "nextBatch"])
def test_streamed_reply_is_the_collected_one(size: int, batch: str) -> None:
    """C23."""
    document = reply(batch, partialResultsReturned=True)
    streamed, early = through(document, size)
    assert streamed == op_msg.build(8, 9, rename_cursor(document, NAME)[0])
    assert sum(map(len, early)) > 100_000


@pytest.mark.parametrize(
    "raw",
    [
        op_msg.build(3, 4, reply(rows=ROWS[:3])),
        op_msg.build(3, 4, reply("otherBatch")),
        op_msg.build(3, 4, reply(), flags=op_msg.MORE_TO_COME),
        op_msg.build(3, 4, bson.encode({"ok": 0.0, "errmsg": "e" * LARGE_BYTES})),
        op_msg.build(3, 4, bson.encode({"ok": 1.0, "cursor": {"firstBatch": ROWS}})),
        op_msg.build(3, 4, reply())[:21] + b"\x07\0\0\0" + op_msg.build(3, 4, reply())[25:],
        op_msg.build(3, 4, reply()).replace(b"firstBatch\0", b"firstBatch\0\xff\xff\xff\x7f", 1),
    ],
    ids=["small", "another batch", "more to come", "error", "another order", "another length", "too long a batch"],
)
def test_what_is_no_large_batch_is_collected(raw: bytes) -> None:
    assert CursorStream.of(raw) is None


def reply_of(cursor: dict[str, Any], **more: Any) -> bytes:
    return op_msg.build(5, 6, bson.encode({"cursor": cursor, **more}))


@pytest.mark.parametrize("more", [{"ok": 1.0}, {"ok": 1.0, "$clusterTime": {"a": 1}, "operationTime": 3}])
def test_whole_reply_gets_the_name_that_the_client_knows(more: dict[str, Any]) -> None:
    """C23."""
    cursor = {"firstBatch": [{"ns": "db.system.buckets.x"}], "id": Int64(9), "ns": "db.system.buckets.x"}
    renamed = Renaming(Namespace("db", "system.buckets.x")).whole(reply_of(cursor, **more), 7, 8)
    assert renamed == (op_msg.build(7, 8, bson.encode({"cursor": {**cursor, "ns": "db.x"}, **more})), 9)


@pytest.mark.parametrize(
    "reply",
    [
        op_msg.build(5, 6, bson.encode({"ok": 0.0, "errmsg": "no", "code": 13, "codeName": "Unauthorized"})),
        reply_of({"firstBatch": [], "id": Int64(0), "ns": "db.y"}, ok=1.0),
        reply_of({"firstBatch": [], "ns": "db.system.buckets.x", "id": Int64(0)}, ok=1.0),
        reply_of({"ns": "db.system.buckets.x"}, ok=1.0),
        reply_of({"firstBatch": [], "id": Int64(0), "ns": "db.system.buckets.x"}, ok=1.0) + b"more",
        reply_of({"firstBatch": [], "id": Int64(0), "ns": "db.system.buckets.x"}, ok=1.0)[:50],
    ],
)
def test_reply_in_another_order_is_looked_at_in_full(reply: bytes) -> None:
    assert Renaming(Namespace("db", "system.buckets.x")).whole(reply, 7, 8) is None
