"""Readers of all processes wait while one of them joins parts: leases, collisions, silence and lost links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.observe.peer_numbers import PeerNumbers
from proxy.peers import holding as under_test
from proxy.peers.handshake import Introduction
from proxy.peers.holding import HeldHere, Holding
from proxy.peers.link import LinkLost
from proxy.readers.register import ReaderRegister


class Inbound:
    """The answering side of a link."""

    def __init__(self, name: str) -> None:
        self.peer = Introduction(name, 1)
        self.answers: dict[int, asyncio.Future[bool]] = {}

    def held(self, number: int, *, is_granted: bool) -> None:
        answer = self.answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(is_granted)


class Process:
    """One of several, in this one."""

    def __init__(self, name: str, *, keeps_readers: bool = True) -> None:
        self.name = name
        self.now_seconds = 1000.0
        self.register = ReaderRegister(lambda _: False)
        self.numbers = PeerNumbers()
        self.others: list[Way] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.quieted: list[str] = []
        self.is_quiet = asyncio.Event()
        self.is_quiet.set()
        self.holding = Holding(name, lambda: self.others, self.numbers, self._now, self.spawn)
        self.held_here = HeldHere(
            self.register if keeps_readers else None,
            self.holding,
            self.numbers,
            self._quiet,
            self._now,
            self.spawn,
        )

    def _now(self) -> float:
        return self.now_seconds + asyncio.get_running_loop().time()

    async def _quiet(self, name: str) -> None:
        self.quieted.append(name)
        await self.is_quiet.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def joins(self, held: Callable[[], object] = lambda: None) -> set[str] | None:
        """As a join does: first its own readers, then those of the others."""
        async with self.register.kept_out_here("d") as alone:
            assert alone
            async with self.holding.held("d") as names:
                held()
                return None if names is None else set(names)


class Way:
    """The link from one process to another."""

    def __init__(self, one: Process, other: Process) -> None:
        self.name = other.name
        self.is_silent = False
        self.given_up = 0
        self.inbound = Inbound(one.name)
        self._other = other
        one.others.append(self)

    async def hold(self, number: int, database: str) -> int:
        answer = self.inbound.answers[number] = asyncio.get_running_loop().create_future()
        if not self.is_silent:
            self._other.held_here.ask(self.inbound, number, database)  # type: ignore[arg-type]
        return await answer

    def release(self, number: int) -> None:
        if not self.is_silent:
            self._other.held_here.release(self.inbound, number)  # type: ignore[arg-type]

    def give_up(self) -> None:
        self.given_up += 1

    def end(self) -> None:
        self._other.held_here.unlinked(self.inbound)  # type: ignore[arg-type]
        for answer in self.inbound.answers.values():
            if not answer.done():
                answer.set_exception(LinkLost("cut"))


@pytest.fixture
def three() -> list[Process]:
    found = [Process("a"), Process("b"), Process("c")]
    for one in found:
        for other in found:
            if one is not other:
                Way(one, other)
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("HOLD_LEASE_SECONDS", 1.0), ("VALID_SECONDS", 0.8), ("RENEW_SECONDS", 0.1)):
        monkeypatch.setattr(under_test, name, seconds)
    monkeypatch.setattr(under_test, "PATIENCE_SECONDS", 0.2)


def waits(process: Process) -> bool:
    return process.register.active.keeps_out("d")


async def settled(*processes: Process) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.gather(*(task for each in processes for task in list(each.tasks)))


async def test_readers_of_all_processes_wait_until_the_end(three: list[Process]) -> None:
    one, two, three_ = three
    seen: list[tuple[bool, ...]] = []
    assert await one.joins(lambda: seen.append((waits(two), waits(three_), one.holding.lasts))) == {"b", "c"}
    assert seen == [(True, True, True)]
    await settled(*three)
    assert not waits(two)
    assert not waits(three_)
    assert (one.numbers.holds, one.numbers.holds_refused, two.numbers.held_for_others) == (1, 0, 1)
    assert one.holding.names() == {"b", "c"}
    assert await Process("alone").joins() == set()


async def test_joins_of_others_are_counted_for_those_who_read_from_other_members(three: list[Process]) -> None:
    one, two, three_ = three
    three_.register.active.enter("other")
    assert await one.joins() is not None
    await settled(*three)
    assert [each.register.joins("d") for each in three] == [1, 1, 1]
    two.register.active.enter("d")
    assert await one.joins() is None
    await settled(*three)
    assert two.register.joins("d") == 1, "it was refused there"


async def test_one_that_has_readers_refuses_for_all(three: list[Process]) -> None:
    one, two, three_ = three
    three_.register.active.enter("d")
    assert await one.joins() is None
    await settled(*three)
    assert not waits(two)
    three_.register.active.leave("d")
    three_.register.active.enter("other")
    three_.register.close()  # no pause because of the reader that stayed
    assert await one.joins() == {"b", "c"}
    assert (one.numbers.holds, one.numbers.holds_refused) == (2, 1)


async def test_a_process_without_a_register_agrees_to_nothing() -> None:
    one, two = Process("a"), Process("b", keeps_readers=False)
    Way(one, two)
    assert await one.joins() is None


async def test_of_two_that_ask_at_the_same_time_the_first_name_goes_first(three: list[Process]) -> None:
    one, two, three_ = three
    order: list[str] = []
    found = await asyncio.gather(
        three_.joins(lambda: order.append("c")),
        two.joins(lambda: order.append("b")),
        one.joins(lambda: order.append("a")),
    )
    assert found[2] == {"b", "c"}
    assert found[0] is None
    await settled(*three)
    assert await three_.joins() == {"a", "b"}, "nobody is taken for silent"
    assert await two.joins() == {"a", "c"}


@pytest.mark.usefixtures("short")
async def test_a_hold_is_renewed_while_it_is_needed() -> None:
    one, two = Process("a"), Process("b")
    Way(one, two)
    async with one.register.kept_out_here("d"), one.holding.held("d") as names:
        assert names == {"b"}
        await asyncio.sleep(1.5)
        assert one.holding.lasts
        assert waits(two)
    await settled(one, two)
    assert two.quieted == []


@pytest.mark.usefixtures("short")
async def test_a_hold_is_not_renewed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LONGEST_SECONDS", 0.2)
    one, two = Process("a"), Process("b")
    Way(one, two)
    async with one.holding.held("d"):
        await asyncio.sleep(2.0)
        assert not one.holding.lasts
        assert not waits(two)
    await settled(one, two)


@pytest.mark.usefixtures("short")
async def test_a_process_that_is_not_heard_any_more_is_waited_for_at_the_backend() -> None:
    one, two = Process("a"), Process("b")
    way = Way(one, two)
    two.is_quiet.clear()
    async with one.holding.held("d") as names:
        assert names == {"b"}
        way.is_silent = True
        await asyncio.sleep(1.5)
        assert not one.holding.lasts, "it must not begin another join"
        assert waits(two), "the last one may be under way"
        assert two.quieted == ["a"]
        two.is_quiet.set()
        await settled(two)
        assert not waits(two)
    way.is_silent = False
    way.release(1)
    assert await one.joins() == {"b"}


async def test_one_whose_link_ends_is_waited_for_at_the_backend() -> None:
    one, two = Process("a"), Process("b")
    way = Way(one, two)
    two.is_quiet.clear()
    async with one.holding.held("d") as names:
        assert names == {"b"}
        way.end()
        await asyncio.sleep(0.01)
        assert waits(two)
        two.is_quiet.set()
        await settled(two)
        assert not waits(two)
    assert two.quieted == ["a"]
    way.end()


@pytest.mark.usefixtures("short")
async def test_a_silent_process_is_not_waited_for_again_and_again() -> None:
    one, two = Process("a"), Process("b")
    way = Way(one, two)
    way.is_silent = True
    for silences in range(1, 4):
        assert await one.joins() is None
        assert await one.joins() is None, "not asked for a while"
        assert one.numbers.holds == silences
        one.now_seconds += 2.0**silences * under_test.PAUSES_SECONDS[0]
        assert way.given_up == (silences == 3)
    way.is_silent = False
    assert await one.joins() == {"b"}


async def test_a_lost_link_is_a_refusal() -> None:
    one, two = Process("a"), Process("b")
    way = Way(one, two)
    way.is_silent = True
    joining = asyncio.ensure_future(one.joins())
    await asyncio.sleep(0.01)
    way.end()
    assert await joining is None


async def test_one_hold_at_a_time_for_each_process() -> None:
    two, inbound = Process("b"), Inbound("a")
    answers = {number: asyncio.get_running_loop().create_future() for number in (1, 2, 3)}
    inbound.answers.update(answers)
    two.held_here.ask(inbound, 1, "d")  # type: ignore[arg-type]
    assert await answers[1]
    two.held_here.ask(inbound, 2, "other")  # type: ignore[arg-type]
    assert not await answers[2]
    two.held_here.release(inbound, 2)  # type: ignore[arg-type]
    assert waits(two)
    two.held_here.release(inbound, 1)  # type: ignore[arg-type]
    two.held_here.ask(inbound, 3, "d")  # type: ignore[arg-type]
    assert await answers[3], "as soon as the first one is over"
    two.held_here.release(inbound, 3)  # type: ignore[arg-type]
    await settled(two)
    assert not waits(two)
