"""Which commands are taken to another server, and how they get there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest

from catalog.errors import BackendUnavailable, CommandError
from proxy.clients.failover_retry import FailoverRetry
from proxy.members.read_preference import Members
from proxy.request.command import Command, parse_command
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.upstream.connection import UpstreamLost
from proxy.wire.message import Message
from tests.support.failover_world import World
from tests.support.network import FakeClient
from tests.support.raw_wire import command as raw_command

FIND = {"find": "x", "$db": "d"}
DELETED_ONCE = {"delete": "x", "deletes": [], "txnNumber": bson.Int64(1), "$db": "d"}
DELETED = {"delete": "x", "deletes": [], "$db": "d"}
OK = bson.encode({"ok": 1.0})
DEPOSED = bson.encode({"ok": 0.0, "code": 10107, "errmsg": "not primary"})


class Answered:
    """One exchange, and what became of it."""

    def __init__(self, world: World, body: dict[str, Any], session: Session | None = None) -> None:
        self.begun: list[Session] = []
        self.left: list[str] = []
        self.answers: list[str] = []
        self.members = Members(self._no_topology, self._no_dialer)
        self.elsewhere = FailoverRetry(
            world.failover, self.members, lambda exchange, _: self.begun.append(exchange.session)
        )
        message = Message.from_bytes(raw_command(body))
        self.client = FakeClient()
        self.exchange = Exchange(session or world.session, self.client, message, expects_reply=True)
        self.exchange.on_leave = lambda: self.left.append("left")
        self.command: Command = parse_command(message)

    def _begin(self, exchange: Exchange, command: Command) -> None:
        self.begun.append(exchange.session)

    @staticmethod
    def _no_topology() -> Any:
        raise AssertionError

    @staticmethod
    def _no_dialer(_: object) -> Any:
        raise AssertionError

    def takes(self, outcome: bytes | Exception) -> bool:
        return self.elsewhere.takes(self.exchange, self.command, outcome)

    async def go(self) -> None:
        await self.elsewhere.go(self.exchange, self.command, lambda: self.answers.append("the error"))


@pytest.mark.parametrize("body", [FIND, DELETED_ONCE])
def test_what_may_be_sent_again_is_taken(body: dict[str, Any]) -> None:
    answered = Answered(World(), body)
    assert answered.takes(DEPOSED)
    assert answered.takes(UpstreamLost("gone"))
    assert not answered.takes(OK)
    assert not answered.takes(BackendUnavailable("no primary in time"))
    assert not answered.takes(CommandError(26, "x"))


def test_writes_that_drivers_do_not_repeat_are_not_taken() -> None:
    answered = Answered(World(), DELETED)
    assert not answered.takes(DEPOSED)
    assert not answered.takes(UpstreamLost("gone"))


def test_nothing_is_taken_where_there_is_no_other_server() -> None:
    answered = Answered(World(), FIND)
    alone = FailoverRetry(None, None, lambda exchange, command: None)
    assert not alone.takes(answered.exchange, answered.command, DEPOSED)


async def test_command_begins_anew_and_is_one_reader_still() -> None:
    world = World().connected(bound=False)
    answered = Answered(world, FIND)
    await answered.go()
    assert answered.begun == [world.session]
    assert answered.left == ["left"]
    assert answered.answers == []


async def test_client_that_has_logged_in_is_closed() -> None:
    answered = Answered(World().connected(bound=True), FIND)
    await answered.go()
    assert answered.client.closed
    assert answered.begun == []


async def test_error_stands_where_the_primary_does() -> None:
    answered = Answered(World(has_left=False).connected(bound=False), FIND)
    await answered.go()
    assert answered.answers == ["the error"]
    assert answered.begun == []


async def test_read_from_a_member_that_went_away_goes_back_to_the_clients_own_session() -> None:
    world = World()
    away = replace(world.session, member=("b", 2), home=world.session)
    answered = Answered(world, FIND, away)
    assert answered.takes(BackendUnavailable("refused"))
    await answered.go()
    assert answered.begun == [world.session]
    assert answered.members.is_avoided(("b", 2))
