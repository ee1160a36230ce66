"""Who is connected, and how all others leave."""

from __future__ import annotations

import asyncio
from typing import cast

from proxy.clients.connection import ClientConnection
from proxy.clients.roster import Roster
from proxy.request.session import Session
from tests.support.sessions import session


class Connection:
    def __init__(self) -> None:
        self.session: Session | None = session()
        self.drained = self.aborted = 0

    def drain(self) -> None:
        self.drained += 1

    def abort(self) -> None:
        self.aborted += 1


def entered(roster: Roster, count: int) -> list[Connection]:
    connections = [Connection() for _ in range(count)]
    ids = [roster.enter(cast("ClientConnection", each)) for each in connections]
    assert ids == list(range(1, count + 1))
    return connections


async def test_all_but_those_that_stay_leave() -> None:
    roster = Roster()
    first, second, third = entered(roster, 3)
    third.session = None
    roster.drain(lambda each: each is first.session)
    roster.abort(lambda each: each is second.session)
    assert [each.drained for each in (first, second, third)] == [0, 1, 1]
    assert [each.aborted for each in (first, second, third)] == [1, 0, 1]
    roster.drain()
    assert first.drained == 1


async def test_the_end_is_when_the_last_one_has_left() -> None:
    roster = Roster()
    await roster.all_left()
    connections = entered(roster, 2)
    waiting = asyncio.create_task(roster.all_left())
    for each in connections:
        await asyncio.sleep(0)
        assert not waiting.done()
        roster.leave(cast("ClientConnection", each))
    await waiting
    assert (len(roster), list(roster)) == (0, [])
