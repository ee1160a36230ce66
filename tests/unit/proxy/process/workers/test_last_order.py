"""What workers are told that have not answered, or have answered otherwise.

What they do then is in tests/clients/test_pauses_of_workers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, cast

import pytest

from catalog.errors import CommandError
from proxy.observe.tasks import TaskSet
from proxy.process.workers.crew import Crew
from proxy.process.workers.fan_out import NotReached, Reply
from proxy.process.workers.last_order import LastOrder
from proxy.process.workers.member import Member

WHO = {"peer": "here"}
HANGS = NotReached(1, 4711, "no answer")
REFUSED = CommandError(117, "not now")
DONE = {"state": "done"}


class FakeMember:
    """Remembers what it was told."""

    is_leaving = False

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    async def ask(self, question: str, fields: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        self.told.append((fields["name"], bool(fields["fields"].get("force"))))
        return {}


class FakeCrew:
    """Two workers with the next answers of each; ``None``: it is starting."""

    def __init__(self) -> None:
        self.first, self.second = self.members = FakeMember(), FakeMember()
        self.answers: list[Reply | None] = []
        self.meanwhile = asyncio.Event()
        self.meanwhile.set()

    @property
    def everybody(self) -> Iterator[Member]:
        return iter(cast("list[Member]", list(self.members)))

    async def replies(self, question: str, fields: Mapping[str, Any], seconds: float) -> dict[Member, Reply]:
        found = zip(self.everybody, self.answers, strict=True)
        await self.meanwhile.wait()
        return {member: reply for member, reply in found if reply is not None}


class Bench:
    def __init__(self) -> None:
        self.crew = FakeCrew()
        self.tasks = TaskSet(lambda error: None)
        self.last_order = LastOrder(lambda: cast("Crew", self.crew), self.tasks)

    async def execute(self, name: str, *answers: Reply | None) -> dict[str, Any]:
        self.crew.answers = list(answers)
        try:
            return await self.last_order.execute({"name": name, "fields": {}, "administrator": WHO}, 1.0)
        finally:
            for _ in range(3):
                await asyncio.sleep(0)

    @property
    def held(self) -> str | None:
        return None if self.last_order.held is None else self.last_order.held["name"]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.tasks.close()


async def test_all_answer(bench: Bench) -> None:
    assert await bench.execute("pause", DONE, DONE) == DONE
    assert bench.held == "pause"
    assert await bench.execute("resume", DONE, DONE) == DONE
    assert bench.held is None
    assert bench.crew.first.told == bench.crew.second.told == []


@pytest.mark.parametrize("answer", [HANGS, None])
async def test_one_that_does_not_answer_is_told_what_was_done(bench: Bench, answer: Reply | None) -> None:
    reply = await bench.execute("pause", DONE, answer)
    assert ("notReached" in reply) == (answer is HANGS)
    assert bench.crew.second.told == [("pause", False)]
    await bench.execute("resume", DONE, answer)
    assert bench.held is None
    assert bench.crew.second.told == [("pause", False), ("resume", True)]
    assert bench.crew.first.told == []


async def test_one_whose_backend_does_not_answer_resumes_with_the_others(bench: Bench) -> None:
    await bench.execute("pause", DONE, DONE)
    assert await bench.execute("resume", DONE, REFUSED) == DONE
    assert (bench.held, bench.crew.second.told) == (None, [("resume", True)])


async def test_a_resume_that_all_refuse_is_none_for_one_that_goes_on_later(bench: Bench) -> None:
    await bench.execute("pause", DONE, DONE)
    with pytest.raises(CommandError, match="not now"):
        await bench.execute("resume", REFUSED, None)
    assert (bench.held, bench.crew.first.told, bench.crew.second.told) == ("pause", [], [("pause", False)])


async def test_a_pause_that_is_refused_leaves_the_state_as_it_was(bench: Bench) -> None:
    """Also in a worker that has begun with it."""
    await bench.execute("drain", DONE, DONE)
    with pytest.raises(CommandError, match="not now"):
        await bench.execute("pause", REFUSED, None)
    assert (bench.held, bench.crew.first.told) == ("drain", [])
    assert bench.crew.second.told == [("resume", True), ("drain", False)]


async def test_a_pause_can_be_waited_for(bench: Bench) -> None:
    await bench.last_order.until_resumed()
    await bench.execute("pause", DONE, DONE)
    waiting = asyncio.create_task(bench.last_order.until_resumed())
    with pytest.raises(CommandError, match="not now"):
        await bench.execute("resume", REFUSED, REFUSED)
    assert not waiting.done()
    await bench.execute("resume", DONE, DONE)
    await waiting
    await bench.execute("drain", DONE, DONE)
    await bench.last_order.until_resumed()


async def test_the_command_that_was_asked_for_last_decides(bench: Bench) -> None:
    bench.crew.meanwhile.clear()
    pausing = asyncio.ensure_future(bench.execute("pause", DONE, HANGS))
    await asyncio.sleep(0)
    bench.crew.meanwhile.set()
    await bench.execute("resume", DONE, HANGS)
    await pausing
    assert (bench.held, bench.crew.second.told) == (None, [("resume", True)])
