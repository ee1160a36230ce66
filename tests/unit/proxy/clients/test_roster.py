"""Who is connected, and how all others leave."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import cast

from proxy.clients.connection import ClientConnection
from proxy.clients.roster import Roster
from proxy.request.session import Session
from tests.support.sessions import session


class Connection:
    def __init__(self) -> None:
        self.session: Session | None = session()
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


def entered(roster: Roster, number: int) -> list[Connection]:
    connections = [Connection() for _ in range(number)]
    ids = [roster.enter(cast("ClientConnection", each)) for each in connections]
    assert ids == list(range(1, number + 1))
    return connections


async def test_all_but_those_that_stay_leave() -> None:
    roster = Roster()
    first, second, third = entered(roster, 3)
    third.session = None
    roster.abort(lambda each: each is second.session)
    assert [each.aborted for each in (first, second, third)] == [1, 0, 1]


async def test_ids_of_one_of_several_processes() -> None:
    roster = Roster(count(2, 3))
    assert [roster.enter(cast("ClientConnection", Connection())) for _ in range(3)] == [2, 5, 8]


async def test_waiting_ends_when_the_last_one_has_left_or_after_a_while() -> None:
    roster = Roster()
    await roster.changed(0.01)
    connections = entered(roster, 2)
    await roster.changed(0.01)
    waiting = asyncio.create_task(roster.changed(60))
    for each in connections:
        await asyncio.sleep(0)
        assert not waiting.done()
        roster.leave(cast("ClientConnection", each))
    await waiting
    assert (len(roster), list(roster)) == (0, [])
