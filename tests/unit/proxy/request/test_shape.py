from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, ObjectId, Regex
from hypothesis import given
from hypothesis import strategies as st

from proxy.request.command import parse_command
from proxy.request.shape import LONGEST_SHAPE, shape_of, shape_of_command
from proxy.wire.message import Message
from tests.support.raw_wire import body, command, op_msg_bytes, sequence


@pytest.mark.parametrize(
    ("document", "shape"),
    [
        ({}, "{}"),
        ({"a": 1, "b": 2.5, "c": "x", "d": None}, "{a: int, b: double, c: string, d: null}"),
        (
            {"i": Int64(1), "o": ObjectId(), "t": datetime(2024, 1, 1, tzinfo=UTC), "b": b"x", "r": Regex("secret")},
            "{i: long, o: objectId, t: date, b: binData, r: regex}",
        ),
        ({"d": Decimal128("1"), "m": MaxKey(), "y": True}, "{d: decimal, m: maxKey, y: bool}"),
        ({"t": {"$gte": 1, "$lt": 2}}, "{t: {$gte: int, $lt: int}}"),
        ({"$in": [1, 2, 3, "x"]}, "{$in: [int × 3, string]}"),
        ({"p": [{"$match": {"a": 1}}, {"$match": {"a": 2}}, {"$sort": {"a": 1}}]},
         "{p: [{$match: {a: int}} × 2, {$sort: {a: int}}]}"),
        ({"odd name": 1, 'q"': 1, "new\nline": 1}, '{"odd name": int, "q\\"": int, "new\\nline": int}'),
        ({"a.b.0": 1, "ö": 1}, '{a.b.0: int, "ö": int}'),
    ],
)  # fmt: skip
def test_shape(document: dict[str, Any], shape: str) -> None:
    assert shape_of(bson.encode(document)) == shape


def test_shape_of_a_command_leaves_out_the_session_and_counts_documents() -> None:
    raw = op_msg_bytes(
        body(
            {"insert": "c", "lsid": {"id": b"x"}, "comment": "hi", "ordered": True, "$db": "d", "txnNumber": Int64(1)}
        ),
        sequence("documents", {"a": 1}, {"a": 2}, {"b": 2}),
    )
    parsed = parse_command(Message.from_bytes(raw))
    assert shape_of_command(parsed) == "{insert: string, ordered: bool, documents: [{a: int}, … 2 more]}"
    alone = parse_command(
        Message.from_bytes(op_msg_bytes(body({"insert": "c", "$db": "d"}), sequence("documents", {})))
    )
    assert shape_of_command(alone) == "{insert: string, documents: [{}]}"
    ping = parse_command(Message.from_bytes(command({"ping": 1, "$db": "d"})))
    assert shape_of_command(ping) == "{ping: int}"


def nested(levels: int) -> dict[str, Any]:
    return {"a": nested(levels - 1)} if levels else {"secret": 1}


@pytest.mark.parametrize(
    "document",
    [
        nested(90),
        {str(number): number for number in range(10_000)},
        {"x" * 10_000: 1},
        {"a": [{"b": number, str(number): 1} for number in range(10_000)]},
        {"a": [list(range(50))] * 5_000},
    ],
    ids=["deep", "wide", "long name", "many elements", "lists"],
)
def test_bounds(document: dict[str, Any]) -> None:
    shape = shape_of(bson.encode(document))
    assert len(shape) <= LONGEST_SHAPE + 1
    assert "…" in shape
    assert "secret" not in shape


VALUES = st.recursive(
    st.sampled_from(["hidden", 918273645, 9.18273645, Int64(918273645)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "$b", "c.d"]), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from(["a", "$b", "c.d"]), VALUES, max_size=4))
def test_no_value_is_shown(document: dict[str, Any]) -> None:
    shape = shape_of(bson.encode(document))
    assert "hidden" not in shape
    assert not any(digit in shape.replace("× 2", "").replace("× 3", "").replace("× 4", "") for digit in "0123456789")


@pytest.mark.parametrize("cut", range(1, 30))
def test_damaged_documents_have_no_shape(cut: int) -> None:
    raw = bson.encode({"a": {"b": [1, {"c": "text"}]}})
    assert shape_of(raw[:-cut]) == "?"
