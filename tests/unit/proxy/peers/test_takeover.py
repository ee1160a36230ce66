"""A process takes over from another one once nothing more of it is executed, and they take turns (W102)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from catalog.errors import CommandError
from proxy.backend.current_op import Activity
from proxy.peers import takeover as under_test
from proxy.peers.peer import Peer
from proxy.peers.quietness import QUIET_LOOKS, QUIET_LOOKS_BEHIND_FENCES, Quiet
from proxy.peers.takeover import TAKEN_OVER, TakeOver

TURN_SECONDS = 0.05


class LinkDouble:
    """An open link."""

    is_open = True


class Bench:
    """The backend with what it is asked; time is that of the event loop."""

    def __init__(self, *, has_fences: bool = True) -> None:
        self.has_fences = has_fences
        self.error: CommandError | None = None
        self.fences: list[tuple[str, float]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while fences are set up."""
        self.met: list[bool] = []
        self.looks = 0
        self.shown = Activity(is_connected=True)
        self.client_seconds = 0.0
        self._read_seconds = 0.0
        """What the clock showed last: at the beginning of a call, what the caller knows."""
        self.take_over = TakeOver("tsproxy one", self, self.now_seconds, lambda: 0.0, lambda: self.client_seconds)

    def now_seconds(self) -> float:
        self._read_seconds = asyncio.get_running_loop().time()
        return self._read_seconds

    async def fence(self, name: str) -> bool:
        begun_seconds = self._read_seconds
        await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        self.fences.append((name, begun_seconds))
        self.meanwhile()
        return self.has_fences

    async def meets_fences(self) -> bool:
        if self.met and self.met.pop(0):
            self.take_over.refused()
            return True
        return False

    async def activity(self, name: str) -> Activity:
        self.looks += 1
        await asyncio.sleep(0.001)
        return self.shown

    async def quiet(self, *peers: Peer) -> list[Quiet]:
        return list(await asyncio.gather(*(self.take_over.quiet(peer, 0.0) for peer in peers)))

    async def number_after(self, peer: Peer) -> int:
        """How many fences there are after another take-over."""
        assert await self.quiet(peer) == [Quiet.QUIET]
        return len(self.fences)


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "TURN_SECONDS", (TURN_SECONDS, TURN_SECONDS))
    monkeypatch.setattr(under_test, "PARTING_SECONDS", 0.0)


def pauses(bench: Bench) -> list[float]:
    return [later - earlier for (_, earlier), (_, later) in pairwise(bench.fences)]


async def test_fences_are_set_up_once_and_hold_while_nothing_happens() -> None:
    bench, two, three = Bench(), Peer("tsproxy two"), Peer("tsproxy three")
    assert await bench.quiet(two, two, three, two) == [Quiet.QUIET] * 4
    assert [name for name, _ in bench.fences] == ["tsproxy two", "tsproxy three"]
    assert await bench.number_after(two) == 2
    assert bench.looks == 2 * QUIET_LOOKS_BEHIND_FENCES


async def test_after_a_refused_write_they_are_set_up_again_in_turn() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    assert await bench.number_after(two) == 1
    await asyncio.sleep(TURN_SECONDS)
    since_seconds = bench.now_seconds()
    with capture_logs() as logs:
        bench.take_over.refused()
        bench.take_over.refused()
    assert [line["event"] for line in logs] == [TAKEN_OVER]
    assert await bench.number_after(two) == 2
    assert bench.fences[-1][1] - since_seconds >= TURN_SECONDS
    assert await bench.number_after(two) == 2


async def test_who_waits_for_its_turn_notices_that_another_process_has_begun_one() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    bench.met = [True, True, False]
    since_seconds = bench.now_seconds()
    assert await bench.number_after(two) == 1
    assert bench.fences[0][1] - since_seconds >= 2 * TURN_SECONDS
    assert await bench.number_after(two) == 1


async def test_nobody_waits_for_a_turn_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "QUIET_SECONDS", 2.5 * TURN_SECONDS)
    bench = Bench()
    bench.met = [True] * 100
    assert await bench.number_after(Peer("tsproxy two")) == 1
    assert bench.met


async def test_each_answer_and_each_lost_link_makes_new_ones_necessary_but_not_without_pauses() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    assert await bench.number_after(two) == 1
    two.answered_seconds = bench.now_seconds()
    assert await bench.number_after(two) == 2
    two.lost_seconds = bench.now_seconds()
    assert await bench.number_after(two) == 3
    bench.take_over.forget_fences()
    assert await bench.number_after(two) == 4
    assert min(pauses(bench)) >= TURN_SECONDS


