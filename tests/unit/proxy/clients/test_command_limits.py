from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import bson
import pytest
from prometheus_client import CollectorRegistry

from catalog.identity import Identity, identity_of
from proxy.clients.command_limits import CommandLimits
from proxy.clients.measuring import Measuring
from proxy.observe.limit_numbers import LimitNumbers
from proxy.observe.metrics import Metrics
from proxy.request.command_table import NEVER_WAITS
from proxy.request.exchange import Exchange, encode
from proxy.request.limited import LABELS, OVERLOADED, LimitBook
from proxy.settings.limits import DatabaseLimits, UserLimits
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from tests.support.eventually import eventually
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command, document_of
from tests.support.sessions import session

ANN, BOB = identity_of([("ann", "admin")]), identity_of([("bob", "admin")])
FIND = {"find": "rows", "$db": "weather"}


class Started:
    """One command and its client."""

    def __init__(self, document: Mapping[str, Any], identity: Identity, peer: str, raw: bytes = b"") -> None:
        self.client = FakeClient()
        client = session(identity)
        client.peer = peer
        self.exchange = Exchange(client, self.client, Message.from_bytes(raw or command(document)), Told())

    def end(self) -> None:
        self.exchange.reply(encode({"ok": 1.0}))

    @property
    def reply(self) -> dict[str, Any]:
        (raw,) = self.client.written
        return document_of(Message.from_bytes(raw))


class Rooms:
    """Limits, and the commands that have started."""

    def __init__(
        self, users: Mapping[str, UserLimits] | None = None, databases: Mapping[str, DatabaseLimits] | None = None
    ) -> None:
        self.book = LimitBook(LimitNumbers())
        self.book.configure(users or {}, databases or {})
        self.limits = CommandLimits(self.book, Measuring(Metrics(CollectorRegistry())))
        self.exchanges: list[Exchange] = []

    def start(self, document: Mapping[str, Any], identity: Identity = ANN, peer: str = "peer") -> Started:
        one = Started(document, identity, peer)
        if self.limits.admits(one.exchange, self.exchanges.append):
            self.exchanges.append(one.exchange)
        return one

    def runs(self, one: Started) -> bool:
        return one.exchange in self.exchanges


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_user_runs_a_limited_number_and_others_do_not_notice() -> None:
    rooms = Rooms({"ann@admin": UserLimits(max_commands=2)})
    anns = [rooms.start(FIND) for _ in range(3)]
    bobs = [rooms.start(FIND, BOB) for _ in range(10)]
    assert [rooms.runs(one) for one in anns] == [True, True, False]
    assert all(map(rooms.runs, bobs))
    anns[0].end()
    assert not rooms.runs(anns[2])
    await turns()
    assert rooms.runs(anns[2])


async def test_user_and_database_both_count() -> None:
    rooms = Rooms({"*": UserLimits(max_commands=2)}, {"weather": DatabaseLimits(max_commands=3)})
    anns = [rooms.start(FIND, ANN) for _ in range(3)]
    bobs = [rooms.start(FIND, BOB) for _ in range(2)]
    elsewhere = rooms.start({**FIND, "$db": "other"}, identity_of([("eve", "admin")]))
    assert [rooms.runs(one) for one in (*anns, *bobs, elsewhere)] == [True, True, False, True, False, True]
    anns[0].end()
    await turns()
    assert [rooms.runs(one) for one in (anns[2], bobs[1])] == [False, True], "bob has waited for the database"
    anns[1].end()
    await turns()
    assert rooms.runs(anns[2])


async def test_all_places_are_given_back() -> None:
    rooms = Rooms({"*": UserLimits(max_commands=2)}, {"*": DatabaseLimits(max_commands=3)})
    left = [rooms.start(FIND, identity, peer=f"{n}") for n in range(8) for identity in (ANN, BOB)]
    while left:
        running = [one for one in left if rooms.runs(one)]
        assert 1 <= len(running) <= 3
        running[0].end()
        left.remove(running[0])
        await turns()
    for limited in (rooms.book.user(ANN), rooms.book.user(BOB), rooms.book.database("weather")):
        assert limited is not None
        assert limited.is_idle


