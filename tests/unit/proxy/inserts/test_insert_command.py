"""Which inserts the catalog takes, and what it is told of them (W90-W106)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.inserts.insert_command import (
    InsertCommand,
    parse_insert,
    takes_inserts,
    with_documents,
)
from proxy.request.command import parse_command
from proxy.wire.message import Message
from tests.support.wire import op_msg

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
PLAIN: dict[str, Any] = {"insert": "x", "documents": [{"v": 1}, {"v": 2}], "$db": "d"}
SESSION = {"lsid": {"id": bson.Binary(bytes(16), 4)}, "txnNumber": bson.Int64(7)}


def parsed(*, retryable_writes: bool = True, **fields: Any) -> InsertCommand | None:
    command = parse_command(Message.from_bytes(op_msg({**PLAIN, **fields})))
    return parse_insert(command, retryable_writes=retryable_writes)


def test_a_plain_insert_is_taken() -> None:
    insert = parsed()
    assert insert is not None
    assert list(insert.documents) == [bson.encode({"v": 1}), bson.encode({"v": 2})]
    assert (insert.ordered, insert.write_concern, insert.txn_number, insert.statement_ids) == (True, b"", None, None)
    assert insert.size_bytes == sum(map(len, insert.documents))


@pytest.mark.parametrize(
    "fields",
    [
        {"documents": []},
        {"documents": [5]},
        {"documents": {"a": 1}},
        {"ordered": 1},
        {"noSuchField": 1},
        {"writeConcern": 1},
        {"txnNumber": bson.Int64(1)},
        {**SESSION, "stmtIds": [1]},
        {**SESSION, "stmtIds": [1, "2"]},
        {**SESSION, "stmtId": 0, "stmtIds": [1, 2]},
        {**SESSION, "txnNumber": 1.0},
        {"readConcern": {}},
        {"readConcern": {"level": "majority"}},
        {"readConcern": {"afterClusterTime": 5}},
        {"readConcern": {"afterClusterTime": bson.Timestamp(0, 0)}},
        {"readConcern": {"afterClusterTime": bson.Timestamp(5, 1), "level": "local"}},
    ],
    ids=str,
)
def test_w92_what_is_malformed_is_the_backends_to_judge(fields: dict[str, Any]) -> None:
    assert parsed(**fields) is None


def test_strict_clients_insert_like_all_others() -> None:
    assert parsed(apiVersion="1", apiStrict=True, apiDeprecationErrors=True) is not None
    assert parsed(apiVersion="1", apiStrict=False) is not None
    for unusual in ({"apiStrict": True}, {"apiVersion": "2", "apiStrict": True}, {"apiVersion": "1", "apiStrict": 1}):
        assert parsed(**unusual) is None


def test_time_of_a_causal_session_is_no_obstacle() -> None:
    """The primary has told this time; a standalone refuses it."""
    read_concern = {"afterClusterTime": bson.Timestamp(5, 1)}
    assert parsed(readConcern=read_concern) is not None
    assert parsed(readConcern=read_concern, retryable_writes=False) is None


def test_w102_statements_of_a_retryable_write_have_numbers() -> None:
    assert [
        list(insert.statement_ids or ()) for insert in (parsed(**SESSION), parsed(**SESSION, stmtId=5)) if insert
    ] == [
        [0, 1],
        [5, 6],
    ]
    last = parsed(**SESSION, stmtId=2**31 - 1)
    assert last is not None
    assert list(last.statement_ids or ()) == [2**31 - 1, -(2**31)]
    explicit = parsed(**SESSION, stmtIds=[9, 4])
    assert explicit is not None
    assert (explicit.txn_number, list(explicit.statement_ids or ())) == (7, [9, 4])
    assert parsed(**SESSION, retryable_writes=False) is None


def test_w104_unacknowledged_writes_are_acknowledged_by_the_backend() -> None:
    majority = parsed(writeConcern={"w": "majority"})
    assert majority is not None
    assert majority.write_concern == bson.encode({"w": "majority"})
    for concern in ({"w": 0}, {}):
        insert = parsed(writeConcern=concern)
        assert insert is not None
        assert insert.write_concern == b""


def test_the_same_command_with_other_documents() -> None:
    insert = parsed(ordered=False)
    assert insert is not None
    other = with_documents(insert, [b"12345"])
    assert (other.documents, other.size_bytes, other.ordered) == ([b"12345"], 5, False)


def test_w21_collections_with_a_collation_are_left_to_the_backend() -> None:
    namespace = Namespace("d", "x")
    assert takes_inserts(VirtualCollection(namespace, OPTIONS))
    assert not takes_inserts(VirtualCollection(namespace, OPTIONS, collation={"locale": "de"}))
    assert not takes_inserts(VirtualCollection(namespace, TimeseriesOptions("", "m", Granularity.SECONDS, 3600, 60)))
