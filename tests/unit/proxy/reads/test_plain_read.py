"""What is recognised is compared with the server in tests/differential; here is what is sent for it, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Binary, Int64, Timestamp

from catalog.namespaces import VirtualCollection
from proxy.readers.register import ReaderRegister
from proxy.reads.inline_reads import SentStep
from proxy.reads.plain_read import LONGEST_BYTES, PlainReads
from proxy.request.attempt import Lost, NeedsLongWay
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.request.router import UNRESOLVED, Unresolved
from proxy.wire.message import Message
from tests.support.inline_reads import Reads, cursor_reply
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.scopes import TARGET


def session_id(number: int) -> dict[str, Any]:
    return {"id": Binary(bytes([number]) * 16, 4)}


def cluster_time(number: int) -> dict[str, Any]:
    signature = {"hash": bytes([number]) * 20, "keyId": Int64(number)}
    return {"clusterTime": Timestamp(number, number), "signature": signature}


FIND: dict[str, Any] = {"find": "x", "filter": {"m": 1}, "lsid": session_id(1), "$db": "db"}
MORE: dict[str, Any] = {"getMore": Int64(9), "collection": "x", "lsid": session_id(1), "$db": "db"}


class Recognising(Reads):
    """``InlineReads`` that teaches ``PlainReads``, in front of a connection that remembers."""

    def __init__(self, *, has_members: bool = False, limit_bytes: int = 1 << 20) -> None:
        super().__init__()
        self.found: VirtualCollection | Unresolved | None = TARGET
        self.counted: list[bool] = []
        self.register = ReaderRegister(lambda _: False)
        self.plain = PlainReads(
            lambda _: self.found, self.reads, self.register, has_members=has_members, limit_bytes=limit_bytes
        )

    def done(self, seconds: float, *, failed: bool = False) -> None:
        self.counted.append(failed)

    def remember(self, exchange: Exchange, step: SentStep) -> None:
        exchange.command = parse_command(exchange.message)
        exchange.meter = self
        self.plain.remember(exchange, step)

    def learn(self, document: dict[str, Any], answer: dict[str, Any] | None = None) -> None:
        for _ in range(2):
            assert self.start(command(document))
            self.answer(answer or cursor_reply(0))
        self.transport.written.clear()
        self.counted.clear()

    def recognises(self, raw: bytes) -> Exchange | None:
        self.client = FakeClient()
        return self.plain.start(self.session, Message.from_bytes(raw), self.client, self.told)


def test_read_is_sent_in_its_own_session_and_time() -> None:
    """Q1, X2."""
    reads = Recognising()
    first = {**FIND, "$clusterTime": cluster_time(1)}
    reads.learn(first)
    again = {**first, "lsid": session_id(2), "$clusterTime": cluster_time(2)}
    assert reads.recognises(command(again, request_id=44)) is not None
    (sent,) = reads.sent
    assert (sent["aggregate"], sent["lsid"], sent["$clusterTime"], sent["$db"]) == (
        "system.buckets.x", again["lsid"], again["$clusterTime"], "db",
    )  # fmt: skip
    assert reads.register._reading == {"db": 1}
    reply = reads.answer(cursor_reply(9))
    assert reply is not None
    assert reply["cursor"] == {"firstBatch": [{"a": 1}], "id": 9, "ns": "db.x"}
    assert reads.cursors.backend_namespace(9) == TARGET.buckets
    assert (reads.counted, reads.client.finished, reads.register._reading) == ([False], 1, {})


def test_more_of_a_cursor_goes_on_with_that_cursor() -> None:
    """C23."""
    reads = Recognising()
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
    reads = Recognising()
    reads.learn(FIND)
    error = {"ok": 0.0, "errmsg": "no", "code": 2}
    assert reads.recognises(command(FIND)) is not None
    assert reads.answer(error) == error
    assert reads.recognises(command(FIND)) is not None
    assert reads.answer({**error, "code": 13}) is None
    assert reads.told.outcomes[-1] == NeedsLongWay(TARGET)
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
        {**FIND, "comment": "y" * LONGEST_BYTES},
        {"find": "x", "filter": {"m": 1}, "$db": "db"},
    ],
)
def test_anything_else_is_not_recognised(other: dict[str, Any]) -> None:
    reads = Recognising()
    reads.learn(FIND)
    assert reads.recognises(command(other)) is None
    assert reads.recognises(command(FIND, flags=1 << 16)) is None
    assert reads.transport.written == []


def test_nothing_is_known_when_anything_has_changed() -> None:
    reads = Recognising()
    reads.learn(FIND)
    for found in (None, UNRESOLVED, replace(TARGET)):
        reads.found = found
        assert reads.recognises(command(FIND)) is None
    reads.found = TARGET
    for reads.allowed in (None, False):
        assert reads.recognises(command(FIND)) is None
    reads.allowed = True
    reads.register._kept_out["db"] = object()  # type: ignore[assignment]
    assert reads.recognises(command(FIND)) is None
    reads.register._kept_out.clear()
    reads.profile = replace(reads.profile)
    assert reads.recognises(command(FIND)) is None


@pytest.mark.parametrize(
    "read",
    [
        {**FIND, "txnNumber": Int64(1)},
        {**FIND, "filter": {"m": {"lsid": session_id(3)}}},
        {**FIND, "filter": {"m": {"$clusterTime": cluster_time(1)}}},
        {"find": "x", "$clusterTime": cluster_time(1), "lsid": session_id(1), "$db": "db"},
        {"find": "x", "comment": "y" * LONGEST_BYTES, "lsid": session_id(1), "$db": "db"},
    ],
)
def test_what_cannot_be_taken_apart_for_certain_is_not_remembered(read: dict[str, Any]) -> None:
    reads = Recognising()
    reads.learn(read)
    assert reads.recognises(command(read)) is None


def test_reads_of_replica_sets_may_have_to_go_to_another_member() -> None:
    """C23; a cursor may be where the primary was before."""
    reads = Recognising(has_members=True)
    preferring = {**FIND, "$readPreference": {"mode": "secondary"}}
    reads.learn(preferring)
    reads.cursors.opened(9, TARGET.buckets)
    reads.learn(MORE, cursor_reply(9, "nextBatch"))
    reads.learn(FIND)
    assert [reads.recognises(command(read)) is not None for read in (preferring, MORE, FIND)] == [False, False, True]


def test_not_more_than_so_many_are_remembered() -> None:
    reads = Recognising()
    reads.learn(FIND)
    of_one = reads.plain._known.size_bytes
    reads = Recognising(limit_bytes=4 * of_one)
    for number in range(6):
        reads.learn({**FIND, "filter": {"m": number}})
    known = []
    for number in range(6):
        known.append(reads.recognises(command({**FIND, "filter": {"m": number}})) is not None)
        if known[-1]:
            reads.answer(cursor_reply(0))
    assert known == [False] * 2 + [True] * 4