async def test_refused_commands_have_the_code_and_labels_of_servers() -> None:
    rooms = Rooms({}, {"*": DatabaseLimits(max_commands=1, max_waiting=1, max_wait_ms=30)})
    first, waits, refused = (rooms.start(FIND) for _ in range(3))
    assert (refused.reply["ok"], refused.reply["code"]) == (0.0, OVERLOADED)
    assert tuple(refused.reply["errorLabels"]) == LABELS
    assert refused.reply["codeName"] == "IngressRequestRateLimitExceeded"
    assert "weather" in refused.reply["errmsg"]
    assert waits.client.written == []
    await eventually(lambda: waits.client.written)
    assert waits.reply["code"] == OVERLOADED
    first.end()
    assert rooms.runs(rooms.start(FIND))


async def test_clients_that_leave_give_their_places_back() -> None:
    rooms = Rooms({"*": UserLimits(max_commands=1)}, {"*": DatabaseLimits(max_commands=1)})
    running, waiting, third = (rooms.start(FIND, identity) for identity in (ANN, BOB, BOB))
    waiting.exchange.abandon()
    await turns()
    running.exchange.abandon()
    running.exchange.abandon()
    await turns()
    assert [rooms.runs(one) for one in (running, waiting, third)] == [True, False, True]
    third.exchange.abandon()
    for limited in (rooms.book.user(ANN), rooms.book.user(BOB), rooms.book.database("weather")):
        assert limited is not None
        assert limited.is_idle


@pytest.mark.parametrize("name", sorted(NEVER_WAITS))
async def test_some_commands_never_wait(name: str) -> None:
    rooms = Rooms({}, {"*": DatabaseLimits(max_commands=1)})
    rooms.start(FIND)
    assert rooms.runs(rooms.start({name: 1, "$db": "weather"}))


async def test_a_transaction_goes_on() -> None:
    rooms = Rooms({}, {"*": DatabaseLimits(max_commands=1)})
    first = rooms.start(FIND)
    begins = rooms.start({**FIND, "txnNumber": bson.Int64(1), "autocommit": False, "startTransaction": True})
    assert not rooms.runs(begins)
    goes_on = rooms.start({**FIND, "txnNumber": bson.Int64(1), "autocommit": False})
    assert rooms.runs(goes_on)
    goes_on.end()
    first.end()
    await turns()
    assert rooms.runs(begins)


@pytest.mark.parametrize(
    "document",
    [
        {"find": "rows", "filter": {"a": "\x02$db\0"}, "$db": "weather"},
        {"find": "rows", "filter": {"$db": "other"}, "$db": "weather"},
        {"find": "rows", "$db": "weather", "comment": "x"},
        {"find": "rows", "filter": {"b": b"\x02$db\0\6\0\0\0other\0"}, "$db": "weather"},
    ],
)
async def test_the_database_is_the_field_and_nothing_like_it(document: dict[str, Any]) -> None:
    rooms = Rooms({}, {"weather": DatabaseLimits(max_commands=1)})
    rooms.start(FIND)
    assert not rooms.runs(rooms.start(document))


async def test_invalid_messages_are_reported_elsewhere() -> None:
    rooms = Rooms({"*": UserLimits(max_commands=10)}, {"*": DatabaseLimits(max_commands=1)})
    for document in ({}, {"find": "rows"}, {"find": "rows", "$db": 3}):
        assert rooms.runs(rooms.start(document))


async def test_damaged_messages_are_reported_elsewhere_and_leave_no_place_behind() -> None:
    rooms = Rooms({"*": UserLimits(max_commands=1)}, {"*": DatabaseLimits(max_commands=1, max_waiting=1)})
    chance = random.Random(7)
    transaction = {"txnNumber": bson.Int64(1), "autocommit": False, "startTransaction": True}
    for number in range(5_000):
        raw = bytearray(command({**FIND, **transaction} if number % 2 else FIND))
        for _ in range(chance.randrange(4)):
            raw[chance.randrange(16, len(raw))] = chance.randrange(256)
        one = Started({}, ANN, "peer", bytes(raw))
        with suppress(ProtocolError):
            if rooms.limits.admits(one.exchange, rooms.exchanges.append):
                one.end()
    await turns()
    for exchange in rooms.exchanges:
        exchange.reply(encode({"ok": 1.0}))
    await turns()
    ann = rooms.book.user(ANN)
    assert ann is not None
    assert ann.is_idle
