"""What is recognised is compared with the server in tests/differential; here is what the proxy does beside it."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from proxy.relay.plain_relay import plain_relay
from proxy.request import router
from proxy.request.attempt import Lost
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.request.recognition import LONGEST_BYTES, LONGEST_HEAD_BYTES
from proxy.request.router import UNRESOLVED
from proxy.upstream.connection import UpstreamLost
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.raw_wire import command, document_of
from tests.support.recognising import Recognising

FIND: dict[str, Any] = {"find": "c", "filter": {"_id": 1}, "lsid": {"id": 1}, "$db": "d"}
INSERT: dict[str, Any] = {"insert": "c", "documents": [{}], "$db": "d"}
REPLY = op_msg.build(1, 7, bson.encode({"ok": 1.0}))
CURSOR = op_msg.build(1, 7, bson.encode({"cursor": {"firstBatch": [], "id": Int64(99), "ns": "d.c"}, "ok": 1.0}))


class Relays(Recognising):
    """What relays commands that are recognised."""

    def learn(self, document: dict[str, Any], route: router.Route = router.RELAY) -> None:
        command_of = parse_command(Message.from_bytes(command(document)))
        shortcut = None
        if isinstance(route, router.Relay):
            shortcut = plain_relay(command_of, route, has_members=self.requirements.has_members)
        self.remember(command(document), route, shortcut)

    def start(self, document: dict[str, Any], flags: int = 0) -> Exchange | None:
        return self.recognises(command(document, flags=flags))

    @property
    def is_read(self) -> bool:
        return bool(self.readers)


def test_known_command_goes_out_as_it_came_and_its_reply_back() -> None:
    relays = Relays()
    assert relays.start(FIND) is None
    relays.learn(FIND)
    other = {**FIND, "filter": {"_id": 2}, "limit": 1}
    assert relays.start(other) is not None
    assert relays.transport.written == [command(other)]
    assert relays.is_read
    relays.connection.data_received(REPLY)
    assert (relays.client.written, relays.client.finished, relays.counted) == ([REPLY], 1, [False])
    assert not relays.is_read


@pytest.mark.parametrize(
    "other",
    [
        {**FIND, "find": "x"},
        {**FIND, "$db": "e"},
        {"count": "c", "$db": "d"},
        {**FIND, "tailable": True},
        {**FIND, "startTransaction": True},
        {**FIND, "filter": {"r": {"$db": "x"}}},
        {**FIND, "filter": {"x": "y" * LONGEST_BYTES}},
    ],
    ids=lambda document: str(document)[:60],
)
def test_what_differs_in_more_than_arguments_is_not_recognised(other: dict[str, Any]) -> None:
    relays = Relays()
    relays.learn(FIND)
    assert relays.start(other) is None
    assert relays.start(FIND, flags=2) is None
    assert relays.transport.written == []


@pytest.mark.parametrize(
    ("document", "route"),
    [
        ({"create": "c", "$db": "d"}, router.RELAY),
        ({"getMore": Int64(5), "collection": "c", "$db": "d"}, router.RELAY),
        ({"hello": 1, "$db": "d"}, router.AnswerLocally()),
        ({"nonsense": "c", "$db": "d"}, router.RELAY),
        ({**INSERT, "insert": "system.x"}, router.Relay(())),
        ({**FIND, "tailable": True}, router.RELAY),
    ],
    ids=str,
)
def test_what_is_no_plain_relay_is_not_remembered(document: dict[str, Any], route: router.Route) -> None:
    relays = Relays()
    relays.learn(document, route)
    assert relays.start(document) is None


def test_collection_that_may_be_another_by_now_takes_the_ordinary_way() -> None:
    relays = Relays()
    relays.learn(INSERT)
    relays.found = UNRESOLVED
    assert relays.start(INSERT) is None
    relays.found = None
    assert relays.start(INSERT) is not None


def test_only_a_ready_connection_is_used() -> None:
    relays = Relays()
    relays.learn(INSERT)
    relays.connection.close()
    assert relays.start(INSERT) is None


def test_read_preference_matters_where_there_are_members() -> None:
    preferring = {**FIND, "$readPreference": {"mode": "secondary"}}
    for has_members in (False, True):
        relays = Relays(has_members=has_members)
        relays.learn(FIND)
        assert (relays.start(preferring) is None) == has_members


async def test_readers_wait_for_joins() -> None:
    relays = Relays()
    relays.learn(FIND)
    relays.learn(INSERT)
    async with relays.register.kept_out(Namespace("d", "x")):
        assert relays.start(FIND) is None
        assert relays.start(INSERT) is not None


@pytest.mark.parametrize("size", [20, 60, 10_000])
def test_cursor_that_is_left_open_counts_as_a_reader(size: int) -> None:
    relays = Relays()
    relays.learn(FIND)
    assert relays.start(FIND) is not None
    for start in range(0, len(CURSOR), size):
        relays.connection.data_received(CURSOR[start : start + size])
    assert b"".join(relays.client.written) == CURSOR
    assert relays.register.relayed.backend_namespace(99) == Namespace("d", "c")
    assert not relays.is_read


def test_client_that_leaves_reads_no_more() -> None:
    relays = Relays()
    relays.learn(FIND)
    exchange = relays.start(FIND)
    assert exchange is not None
    exchange.abandon()
    exchange.abandon()
    assert not relays.is_read
    assert relays.client.written == []


def test_backend_that_goes_away_closes_the_client() -> None:
    relays = Relays()
    relays.learn(FIND)
    assert relays.start(FIND) is not None
    relays.connection.connection_lost(None)
    assert (relays.client.closed, relays.client.written, relays.counted) == (True, [], [True])
    assert relays.told.outcomes == [Lost()]
    assert not relays.is_read


def test_connection_that_ended_just_now_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    relays = Relays()
    relays.learn(FIND)

    def stream(raw: bytes, sink: object) -> None:
        raise UpstreamLost("lost")

    monkeypatch.setattr(relays.connection, "stream", stream)
    assert relays.start(FIND) is not None
    assert document_of(Message.from_bytes(relays.client.written[0]))["code"] == BackendUnavailable("").code
    assert (relays.client.finished, relays.counted, relays.is_read) == (1, [True], False)


def test_ping_is_recognised_in_every_session_and_only_as_a_whole() -> None:
    relays = Relays()
    ping = {"ping": 1, "lsid": {"id": bson.Binary(bytes(16), 4)}, "$db": "d"}
    relays.learn(ping)
    other = {**ping, "lsid": {"id": bson.Binary(bytes([1] * 16), 4)}}
    assert relays.start(other) is not None
    assert relays.sent == [other]
    relays.connection.data_received(REPLY)
    for another in ({**ping, "ping": 2}, {**ping, "$db": "e"}, {**ping, "comment": 1}):
        assert relays.start(another) is None


def test_nothing_is_relayed_for_a_stranger() -> None:
    relays = Relays()
    relays.learn(INSERT)
    relays.stranger = True
    assert relays.start(INSERT) is None


def test_reply_that_has_to_be_compressed_takes_the_ordinary_way() -> None:
    relays = Relays()
    relays.learn(INSERT)
    exchange = relays.exchange(command(INSERT))
    exchange.message.compressor = 2
    assert not relays.recogniser.start(exchange)


def test_memory_is_bounded() -> None:
    relays = Relays(limit_bytes=10_000)
    for number in range(25):
        relays.learn({**INSERT, "insert": f"c{number}"})
    assert 5 < len(relays.memory) <= 11
    relays.learn({**INSERT, "insert": "c" * LONGEST_HEAD_BYTES})
    assert relays.memory.size_bytes < 10_000, "a name that no collection has is not remembered"


def test_errors_are_worded_as_ever() -> None:
    relays = Relays()
    relays.learn(FIND)
    exchange = relays.start(FIND)
    assert exchange is not None
    exchange.refuse(CommandError(2, "no good"))
    assert document_of(Message.from_bytes(relays.client.written[0]))["errmsg"] == "no good"