async def test_what_happens_while_they_are_set_up_makes_them_worthless() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    bench.meanwhile = lambda: setattr(two, "answered_seconds", bench.now_seconds())
    assert await bench.number_after(two) == 1
    bench.meanwhile = bench.take_over.forget_fences
    assert await bench.number_after(two) == 2
    bench.meanwhile = lambda: None
    assert await bench.number_after(two) == 3
    assert await bench.number_after(two) == 3


async def test_those_who_wait_for_their_turn_share_the_next_fences() -> None:
    """Although each of them answers questions about other sessions meanwhile."""
    bench, two = Bench(), Peer("tsproxy two")
    bench.meanwhile = lambda: setattr(two, "answered_seconds", bench.now_seconds() + 1)
    assert await bench.quiet(two, two, two) == [Quiet.QUIET] * 3
    assert len(bench.fences) == 1
    assert await bench.number_after(two) == 2


async def test_who_can_be_asked_again_is_not_taken_over_by_those_who_wait() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    waiting: list[asyncio.Task[list[Quiet]]] = []

    async def comes_later() -> list[Quiet]:
        two.answered_seconds = bench.now_seconds() + 1
        two.link = LinkDouble()  # type: ignore[assignment]
        return await bench.quiet(two)

    bench.meanwhile = lambda: waiting.append(asyncio.create_task(comes_later()))
    assert await bench.quiet(two) == [Quiet.QUIET]
    assert await waiting[0] == [Quiet.NOT_YET]
    assert len(bench.fences) == 1
    bench.meanwhile = lambda: None
    assert await bench.number_after(two) == 2, "nobody else waits: the link may be as silent as before"


async def test_what_was_begun_behind_fences_was_not_executed_elsewhere() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    assert not bench.take_over.rules_out(two, math.inf)
    bench.client_seconds = 5.0
    bench.meanwhile = lambda: setattr(bench, "client_seconds", 7.0)
    assert await bench.number_after(two) == 1
    assert [bench.take_over.rules_out(two, begun_seconds) for begun_seconds in (-math.inf, 6.9, 7.0)] == [
        False,
        False,
        True,
    ]
    bench.client_seconds = 8.0
    bench.take_over.departed(2.0)
    assert [bench.take_over.rules_out(two, begun_seconds) for begun_seconds in (9.9, 10.0)] == [False, True]
    await asyncio.sleep(0.001)
    two.answered_seconds = bench.now_seconds()
    assert not bench.take_over.rules_out(two, 11.0)
    assert await bench.number_after(two) == 2
    assert bench.take_over.rules_out(two, 11.0)
    bench.take_over.refused()
    assert not bench.take_over.rules_out(two, 11.0)


async def test_without_fences_all_is_looked_up() -> None:
    bench, two = Bench(has_fences=False), Peer("tsproxy two")
    assert await bench.quiet(two) == [Quiet.QUIET]
    assert not bench.take_over.rules_out(two, math.inf)


async def test_what_is_executed_is_waited_for_behind_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.peers.quietness.QUIET_SECONDS", 0.1)
    bench, two = Bench(), Peer("tsproxy two")
    bench.shown = Activity(True, frozenset({"1"}))
    assert await bench.quiet(two) == [Quiet.NOT_YET]
    bench.shown = Activity(is_connected=False)
    assert await bench.quiet(two) == [Quiet.ABSENT]
    bench.shown = Activity(is_connected=True)
    assert await bench.quiet(two) == [Quiet.QUIET]
    assert len(bench.fences) == 3, "only the last ones are known to hold"


async def test_fences_that_fail_take_nothing_over() -> None:
    bench, two = Bench(), Peer("tsproxy two")
    bench.error = CommandError(50, "too slow")
    assert await bench.quiet(two) == [Quiet.NOT_YET]
    bench.error = None
    assert await bench.quiet(two) == [Quiet.QUIET]


async def test_nobody_waits_for_a_take_over_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "QUIET_SECONDS", 0.05)
    bench, two = Bench(), Peer("tsproxy two")
    async with two.turn:
        assert await bench.quiet(two, two) == [Quiet.NOT_YET] * 2


async def test_without_fences_each_take_over_looks_for_itself() -> None:
    bench, two = Bench(has_fences=False), Peer("tsproxy two")
    assert await bench.quiet(two) == [Quiet.QUIET]
    assert await bench.quiet(two) == [Quiet.QUIET]
    assert bench.looks == 2 * QUIET_LOOKS
