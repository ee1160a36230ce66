"""Links over real sockets: who may link, what is asked and answered, and what ends a link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from catalog.background.absorbing import Order
from catalog.buckets.resting import Given, Rested
from catalog.identity import NOBODY
from catalog.namespaces import Namespace
from proxy.peers.change import Change
from proxy.peers.frames import UNKNOWN, Answer, Kind, Question, frame_bytes
from proxy.peers.handshake import Introduction, greeting, key_of, nonce
from proxy.peers.link import Inbound, Link, LinkLost
from proxy.peers.places_told import PlacesTold
from tests.support.eventually import eventually

KEY = key_of(b"secret")
ONE, TWO = Introduction("tsproxy one", 1), Introduction("tsproxy two", 2)
QUESTIONS = [Question((b"session", NOBODY), 7), Question((b"another", NOBODY), 8)]


class Host:
    """Answers what it is told to answer."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.answers: list[Answer] = [UNKNOWN, UNKNOWN]
        self.inbound: list[Inbound] = []
        self.grants: bool | None = True
        """``None``: it does not answer."""

    def opened(self, inbound: Inbound) -> None:
        self.inbound.append(inbound)

    def closed(self, inbound: Inbound) -> None:
        self.inbound.remove(inbound)

    def linked(self, inbound: Inbound) -> None:
        assert inbound.peer is not None
        self.events.append(f"linked {inbound.peer.name} {inbound.peer.port}")

    def heard(self, inbound: Inbound) -> None:
        self.events.append("heard")

    def unlinked(self, inbound: Inbound) -> None:
        self.events.append("unlinked")

    def answer(self, name: str, questions: Sequence[Question]) -> list[Answer]:
        self.events.append(f"{name} asks {[each.number for each in questions]}")
        return self.answers

    def hold(self, inbound: Inbound, number: int, database: str) -> None:
        self.events.append(f"hold {number} {database}")
        if self.grants is not None:
            inbound.held(number, is_granted=self.grants)

    def release(self, inbound: Inbound, number: int) -> None:
        self.events.append(f"release {number}")

    def rested(self, name: str, rested: Sequence[Rested]) -> None:
        self.events.append(f"{name} tells of {len(rested)}")

    def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        return [Given(each, 7) for each in ids[1:]]

    def absorb(self, orders: Sequence[Order]) -> None:
        self.events.append(f"absorb {len(orders)}")

    def changed(self, change: Change) -> None:
        self.events.append(f"changed {change.namespace}")


class PlacesSeen(PlacesTold):
    """Remembers what pings tell."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def pinged(self, places: int, now_seconds: float) -> None:
        self.seen.append(places)


@asynccontextmanager
async def listening(host: Host, key: bytes = KEY) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(partial(Inbound, TWO, key, host), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in host.inbound:
            each.close()


async def link_to(port: int, *, key: bytes = KEY, wanted: str = TWO.name, own: Introduction = ONE) -> Link:
    _, link = await asyncio.get_running_loop().create_connection(partial(Link, own, key, wanted), "127.0.0.1", port)
    await link.introduce()
    return link


async def test_both_know_who_the_other_is_and_one_asks() -> None:
    host = Host()
    async with listening(host) as port:
        link = await link_to(port)
        assert link.is_open
        assert link.peer == TWO
        host.answers = [UNKNOWN, UNKNOWN]
        assert await link.ask(QUESTIONS) == host.answers
        link.ping(70_000)
        await eventually(lambda: host.events.count("heard") == 2)
        assert host.events == ["linked tsproxy one 1", "heard", "tsproxy one asks [7, 8]", "heard"]
        (inbound,) = host.inbound
        inbound.places = places = PlacesSeen()
        link.ping(70_001)
        await eventually(lambda: places.seen == [70_001])
        link.close()
        await eventually(lambda: host.events[-1] == "unlinked")
        assert not link.is_open
        with pytest.raises(LinkLost):
            await link.ask(QUESTIONS)


async def test_changes_are_told_and_noted() -> None:
    host = Host()
    async with listening(host) as port:
        link = await link_to(port)
        first = link.changed(Change(Namespace("db", "x")), wants_answer=True)
        assert link.changed(Change(Namespace("db", "y")), wants_answer=False) is None
        second = link.changed(Change(Namespace("db", "")), wants_answer=True)
        assert first is not None
        assert second is not None
        await asyncio.gather(first, second)
        assert [event for event in host.events if event.startswith("changed")] == [
            "changed db.x",
            "changed db.y",
            "changed db.",
        ]
        host.changed = lambda change: link.close()  # type: ignore[method-assign]
        lost = link.changed(Change(Namespace("db", "x")), wants_answer=True)
        assert lost is not None
        with pytest.raises(LinkLost):
            await lost


async def test_a_link_whose_other_side_reads_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that nobody waits for must not fill the memory."""
    host = Host()
    async with listening(host) as port:
        link = await link_to(port)
        change = Change(Namespace("db", "x"))
        link.changed(change, wants_answer=False)
        assert link.is_open
        monkeypatch.setattr(Link, "is_unread", True)
        link.changed(change, wants_answer=False)
        assert not link.is_open


