"""What is held, what starts, and who stays; tests/clients/test_pause.py does it under load."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from catalog.errors import BackendUnavailable
from proxy.admin.administrator import Administrator
from proxy.admin.pause import AdminOnly, BackendGate, Pause, State
from proxy.observe.tasks import TaskSet
from proxy.request.command import Command
from tests.support.admin_calls import Asking
from tests.support.raw_wire import query

PROGRAM = {"driver": {"name": "d", "version": "1"}, "os": {"type": "x"}}


class World:
    def __init__(self) -> None:
        self.tasks = TaskSet(lambda error: None)
        self.answers = True
        self.asked = 0
        self.gate = BackendGate(self.probe, self.tasks)
        self.pause = Pause(self.gate, self.tasks)

    async def probe(self) -> None:
        self.asked += 1
        if not self.answers:
            raise BackendUnavailable("down")

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def greeted(asking: Asking, program: dict[str, Any] | None = None) -> Asking:
    """The session of a client after its first greeting."""
    command: Command = asking.exchange({"hello": 1, "client": program or PROGRAM}).parsed()
    asking.session.has_client_metadata = True
    asking.session.upstream.hello = b"before" + command.raw(b"client") + b"after"
    return asking


async def test_commands_are_held_until_resume() -> None:
    world, asking = World(), Asking()
    world.pause.pause(60.0)
    insert = asking.exchange({"insert": "c"})
    assert world.pause.holds(insert)
    assert not world.pause.holds(asking.exchange({"tsproxy": "status"}))
    assert not world.pause.holds(asking.exchange({"hello": 1}))
    assert not world.pause.holds(asking.exchange(query({"isMaster": 1})))
    assert asking.started.exchanges == []
    world.pause.resume()
    await world.settle()
    assert asking.started.exchanges == [insert]
    assert world.pause.is_serving


async def test_logins_start_when_the_backend_answers() -> None:
    world, asking = World(), Asking()
    world.pause.pause(60.0)
    assert world.pause.holds(asking.exchange({"saslStart": 1}))
    await world.settle()
    assert len(asking.started.exchanges) == 1
    world.answers = False
    assert world.pause.holds(asking.exchange({"saslStart": 1}))
    await world.settle()
    assert (len(asking.started.exchanges), world.asked) == (1, 2)
    world.answers = True
    async with asyncio.timeout(20):
        while len(asking.started.exchanges) < 2:  # noqa: ASYNC110 - only the gate knows
            await asyncio.sleep(0.01)


async def test_what_programs_send_for_themselves_does_not_wait_for_the_backend() -> None:
    world, asking = World(), Asking()
    world.answers = False
    world.pause.pause(60.0)
    assert world.pause.holds(asking.exchange({"buildInfo": 1}))
    await world.settle()
    assert [reply["code"] for reply in asking.replies] == [6]
    world.answers = True
    assert world.pause.holds(asking.exchange({"buildInfo": 1}))
    await world.settle()
    assert len(asking.started.exchanges) == 1


def late() -> Asking:
    """A client that connects when the proxy drains."""
    asking = Asking()
    asking.session.came_at_seconds = math.inf
    return asking


async def test_draining_turns_everybody_away_but_the_administrator() -> None:
    world, administrator, other = (
        World(),
        greeted(Asking()),
        greeted(Asking(), {**PROGRAM, "application": {"name": "x"}}),
    )
    world.pause.drain(Administrator.of(administrator.session))
    assert world.pause.state is State.DRAINING
    assert not world.pause.holds(other.exchange({"insert": "c"}))  # it has not had the time to leave
    world.pause.refuse()
    assert not world.pause.holds(administrator.exchange({"tsproxy": "status"}))
    assert world.pause.holds(administrator.exchange({"insert": "c"}))
    assert [(reply["code"], "draining" in reply["errmsg"]) for reply in administrator.replies] == [(91, True)]
    assert world.pause.holds(other.exchange({"find": "c"}))
    assert (other.client.closed, [reply["code"] for reply in other.replies]) == (False, [91])
    newcomer = greeted(late(), {**PROGRAM, "application": {"name": "x"}})
    assert world.pause.holds(newcomer.exchange({"find": "c"}))
    assert (newcomer.client.closed, newcomer.replies) == (True, [])
    world.pause.resume()
    assert world.pause.is_serving


async def test_further_connections_of_the_administrators_program_stay() -> None:
    world, administrator = World(), greeted(Asking())
    world.pause.drain(Administrator.of(administrator.session))
    assert world.pause.is_administrators(greeted(Asking()).session)
    again, stranger, far = late(), late(), late()
    far.session.peer = "203.0.113.1"
    assert not world.pause.holds(again.exchange({"hello": 1, "client": PROGRAM}))
    assert not world.pause.holds(Asking().exchange(query({"isMaster": 1, "client": PROGRAM})))
    other = {**PROGRAM, "application": {"name": "x"}}
    assert world.pause.holds(stranger.exchange({"hello": 1, "client": other}))
    assert world.pause.holds(far.exchange({"hello": 1, "client": PROGRAM}))
    assert (again.client.closed, stranger.client.closed, far.client.closed) == (False, True, True)


async def test_of_an_administrator_with_a_listener_of_his_own_only_that_stays() -> None:
    world, administrator, same = World(), greeted(Asking()), greeted(Asking())
    administrator.session.is_for_admin = True
    world.pause.drain(Administrator.of(administrator.session))
    assert world.pause.is_administrators(administrator.session)
    assert not world.pause.is_administrators(same.session)
    assert world.pause.holds(late().exchange({"hello": 1, "client": PROGRAM}))


async def test_one_without_metadata_stays_alone() -> None:
    world, administrator = World(), Asking()
    world.pause.drain(Administrator.of(administrator.session))
    assert world.pause.is_administrators(administrator.session)
    assert not world.pause.is_administrators(Asking().session)


@pytest.mark.parametrize("command", [{"find": "c"}, {"ping": 1}, {"shutdown": 1}], ids=str)
async def test_the_listener_for_admin_commands_takes_nothing_else(command: dict[str, Any]) -> None:
    world, asking = World(), Asking()
    only = AdminOnly(world.gate)
    assert only.holds(asking.exchange(command))
    assert [reply["code"] for reply in asking.replies] == [13]
    assert not only.holds(asking.exchange({"tsproxy": "status"}))
    assert not only.holds(asking.exchange({"hello": 1}))
    assert only.holds(asking.exchange({"saslStart": 1}))
    await world.settle()
    assert len(asking.started.exchanges) == 1
