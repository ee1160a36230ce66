"""``pause``, ``resume`` and ``drain`` as an administrator sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from catalog.errors import BackendUnavailable, CommandError
from proxy.admin.pause import BackendGate, Pause
from proxy.admin.traffic import Traffic
from proxy.observe.tasks import TaskSet
from proxy.request.session import Session
from tests.support.admin_calls import Asking, FakeConnection


class World:
    def __init__(self, grace_seconds: float = 0.05) -> None:
        self.listed: list[FakeConnection] = []
        self.installed: list[Pause | None] = []
        self.disconnected = self.aborted = 0
        self.uncommitted = 0
        self.answers = True
        self.answered = asyncio.Event()
        self.answered.set()
        tasks = TaskSet(lambda error: None)
        self.pause = Pause(BackendGate(self.probe, tasks), tasks)
        self.traffic = Traffic(self.pause, self, lambda: (self.uncommitted, 0), self.probe, lambda: grace_seconds)

    async def probe(self) -> None:
        await self.answered.wait()
        if not self.answers:
            raise BackendUnavailable("down")

    def connections(self) -> list[FakeConnection]:
        return self.listed

    def hold(self, pause: Pause | None) -> None:
        self.installed.append(pause)

    def disconnect(self, keep: Callable[[Session], bool], grace_seconds: float, refuse: Callable[[], None]) -> None:
        self.disconnected += 1
        refuse()

    def abort(self, keep: Callable[[Session], bool]) -> None:
        self.aborted += 1

    async def ask(self, name: str, **fields: Any) -> dict[str, Any]:
        return dict(await self.traffic.actions[name](Asking().call(name, **fields)))


def running(document: dict[str, Any]) -> FakeConnection:
    asking = Asking()
    return FakeConnection(asking, asking.exchange(document))


async def test_pause_waits_until_nothing_runs() -> None:
    world = World()
    world.listed = [
        running({"find": "c"}),
        running({"hello": 1}),
        running({"tsproxy": "pause"}),
        FakeConnection(Asking()),
    ]
    world.uncommitted = 3
    pausing = asyncio.create_task(world.ask("pause", limitSeconds=7))
    await asyncio.sleep(0.05)
    assert (pausing.done(), world.installed) == (False, [world.pause])
    world.listed.clear()
    await asyncio.sleep(0.05)
    assert not pausing.done()
    world.uncommitted = 0
    reply = await pausing
    assert (reply["state"], reply["limitSeconds"], reply["running"], reply["uncommitted"]) == ("paused", 7, 0, 0)


async def test_waiting_is_limited_and_what_is_left_is_told() -> None:
    world = World()
    world.listed = [running({"find": "c"})]
    reply = await world.ask("pause", waitSeconds=0.05)
    assert (reply["running"], reply["held"]) == (1, 0)
    held = running({"insert": "c"})
    assert held.exchange is not None
    world.pause.holds(held.exchange)
    world.listed.append(held)
    assert (world.traffic.status()["running"], world.traffic.status()["held"]) == (1, 1)


async def test_resume_asks_the_backend_first() -> None:
    world = World()
    await world.ask("pause")
    world.answers = False
    with pytest.raises(CommandError, match="force: true"):
        await world.ask("resume")
    assert world.traffic.status()["state"] == "paused"
    assert (await world.ask("resume", force=True))["was"] == "paused"
    assert world.installed == [world.pause, None]
    assert await world.ask("resume") == {"was": "serving", "started": 0}


async def test_a_pause_that_comes_while_resume_waits_for_the_backend_is_the_later_one() -> None:
    world = World()
    await world.ask("pause")
    world.answered.clear()
    resuming = asyncio.create_task(world.ask("resume"))
    await asyncio.sleep(0)
    await world.ask("pause")
    world.answered.set()
    with pytest.raises(CommandError, match="paused again") as raised:
        await resuming
    assert raised.value.code == 117
    assert world.traffic.status()["state"] == "paused"


async def test_drain_disconnects_at_once_what_it_can_and_the_rest_after_the_grace_period() -> None:
    world = World()
    world.listed = [running({"find": "c"})]
    reply = await world.ask("drain", waitSeconds=0)
    assert (reply["state"], reply["running"], world.disconnected, world.aborted) == ("draining", 1, 1, 0)
    assert world.traffic.why_not_ready == "the proxy is draining"
    async with asyncio.timeout(20):
        while not world.aborted:  # noqa: ASYNC110 - only the world knows
            await asyncio.sleep(0.01)
    await world.ask("resume")
    assert world.traffic.why_not_ready == ""


async def test_resumed_in_time_nobody_is_disconnected_later() -> None:
    world = World()
    await world.ask("drain", waitSeconds=0)
    await world.ask("resume")
    await asyncio.sleep(0.1)
    assert world.aborted == 0


@pytest.mark.parametrize(("first", "second"), [("pause", "drain"), ("drain", "pause")])
async def test_pause_and_drain_exclude_each_other(first: str, second: str) -> None:
    world = World()
    await world.ask(first)
    with pytest.raises(CommandError) as raised:
        await world.ask(second)
    assert raised.value.code == 117
    assert (await world.ask(first))["running"] == 0
