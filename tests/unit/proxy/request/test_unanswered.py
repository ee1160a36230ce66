from __future__ import annotations

import asyncio

import bson
import pytest

from catalog.namespaces import VirtualCollection
from proxy.request.command import Command, parse_command
from proxy.request.session import Session
from proxy.request.times import Times
from proxy.request.unanswered import BURST_SECONDS, LONGEST_PAUSE_SECONDS, SHARE, Unanswered, in_turns
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.sessions import session


class World:
    """Time that passes by sleeping, and commands that take as long as they are told."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.unanswered = Unanswered(lambda: self.seconds, self._sleep)
        self.in_progress: list[object] = []
        self.most: dict[object, int] = {}

    async def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def run(self, owner: object, seconds: float) -> None:
        async with self.unanswered.turn(owner, Times()):
            self.in_progress.append(owner)
            self.most[owner] = max(self.most.get(owner, 0), self.in_progress.count(owner))
            await asyncio.sleep(0)
            self.seconds += seconds
            self.in_progress.remove(owner)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_client_has_one_such_command_at_a_time_whatever_its_connections(world: World) -> None:
    await asyncio.gather(*(world.run(owner, 0.001) for owner in ("a", "b") for _ in range(5)))
    assert world.most == {"a": 1, "b": 1}


async def test_a_few_of_them_wait_for_nothing(world: World) -> None:
    for _ in range(10):
        await world.run("a", BURST_SECONDS / 10)
    assert world.seconds == pytest.approx(100.0 + BURST_SECONDS)


async def test_many_of_them_get_a_share_of_the_time(world: World) -> None:
    for _ in range(1_000):
        await world.run("a", 0.1)
    assert 100.0 / (world.seconds - 100.0) == pytest.approx(SHARE, rel=0.02)


async def test_after_one_that_takes_long_the_pause_is_bounded(world: World) -> None:
    await world.run("a", 500.0)
    since_seconds = world.seconds
    await world.run("a", 0.0)
    assert world.seconds - since_seconds == pytest.approx(LONGEST_PAUSE_SECONDS)


async def test_clients_that_owe_nothing_are_forgotten() -> None:
    unanswered = Unanswered()
    for owner in range(100):
        async with unanswered.turn(owner, Times()):
            await asyncio.sleep(0)
    assert len(unanswered) > 0
    async with asyncio.timeout(20):
        while len(unanswered):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_one_whose_turn_is_cancelled_gives_it_back(world: World) -> None:
    async with world.unanswered.turn("a", Times()):
        waiting = asyncio.ensure_future(world.run("a", 0.0))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await world.run("a", 0.0)


def parsed(name: str, flags: int) -> Command:
    return parse_command(Message.from_bytes(op_msg.build(1, 0, bson.encode({name: "c", "$db": "d"}), (), flags)))


@pytest.mark.parametrize(
    ("name", "flags", "takes_turns"),
    [
        ("drop", op_msg.MORE_TO_COME, True),
        ("create", op_msg.MORE_TO_COME, True),
        ("createIndexes", op_msg.MORE_TO_COME, True),
        ("drop", 0, False),
        ("update", op_msg.MORE_TO_COME, False),
        ("delete", op_msg.MORE_TO_COME, False),
    ],
)
async def test_which_commands_take_turns(name: str, flags: int, takes_turns: bool) -> None:
    running: list[int] = []
    most = 0

    async def translate(_: Session, __: Command, ___: VirtualCollection | None, ____: Times) -> bytes:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.pop()
        return b"reply"

    limited, client, command = in_turns(translate, Unanswered()), session(), parsed(name, flags)
    replies = await asyncio.gather(*(limited(client, command, None, Times()) for _ in range(3)))
    assert replies == [b"reply"] * 3
    assert most == (1 if takes_turns else 3)