async def test_buckets_that_rest_are_told_of_given_up_and_absorbed() -> None:
    host = Host()
    async with listening(host) as port:
        link = await link_to(port)
        link.rested([Rested(bytes(16), bytes(16), bytes(12), 1, 2)] * 2)
        ids = [bytes([number]) * 12 for number in range(3)]
        first, second = await asyncio.gather(link.give_up(ids), link.give_up(ids[:1]))
        assert (first, second) == ([Given(each, 7) for each in ids[1:]], [])
        link.absorb([Order(ids[0], first)])
        await eventually(lambda: "absorb 1" in host.events)
        assert [event for event in host.events if event != "heard"][1:] == ["tsproxy one tells of 2", "absorb 1"]
        host.give_up = lambda ids: link.close() or []  # type: ignore[assignment, func-returns-value, method-assign]
        with pytest.raises(LinkLost):
            await link.give_up(ids)
        with pytest.raises(LinkLost):
            await link.give_up(ids)
        link.rested([])
        link.absorb([])


@pytest.mark.parametrize(
    ("key", "wanted", "own"),
    [(key_of(b"another"), TWO.name, ONE), (KEY, "tsproxy three", ONE), (KEY, "", TWO)],
    ids=["another account", "another process", "itself"],
)
async def test_who_is_not_a_peer_gets_no_link(key: bytes, wanted: str, own: Introduction) -> None:
    host = Host()
    async with listening(host) as port:
        with pytest.raises(LinkLost):
            await link_to(port, key=key, wanted=wanted, own=own)
    assert host.events == []


@pytest.mark.parametrize(
    "sent",
    [
        [b"GET / HTTP/1.1\r\n\r\n" + bytes(40)],
        [frame_bytes(Kind.ASK, b"")],
        [frame_bytes(Kind.PROOF, bytes(32))],
        [frame_bytes(Kind.HELLO, greeting(ONE, nonce())), frame_bytes(Kind.PROOF, bytes(32))],
        [frame_bytes(Kind.HELLO, greeting(ONE, nonce())), frame_bytes(Kind.HELLO, greeting(ONE, nonce()))],
    ],
    ids=["http", "asks", "proves nothing", "wrong proof", "greets twice"],
)
async def test_strangers_are_disconnected(sent: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not when the time for a greeting is over."""
    monkeypatch.setattr("proxy.peers.link.GREETING_SECONDS", 60.0)
    host = Host()
    async with listening(host) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for each in sent:
            writer.write(each)
        async with asyncio.timeout(20):
            said = await reader.read()
        writer.close()
        # A challenge at most, which holds no proof.
        assert len(said) < 100
    assert host.events == []


async def test_a_question_that_is_under_way_fails_when_the_link_ends() -> None:
    host = Host()
    async with listening(host) as port:
        link = await link_to(port)
        lost: list[int] = []
        link.lost = lambda: lost.append(1)
        host.answers = []  # another number than was asked
        with pytest.raises(LinkLost):
            await link.ask(QUESTIONS)
        await eventually(lambda: lost == [1])
        link = await link_to(port)
        host.answer = lambda name, questions: host.inbound[-1].close() or []  # type: ignore[method-assign,func-returns-value]
        with pytest.raises(LinkLost):
            await link.ask(QUESTIONS)


async def test_readers_are_held_and_released_beside_questions() -> None:
    host = Host()
    async with listening(host) as port:
        link = await link_to(port)
        assert await link.hold(1, "d\u00e9")
        host.grants = None
        late = asyncio.ensure_future(link.hold(2, "d"))
        assert await link.ask(QUESTIONS) == host.answers
        late.cancel()
        await asyncio.sleep(0)
        host.inbound[-1].held(2, is_granted=True)  # nobody waits for it any more
        host.grants = False
        assert not await link.hold(3, "d")
        link.release(3)
        await eventually(lambda: host.events[-1] == "release 3")
        holds = [event for event in host.events if event.startswith("hold")]
        assert holds == ["hold 1 d\u00e9", "hold 2 d", "hold 3 d"]
        host.grants = None
        waiting = asyncio.ensure_future(link.hold(4, "d"))
        await eventually(lambda: host.events[-1] == "hold 4 d")
        link.close()
        with pytest.raises(LinkLost):
            await waiting
        with pytest.raises(LinkLost):
            await link.hold(5, "d")
        link.release(5)
