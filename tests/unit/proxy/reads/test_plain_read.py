"""What is recognised is compared with the server in tests/differential; here is what is sent for it, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Binary, Int64, Timestamp

from proxy.reads.plain_read import pieces_of
from proxy.request.attempt import Lost, NeedsTranslation
from proxy.request.command import parse_command
from proxy.request.recognition import LONGEST_BODY_BYTES
from proxy.request.router import UNRESOLVED
from proxy.wire.message import Message
from tests.support.inline_reads import Reads, cursor_reply
from tests.support.raw_wire import body, command, op_msg_bytes, sequence
from tests.support.scopes import TARGET


def session_id(number: int) -> dict[str, Any]:
    return {"id": Binary(bytes([number]) * 16, 4)}


def cluster_time(number: int) -> dict[str, Any]:
    signature = {"hash": bytes([number]) * 20, "keyId": Int64(7)}
    return {"clusterTime": Timestamp(number, number), "signature": signature}


FIND: dict[str, Any] = {"find": "x", "filter": {"m": 1}, "lsid": session_id(1), "$db": "db"}
MORE: dict[str, Any] = {"getMore": Int64(9), "collection": "x", "lsid": session_id(1), "$db": "db"}


class Recognised(Reads):
    """Reads that were asked before."""

    def learn(self, document: dict[str, Any], answer: dict[str, Any] | None = None) -> None:
        for _ in range(2):
            assert self.start(command(document))
            self.answer(answer or cursor_reply(0))
        self.transport.written.clear()
        self.counted.clear()


def test_read_is_sent_in_its_own_session_and_time() -> None:
    """Q1, X2."""
    reads = Recognised()
    first = {**FIND, "$clusterTime": cluster_time(1)}
    reads.learn(first)
    again = {**first, "lsid": session_id(2), "$clusterTime": cluster_time(2)}
    assert reads.recognises(command(again, request_id=44)) is not None
    (sent,) = reads.sent
    assert (sent["aggregate"], sent["lsid"], sent["$clusterTime"], sent["$db"]) == (
        "system.buckets.x", again["lsid"], again["$clusterTime"], "db",
    )  # fmt: skip
    assert reads.readers == {"db": 1}
    reply = reads.answer(cursor_reply(9))
    assert reply is not None
    assert reply["cursor"] == {"firstBatch": [{"a": 1}], "id": 9, "ns": "db.x"}
    assert reads.cursors.backend_namespace(9) == TARGET.buckets
    assert (reads.counted, reads.client.finished, reads.readers) == ([False], 1, {})


def test_more_of_a_cursor_goes_on_with_that_cursor() -> None:
    """C23."""
    reads = Recognised()
    for cursor_id in (9, 10):
        reads.cursors.opened(cursor_id, TARGET.buckets)
    reads.learn(MORE, cursor_reply(9, "nextBatch"))
    assert reads.recognises(command({**MORE, "getMore": Int64(11)})) is None
    for left in (10, 0):
        assert reads.recognises(command({**MORE, "getMore": Int64(10), "lsid": session_id(2)})) is not None
        assert reads.sent[-1] == {
            "getMore": 10, "collection": "system.buckets.x", "lsid": session_id(2), "$db": "db",
        }  # fmt: skip
        reply = reads.answer(cursor_reply(left, "nextBatch"))
        assert reply is not None
        assert reply["cursor"]["ns"] == "db.x"
    assert reads.cursors.backend_namespace(10) is None
    assert reads.cursors.backend_namespace(9) == TARGET.buckets
    assert reads.recognises(command({**MORE, "getMore": Int64(10)})) is None


def test_errors_are_the_clients() -> None:
    reads = Recognised()
    reads.learn(FIND)
    error = {"ok": 0.0, "errmsg": "no", "code": 2}
    assert reads.recognises(command(FIND)) is not None
    assert reads.answer(error) == error
    assert reads.recognises(command(FIND)) is not None
    assert reads.answer({**error, "code": 13}) is None
    assert reads.told.outcomes[-1] == NeedsTranslation(TARGET)
    assert reads.recognises(command(FIND)) is not None
    reads.connection.connection_lost(None)
    assert reads.told.outcomes[-1] == Lost()


@pytest.mark.parametrize(
    "other",
    [
        {**FIND, "filter": {"m": 2}},
        {**FIND, "$db": "dc"},
        {**FIND, "lsid": {"id": 7}},
        {**FIND, "$clusterTime": cluster_time(1)},
        {**FIND, "comment": "y" * LONGEST_BODY_BYTES},
        {"find": "x", "filter": {"m": 1}, "$db": "db"},
    ],
)
def test_anything_else_is_not_recognised(other: dict[str, Any]) -> None:
    reads = Recognised()
    reads.learn(FIND)
    assert reads.recognises(command(other)) is None
    assert reads.recognises(command(FIND, flags=1 << 16)) is None
    assert reads.transport.written == []


def test_nothing_is_known_when_anything_has_changed() -> None:
    reads = Recognised()
    reads.learn(FIND)
    for found in (None, UNRESOLVED, replace(TARGET)):
        reads.found = found
        assert reads.recognises(command(FIND)) is None
    reads.found = TARGET
    for reads.allowed in (None, False):
        assert reads.recognises(command(FIND)) is None
    reads.allowed = True
    reads.keep_out("db")
    assert reads.recognises(command(FIND)) is None


def test_a_plan_for_another_backend_is_not_used() -> None:
    reads = Recognised()
    reads.learn(FIND)
    reads.profile = replace(reads.profile)
    assert reads.recognises(command(FIND)) is None


@pytest.mark.parametrize(
    "raw",
    [
        command({**FIND, "txnNumber": Int64(1), "autocommit": False}),
        command({**FIND, "comment": "y" * LONGEST_BODY_BYTES}),
    ],
    ids=["in a transaction", "long"],
)
def test_what_differs_each_time_is_not_remembered(raw: bytes) -> None:
    reads = Recognised()
    for _ in range(3):
        assert reads.recognises(raw) is None
        assert reads.start(raw)
        reads.answer(cursor_reply(0))


@pytest.mark.parametrize(
    "read",
    [
        {**FIND, "filter": {"m": {"lsid": session_id(3)}}},
        {**FIND, "filter": {"m": {"$clusterTime": cluster_time(1)}}},
        {**FIND, "comment": "\x03lsid\0\x1e\0\0\0\x05id\0\x10\0\0\0\x04 0123456789abcdef"},
        {"find": "x", "$clusterTime": cluster_time(1), "lsid": session_id(1), "$db": "db"},
        {"find": "x", "lsid": session_id(1), "$clusterTime": {"clusterTime": Timestamp(1, 1)}, "$db": "db"},
        {"find": "x", "filter": {"m": 1}, "$db": "db"},
    ],
)
def test_only_values_of_the_command_itself_are_replaced(read: dict[str, Any]) -> None:
    """What looks like them inside of others is part of the question."""
    reads = Recognised()
    reads.learn(read)
    other = {**read, **({"lsid": session_id(2)} if "lsid" in read else {})}
    assert reads.recognises(command(other)) is not None
    recognised = reads.sent
    reads.answer(cursor_reply(0))
    reads.transport.written.clear()
    assert reads.start(command(other))
    assert recognised == reads.sent


def test_another_question_inside_of_what_looks_like_a_session_is_another_question() -> None:
    reads = Recognised()
    reads.learn({**FIND, "filter": {"m": {"lsid": session_id(3)}}})
    assert reads.recognises(command({**FIND, "filter": {"m": {"lsid": session_id(4)}}})) is None


@pytest.mark.parametrize("behind", [sequence("documents", {"a": 1}), b"\0", body({"a": 1})])
def test_what_comes_behind_the_body_is_another_case(behind: bytes) -> None:
    reads = Recognised()
    reads.learn(FIND)
    assert reads.recognises(op_msg_bytes(body(FIND), behind)) is None


def test_step_that_has_not_the_same_session_is_not_kept() -> None:
    asked = parse_command(Message.from_bytes(command(FIND)))
    assert pieces_of(asked, command({"aggregate": "x", "$db": "db"})[21:]) is None


def test_reads_of_replica_sets_may_have_to_go_to_another_member() -> None:
    """C23; a cursor may be where the primary was before."""
    reads = Recognised(has_members=True)
    preferring = {**FIND, "$readPreference": {"mode": "secondary"}}
    reads.learn(preferring)
    reads.cursors.opened(9, TARGET.buckets)
    reads.learn(MORE, cursor_reply(9, "nextBatch"))
    reads.learn(FIND)
    assert [reads.recognises(command(read)) is not None for read in (preferring, MORE, FIND)] == [False, False, True]


def test_not_more_than_so_many_are_remembered() -> None:
    """The plan of a question counts as well."""
    reads = Recognised()
    reads.learn({**FIND, "filter": {"a": 0}})
    reads = Recognised(limit_bytes=4 * reads.memory.size_bytes)
    for number in range(6):
        reads.learn({**FIND, "filter": {"a": number}})
    known = []
    for number in range(6):
        known.append(reads.recognises(command({**FIND, "filter": {"a": number}})) is not None)
        if known[-1]:
            reads.answer(cursor_reply(0))
    assert known == [False] * 2 + [True] * 4
