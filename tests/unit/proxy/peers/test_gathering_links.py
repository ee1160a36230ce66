"""Which process gathers, and what is told, asked and ordered over the links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.background.absorbing import Order
from catalog.background.gathering import MOST_GIVEN_UP
from catalog.buckets.resting import Given, Rested
from proxy.peers import peer as peers
from proxy.peers.gathering_links import GatheringLinks
from proxy.peers.handshake import Introduction
from proxy.peers.link import LinkLost
from proxy.peers.peer import Peer
from proxy.peers.silences import SILENT_SECONDS

RESTED = [Rested(bytes(16), bytes(16), bytes(12), 1, 2)]
ORDERS = [Order(bytes(12), [Given(b"x" * 12, 1)])]


class LinkDouble:
    def __init__(self, name: str, *, keeps_readers: bool = True) -> None:
        self.is_open = True
        self.peer = Introduction(name, 7, keeps_readers=keeps_readers)
        self.heard: list[Any] = []
        self.is_lost = False

    def rested(self, rested: Sequence[Rested]) -> None:
        self.heard.append(rested)

    def absorb(self, orders: Sequence[Order]) -> None:
        self.heard.append(orders)

    async def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        self.heard.append(len(ids))
        if self.is_lost:
            raise LinkLost("lost")
        return [Given(each, 1) for each in (*ids, b"of others...")]


def links(own_name: str, *doubles: LinkDouble, clock: Callable[[], float] = lambda: 0.0) -> GatheringLinks:
    others = [Peer(each.peer.name, link=each) for each in doubles]  # type: ignore[arg-type]
    membership = SimpleNamespace(
        own_name=own_name,
        peers={each.name: each for each in others},
        holders=lambda: [each for each in others if each.keeps_readers],
    )
    return GatheringLinks(membership, clock, b"key")  # type: ignore[arg-type]


def test_all_processes_digest_series_with_the_key_of_the_account() -> None:
    assert links("b").series_key == b"key"


def test_the_process_with_the_smallest_name_gathers() -> None:
    assert links("b").gatherer() is None
    assert links("b", LinkDouble("c")).gatherer() == ""
    assert links("b", LinkDouble("c"), LinkDouble("a")).gatherer() == "a"
    assert links("b", LinkDouble("c"), LinkDouble("a", keeps_readers=False)).gatherer() == ""
    assert links("b", LinkDouble("a", keeps_readers=False)).gatherer() is None


async def test_what_is_said_goes_over_the_link_of_that_process() -> None:
    one, two = LinkDouble("a"), LinkDouble("c")
    company = links("b", one, two)
    company.tell("a", RESTED)
    company.order("c", ORDERS)
    ids = [number.to_bytes(12, "big") for number in range(MOST_GIVEN_UP + 1)]
    given = await company.give_up({"c": ids, "a": ids[:2]})
    assert [each.stored_id for each in given] == [*ids[:-1], *ids[:2]]
    assert one.heard == [RESTED, 2]
    assert two.heard == [ORDERS, MOST_GIVEN_UP]


async def test_a_process_that_has_gone_is_told_nothing_and_gives_nothing_up() -> None:
    gone = LinkDouble("c")
    gone.is_lost = True
    now_seconds = [100.0]
    company = links("b", gone, clock=lambda: now_seconds[0])
    assert await company.give_up({"c": [bytes(12)]}) == []
    for name in ("nobody", "c"):
        company.tell(name, RESTED)
        company.order(name, ORDERS)
    assert await company.give_up({"nobody": [bytes(12)]}) == []
    assert gone.heard == [1, RESTED, ORDERS]
    gone.is_lost = False
    assert await company.give_up({"c": [bytes(12)]}) == []
    now_seconds[0] += SILENT_SECONDS
    assert await company.give_up({"c": [bytes(12)]}) == [Given(bytes(12), 1)]


async def test_a_process_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LinkDouble):
        async def give_up(self, ids: Sequence[bytes]) -> list[Given]:
            await asyncio.Event().wait()
            return []

    monkeypatch.setattr(peers, "ANSWER_SECONDS", 0.01)
    assert await links("b", Silent("c")).give_up({"c": [bytes(12)]}) == []
