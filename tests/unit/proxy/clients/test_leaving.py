"""No client is disconnected while it may have a command under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.clients.connection import ClientConnection
from proxy.clients.leaving import IDLE_SECONDS, Farewell, Leaving, is_idle, nobody_stays, patience
from proxy.clients.roster import Roster
from proxy.request.session import Session
from tests.support.admin_calls import Asking
from tests.support.sessions import session


class Client:
    def __init__(self, world: World, active_at_seconds: float = 0.0, *, is_busy: bool = False) -> None:
        self.session: Session | None = session()
        self.is_busy = is_busy
        self.received_bytes = 0
        self.unsent_bytes = 0
        self.is_closed = False
        self.confirms = True
        self.active_at_seconds = active_at_seconds
        self._world = world
        world.roster.enter(cast("ClientConnection", self))

    def close(self) -> None:
        self.is_closed = True
        self._world.closed.append(self)
        if self.confirms:
            self._world.roster.leave(cast("ClientConnection", self))

    def abort(self) -> None:
        self._world.aborted.append(self)
        self._world.roster.leave(cast("ClientConnection", self))


class World:
    """The clock goes on by a second with each look."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.closed: list[Client] = []
        self.aborted: list[Client] = []
        self.now_seconds = 100.0
        self.events: list[object] = []
        self.leaving = Leaving(self.roster, self.interrupt, self.now)

    def now(self) -> float:
        return self.now_seconds

    def interrupt(self, keep: Callable[[Session], bool]) -> None:
        self.events.append("interrupt")
        self.now_seconds += 1.0

    def refuse(self) -> None:
        self.events.append(("refuse", self.now_seconds))


async def test_idle_clients_are_closed_and_others_are_waited_for() -> None:
    world = World()
    idle, recent, busy = Client(world), Client(world, 100.5), Client(world, is_busy=True)
    waiting = asyncio.create_task(world.leaving.all_left(60.0, world.refuse))
    async with asyncio.timeout(20):
        while len(world.closed) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert world.closed == [idle, recent]
    assert not waiting.done()
    busy.is_busy = False
    await waiting
    assert world.closed == [idle, recent, busy]
    assert world.events[:2] == ["interrupt", "interrupt"]
    assert ("refuse", 160.0) not in world.events


async def test_connection_that_does_not_end_is_aborted_when_everything_is_sent() -> None:
    world = World()
    silent, slow = Client(world), Client(world)
    silent.confirms = slow.confirms = False
    slow.unsent_bytes = 7
    waiting = asyncio.create_task(world.leaving.all_left(60.0, world.refuse))
    async with asyncio.timeout(20):
        while world.events.count("interrupt") < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert set(world.closed) == {silent, slow}
    assert world.aborted == [silent]
    slow.unsent_bytes = 0
    await waiting
    assert world.aborted == [silent, slow]


async def test_commands_are_refused_after_a_while() -> None:
    world = World()
    busy = Client(world, is_busy=True)
    waiting = asyncio.create_task(world.leaving.all_left(2.0, world.refuse))
    async with asyncio.timeout(20):
        while world.events.count("interrupt") < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [event for event in world.events if event != "interrupt"] == [("refuse", 102.0)]
    busy.is_busy = False
    await waiting


async def test_who_stays_and_who_arrives() -> None:
    world = World()
    staying, arriving = Client(world), [1]
    waiting = asyncio.create_task(
        world.leaving.all_left(60.0, world.refuse, lambda each: each is staying.session, lambda: len(arriving))
    )
    await asyncio.sleep(0.02)
    assert not waiting.done()
    arriving.clear()
    await waiting
    assert world.closed == []
    assert not nobody_stays(session())


async def test_who_arrives_is_waited_for_only_while_commands_are_executed() -> None:
    """A handshake may stall, and its first command would be refused."""
    world = World()
    async with asyncio.timeout(20):
        await world.leaving.all_left(2.0, world.refuse, arriving=lambda: 1)
    assert [event for event in world.events if event != "interrupt"] == [("refuse", 102.0)]


def test_what_is_idle() -> None:
    world = World()
    client = Client(world, 100.0)
    seen = cast("ClientConnection", client)
    assert not is_idle(seen, 100.0 + IDLE_SECONDS - 0.1, IDLE_SECONDS)
    assert is_idle(seen, 100.0 + IDLE_SECONDS, IDLE_SECONDS)
    client.received_bytes = 7  # a part of a command
    assert not is_idle(seen, 200.0, IDLE_SECONDS)
    client.received_bytes, client.is_busy = 0, True
    assert not is_idle(seen, 200.0, IDLE_SECONDS)


def test_patience_leaves_time_for_long_commands() -> None:
    assert patience(10.0) == 3.0
    assert patience(1.0) == 0.5
    assert patience(0.0) == 0.0


async def test_a_refused_command_can_be_sent_again() -> None:
    asking = Asking()
    retryable = {"insert": "c", "documents": [{}], "lsid": {"id": 1}, "txnNumber": 5}
    assert Farewell("the proxy is stopping").holds(asking.exchange(retryable))
    assert asking.client.closed
    (reply,) = asking.replies
    assert (reply["code"], reply["errmsg"]) == (91, "the proxy is stopping")
    assert reply["errorLabels"] == ["RetryableWriteError"]
    asking = Asking()
    Farewell("the proxy is stopping").holds(asking.exchange({"insert": "c", "documents": [{}]}))
    assert "errorLabels" not in asking.replies[0]
