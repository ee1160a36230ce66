"""Who is there: found at the backend or by their links, given up in time, and gone (W102)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errors import CommandError
from proxy.backend.current_op import MOST_PROXIES, Activity, Proxy
from proxy.peers import membership as under_test
from proxy.peers.frames import UNKNOWN, Answer, Question
from proxy.peers.handshake import Introduction
from proxy.peers.link import LinkLost
from proxy.peers.membership import (
    CONTEST_SECONDS,
    SESSION_LEASE_SECONDS,
    STANDSTILL_SECONDS,
    Membership,
    Reactions,
)
from proxy.peers.places_told import MOST_BETWEEN_PINGS_SECONDS, STEADY_SECONDS, PlacesTold
from proxy.peers.quietness import QUIET_LOOKS
from proxy.peers.takeover import PARTING_SECONDS, TURN_SECONDS

WINDOW_SECONDS = 120.0


class LinkDouble:
    """A link that answers nothing until it is told to."""

    def __init__(self) -> None:
        self.is_open = True
        self.lost = lambda: None
        self.answers = asyncio.Event()
        self.answers.set()
        self.pings = 0

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        if not self.is_open:
            raise LinkLost("closed")
        await self.answers.wait()
        return [UNKNOWN] * len(questions)

    def ping(self, places: int) -> None:
        self.pings += 1

    def close(self) -> None:
        self.is_open = False
        self.lost()


class Bench:
    """A membership with a clock of its own, a scripted backend and scripted links."""

    def __init__(self, *, own_name: str = "tsproxy own", is_local: bool = False) -> None:
        self.now_seconds = 1000.0
        self.found: list[Proxy] = []
        self.blind = False
        self.doing: list[Activity] = []
        self.executed: list[bool] = []
        self.fenced: list[str] = []
        self.cannot_fence = False
        self.has_fences = False
        self.links: list[LinkDouble] = []
        self.reachable = True
        self.connects: list[tuple[str, int, bool, str]] = []
        self.events: list[str] = []
        self.looks_for_idle = 0
        self.members = Membership(
            own_name,
            self,
            self._connect,
            WINDOW_SECONDS,
            lambda: self.now_seconds,
            Reactions(
                lapsed=lambda: self.events.append("lapsed"),
                contested=self._contested,
                stood_still=lambda: self.events.append("stood still"),
            ),
            is_local=is_local,
        )

    def _contested(self, now_seconds: float, taken_before_seconds: float) -> None:
        assert now_seconds == self.now_seconds
        is_all = taken_before_seconds == math.inf
        self.events.append("contested" if is_all else f"contested {now_seconds - taken_before_seconds:.1f}")

    async def proxies(self) -> list[Proxy]:
        if self.blind:
            raise CommandError(13, "not authorized")
        return self.found

    async def end_idle_transactions(self) -> int:
        self.looks_for_idle += 1
        if self.looks_for_idle == 1:
            raise CommandError(13, "not authorized")
        return 1

    async def fence(self, name: str) -> bool:
        if self.cannot_fence:
            raise CommandError(50, "too slow")
        self.fenced.append(name)
        return self.has_fences

    async def meets_fences(self) -> bool:
        return False

    async def executes(self, sessions: Sequence[bytes]) -> bool:
        return self.executed.pop()

    async def activity(self, name: str) -> Activity:
        return self.doing.pop(0) if len(self.doing) > 1 else self.doing[0]

    async def _connect(self, host: str, port: int, has_tls: bool, name: str) -> Any:
        self.connects.append((host, port, has_tls, name))
        if not self.reachable:
            raise LinkLost("refused")
        self.links.append(LinkDouble())
        return self.links[-1]

    def pass_seconds(self, seconds: float) -> None:
        """With the process running."""
        until_seconds = self.now_seconds + seconds
        while self.now_seconds < until_seconds:
            self.now_seconds = min(self.now_seconds + STANDSTILL_SECONDS / 2, until_seconds)
            self.members.runs()


def inbound(name: str = "tsproxy two", first_place: int | None = None) -> Any:
    peer = Introduction(name, 7, first_place=first_place)
    times = {"heard_seconds": 0.0, "places": PlacesTold()}
    return SimpleNamespace(peer=peer, address="10.0.0.2", close=lambda: None, **times)


TWO = Proxy("tsproxy two", "10.0.0.2", "1", 3, 7)


async def test_others_are_found_and_linked() -> None:
    bench = Bench()
    await bench.members.begin()
    assert not bench.members.has_company
    bench.found = [TWO, Proxy("tsproxy old", "10.0.0.3", "0", 3)]
    await bench.members.begin()
    assert bench.members.has_company
    assert bench.connects == [("10.0.0.2", 7, False, "tsproxy two")]
    assert bench.members.links() == (2, 1)
    (two, old) = bench.members.members()
    assert await two.ask([]) == []
    with pytest.raises(LinkLost):
        await old.ask([])  # it does not say where it listens


async def test_one_on_the_same_machine_is_reached_there() -> None:
    bench = Bench()
    bench.found, bench.reachable = [TWO], False
    await bench.members.begin()
    assert [host for host, *_ in bench.connects] == ["10.0.0.2", "127.0.0.1"]
    assert bench.members.links() == (1, 0)


async def test_who_links_is_there_before_the_backend_tells() -> None:
    bench = Bench()
    bench.members.linked(inbound())
    assert bench.events == ["lapsed"]
    assert [peer.name for peer in bench.members.members()] == ["tsproxy two"]
    await bench.members.begin()
    assert bench.connects == [("10.0.0.2", 7, False, "tsproxy two")]
    assert bench.members.has_company


async def test_who_is_gone_is_remembered_while_drivers_retry() -> None:
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    bench.found = []
    await bench.members.look()
    assert bench.members.members()  # the link is there
    bench.links[0].is_open = False
    await bench.members.look()
    assert not bench.members.members()
    assert bench.members.are_lately_gone
    assert bench.members.has_company
    bench.pass_seconds(WINDOW_SECONDS)
    assert not bench.members.has_company


def _id_of(place: int) -> bytes:
    return b"fourSS" + place.to_bytes(3, "big") + bytes(3)


async def test_what_nobody_has_made_who_is_there_is_of_who_is_gone() -> None:
    """Others may be there that this process knows nothing of; then nothing is certain."""
    bench = Bench()
    await bench.members.begin()
    assert bench.members.has_gone(_id_of(5))
    bench.found = [TWO]
    await bench.members.look()
    assert not bench.members.has_gone(_id_of(5)), "it has not said which ids it makes"
    two = inbound(first_place=5)
    bench.members.linked(two)
    assert not bench.members.has_gone(_id_of(4)), "it has not said how many it has made"
    for _ in range(5):
        two.places.pinged(3, bench.now_seconds)
        bench.pass_seconds(STEADY_SECONDS / 4)
    for place in (5, 7):
        assert not bench.members.has_gone(_id_of(place))
    for place in (4, 8):
        assert bench.members.has_gone(_id_of(place))
    bench.pass_seconds(MOST_BETWEEN_PINGS_SECONDS + 0.1)
    assert not bench.members.has_gone(_id_of(4)), "it may have made more since it has told"
    two.places.pinged(3, bench.now_seconds)
    bench.pass_seconds(STEADY_SECONDS)
    two.places.pinged(3, bench.now_seconds)
    assert not bench.members.has_gone(_id_of(4)), "they may have been sent before the gap"
    bench.blind = True
    await bench.members.look()
    assert not bench.members.has_gone(_id_of(4))


async def test_of_too_many_some_are_unknown() -> None:
    bench = Bench()
    bench.found = [Proxy(f"tsproxy {number}", "10.0.0.2", "1", 3, 7) for number in range(MOST_PROXIES)]
    await bench.members.look()
    for each in bench.found:
        bench.members.linked(inbound(each.name, first_place=5))
    assert not bench.members.has_gone(_id_of(4))


async def test_who_has_gone_is_counted_and_so_are_looks() -> None:
    bench = Bench()
    bench.found = [TWO]
    await bench.members.look()
    assert (bench.members.departures, bench.members.looks) == (0, 1)
    assert bench.members.has_looked_since(0)
    assert not bench.members.has_looked_since(1)
    bench.blind = True
    await bench.members.look()
    assert bench.members.looks == 2
    assert not bench.members.has_looked_since(1), "it has seen nothing"
    bench.found, bench.blind = [], False
    await bench.members.look()
    assert bench.members.has_looked_since(2)
    assert bench.members.departures == 1


async def test_a_process_that_was_not_heard_may_have_been_given_up() -> None:
    bench = Bench()
    two = inbound()
    bench.members.linked(two)
    assert not bench.members.is_uncertain()
    bench.pass_seconds(SESSION_LEASE_SECONDS / 2)
    bench.members.heard(two)
    bench.pass_seconds(SESSION_LEASE_SECONDS * 0.9)
    assert not bench.members.is_uncertain()
    bench.pass_seconds(SESSION_LEASE_SECONDS * 0.2)
    bench.events.clear()
    assert bench.members.is_uncertain()
    assert bench.members.is_uncertain()
    assert bench.events == ["lapsed", "contested"]
    bench.members.heard(two)
    assert not bench.members.is_uncertain()
    bench.members.unlinked(two)
    assert bench.events == ["lapsed", "contested"] * 2, "at once, because it may link again before anything is sent"
    assert bench.members.is_uncertain()
    assert bench.events == ["lapsed", "contested"] * 2
    # What is accepted meanwhile may be executed by the other one, too, soon after.
    bench.pass_seconds(CONTEST_SECONDS)
    assert bench.members.is_uncertain()
    assert bench.members.is_uncertain()
    assert bench.events[4:] == [f"contested {CONTEST_SECONDS:.1f}"]


async def test_who_never_links_may_have_given_this_process_up() -> None:
    """It may reach the backend and its clients, but not this process."""
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    assert not bench.members.is_uncertain()
    bench.pass_seconds(SESSION_LEASE_SECONDS + 0.1)
    bench.events.clear()
    assert bench.members.is_uncertain()
    assert bench.events == ["lapsed", "contested"]
    bench.found = []
    bench.links[0].close()
    await bench.members.look()
    assert not bench.members.is_uncertain()


async def test_sidecars_that_cannot_link_are_certain() -> None:
    bench = Bench(is_local=True)
    bench.found = [TWO._replace(is_local=True)]
    bench.reachable = False
    await bench.members.begin()
    bench.pass_seconds(SESSION_LEASE_SECONDS + 0.1)
    assert not bench.members.is_uncertain()


async def test_a_link_that_takes_the_place_of_another_may_hide_a_gap() -> None:
    bench = Bench()
    bench.members.linked(inbound())
    assert bench.events == ["lapsed"]
    bench.members.linked(inbound())
    assert bench.events == ["lapsed", "lapsed", "contested", "lapsed"]
    assert not bench.members.is_uncertain()


async def test_a_standstill_is_noticed_by_whatever_comes_first() -> None:
    for first in ("check", "is_uncertain", "heard"):
        bench = Bench()
        two = inbound()
        bench.members.linked(two)
        bench.events.clear()
        bench.now_seconds += STANDSTILL_SECONDS * 1.1
        getattr(bench.members, first)(*([two] if first == "heard" else []))
        assert bench.members.check() == bench.now_seconds
        assert bench.events[:3] == ["stood still", "lapsed", "contested"]
        assert bench.events.count("stood still") == 1
    bench = Bench()
    bench.now_seconds += 60
    bench.members.check()
    assert bench.events == []  # nobody is there


async def test_who_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "ANSWER_SECONDS", 0.05)
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    bench.links[0].answers.clear()
    (two,) = bench.members.members()
    with pytest.raises(LinkLost):
        await two.ask([])
    assert not bench.links[0].is_open
    assert two.has_failed
    # Nobody waits for it until it is linked again.
    with pytest.raises(LinkLost):
        await two.ask([])
    watching = asyncio.get_running_loop().create_task(bench.members.watch())
    async with asyncio.timeout(20):
        while not two.is_linked:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert await two.ask([]) == []
    # A connection that only ended is opened again for the question.
    bench.links[-1].close()
    assert await two.ask([]) == []
    watching.cancel()


async def test_its_operations_are_waited_for() -> None:
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    works = Activity(True, frozenset({"1"}))
    bench.doing = [works] * 5 + [Activity(is_connected=True)] * 2
    assert await bench.members.ended("tsproxy two")
    assert bench.doing == [Activity(is_connected=True)]
    bench.doing = [Activity(is_connected=False)]
    bench.links[0].is_open = False
    assert await bench.members.quiet(["tsproxy two"])
    assert not bench.members.members()


async def test_what_the_network_holds_of_a_quiet_process_is_fenced_off() -> None:
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    bench.links[0].close()
    bench.now_seconds += SESSION_LEASE_SECONDS + PARTING_SECONDS
    bench.doing = [Activity(is_connected=True)]
    bench.cannot_fence = True
    assert not await bench.members.quiet(["tsproxy two"]), "it may still write"
    bench.cannot_fence, bench.has_fences = False, True
    assert await bench.members.quiet(["tsproxy two"])
    assert bench.fenced == ["tsproxy two"]
    assert await bench.members.quiet(["tsproxy two"])
    assert bench.fenced == ["tsproxy two"], "it has learned nothing"
    bench.now_seconds += 1
    bench.members.answered("tsproxy two")
    bench.now_seconds += 1
    assert await bench.members.quiet(["tsproxy two"])
    assert bench.fenced == ["tsproxy two"] * 2, "it may have executed what it was told about"


async def test_who_was_given_up_asks_about_all_that_is_in_progress_and_takes_nothing_over_before_its_turn() -> None:
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    bench.links[0].close()
    bench.now_seconds += SESSION_LEASE_SECONDS + PARTING_SECONDS
    bench.doing, bench.has_fences = [Activity(is_connected=True)], True
    assert await bench.members.quiet(["tsproxy two"])
    bench.events.clear()
    bench.members.given_up()
    assert bench.events == ["lapsed", "contested"]
    bench.now_seconds += TURN_SECONDS[1]
    assert await bench.members.quiet(["tsproxy two"])
    assert bench.fenced == ["tsproxy two"] * 2


async def test_another_primary_knows_no_fences() -> None:
    bench = Bench()
    bench.members.primary_changed()
    assert bench.events == [], "nobody can have given this process up"
    bench.found = [TWO]
    await bench.members.begin()
    bench.members.linked(inbound())
    bench.links[0].close()
    bench.now_seconds += SESSION_LEASE_SECONDS + PARTING_SECONDS
    bench.doing, bench.has_fences = [Activity(is_connected=True)], True
    assert await bench.members.quiet(["tsproxy two"])
    bench.members.is_uncertain()
    bench.events.clear()
    bench.members.primary_changed()
    assert bench.events == ["lapsed", "contested"]
    bench.now_seconds += TURN_SECONDS[1]
    assert await bench.members.quiet(["tsproxy two"])
    assert bench.fenced == ["tsproxy two"] * 2


async def test_the_commands_of_sessions_are_waited_for_where_the_backend_shows_them() -> None:
    bench = Bench()
    bench.executed = [False, True, True]
    assert await bench.members.over([b"session"])
    assert bench.executed == []
    bench.blind = True
    await bench.members.begin()
    assert await bench.members.over([b"session"])


@pytest.mark.parametrize("own_name", ["tsproxy own", "tsproxy zero"])
async def test_what_a_process_sends_until_it_knows_that_it_was_given_up_counts(own_name: str) -> None:
    bench = Bench(own_name=own_name)
    bench.found = [TWO]
    await bench.members.begin()
    looks = 0

    async def activity(name: str) -> Activity:
        nonlocal looks
        looks += 1
        bench.now_seconds += 0.1
        return Activity(is_connected=True)

    bench.activity = activity  # type: ignore[method-assign]
    assert await bench.members.quiet(["tsproxy two"])
    # It is linked until now. Of both, the one with the larger name looks rows up later.
    least_seconds = SESSION_LEASE_SECONDS + (PARTING_SECONDS if own_name > "tsproxy two" else 0.0)
    assert least_seconds / 0.1 <= looks < least_seconds / 0.1 + QUIET_LOOKS + 1
    bench.links[0].close()
    bench.now_seconds += SESSION_LEASE_SECONDS + PARTING_SECONDS
    looks = 0
    assert await bench.members.quiet(["tsproxy two"])
    assert looks == QUIET_LOOKS


async def test_without_the_privilege_the_process_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.blind = True
    await bench.members.begin()
    assert bench.members.why_blind == "not authorized"
    bench.blind = False
    await bench.members.look()
    assert bench.members.why_blind == ""


async def test_the_others_are_shown_that_this_process_is_there() -> None:
    bench = Bench()
    bench.found = [TWO]
    await bench.members.begin()
    beating = asyncio.get_running_loop().create_task(bench.members.beat())
    async with asyncio.timeout(20):
        while not bench.links[0].pings:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    beating.cancel()


@pytest.mark.parametrize(("own", "other", "counts"), [(True, True, False), (True, False, True), (False, True, True)])
async def test_sidecars_of_different_machines_have_no_client_in_common(own: bool, other: bool, counts: bool) -> None:
    bench = Bench(is_local=own)
    bench.found, bench.reachable = [TWO._replace(is_local=other)], False
    await bench.members.begin()
    assert bench.members.has_company is counts
    bench.found = []
    await bench.members.look()
    assert bench.members.are_lately_gone is counts
    # On the same machine, they reach one another.
    bench.found, bench.reachable = [TWO._replace(name="tsproxy three", is_local=other)], True
    await bench.members.begin()
    assert bench.members.has_company


async def test_each_look_ends_transactions_that_killed_processes_have_left() -> None:
    """Also after one that failed: others may be there that cannot be known at the start."""
    bench = Bench()
    await bench.members.look()
    assert not bench.members.why_blind
    await bench.members.look()
    assert bench.looks_for_idle == 2
