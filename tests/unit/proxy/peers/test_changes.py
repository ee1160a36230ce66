"""Others are told at once, and waited for within a bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from catalog.namespaces import Namespace
from proxy.peers import changes as told
from proxy.peers.change import Change
from proxy.peers.changes import Changes
from proxy.peers.link import LinkLost
from proxy.peers.peer import Peer
from proxy.peers.silences import SILENT_SECONDS

X = Namespace("db", "x")


class LinkDouble:
    def __init__(self) -> None:
        self.is_open = True
        self.heard: list[Change] = []
        self.answers: list[asyncio.Future[None]] = []
        self.refusal: ValueError | None = None

    def changed(self, change: Change, *, wants_answer: bool) -> asyncio.Future[None] | None:
        if self.refusal is not None:
            raise self.refusal
        self.heard.append(change)
        if not wants_answer:
            return None
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


class Company:
    def __init__(self, *links: LinkDouble) -> None:
        self.now_seconds = 0.0
        peers: list[Any] = [Peer(f"peer {number}", link=link) for number, link in enumerate(links)]  # type: ignore[arg-type]
        self.changes = Changes(lambda: [*peers, Peer("not linked")], lambda: self.now_seconds)


async def test_all_that_are_linked_are_told_and_waited_for() -> None:
    one, two, closed = LinkDouble(), LinkDouble(), LinkDouble()
    closed.is_open = False
    changes = Company(one, two, closed).changes
    await changes.told()
    changes.tell(X)
    changes.tell(X, is_extended_range=True)
    assert one.heard == two.heard == [Change(X), Change(X, is_extended_range=True)]
    assert closed.heard == []
    waiting = asyncio.create_task(changes.told())
    for answer in one.answers + two.answers[:1]:
        answer.set_result(None)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    two.answers[1].set_exception(LinkLost("gone"))
    await waiting
    await changes.told()


async def test_a_process_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "PATIENCE_SECONDS", 0.01)
    silent, other = LinkDouble(), LinkDouble()
    company = Company(silent, other)
    company.changes.tell(X)
    other.answers[0].set_result(None)
    await company.changes.told()
    company.changes.tell(X)
    assert (len(silent.heard), len(silent.answers)) == (2, 1), "it is told all the same"
    assert len(other.answers) == 2
    company.now_seconds = SILENT_SECONDS
    company.changes.tell(X)
    assert len(silent.answers) == 2
    for answer in (*silent.answers, *other.answers):
        if not answer.done():
            answer.set_result(None)
    await company.changes.told()


async def test_what_is_waited_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "MOST_UNANSWERED", 3)
    link = LinkDouble()
    changes = Company(link).changes
    for _ in range(5):
        changes.tell(X)
    assert (len(link.heard), len(link.answers)) == (5, 3)
    for answer in link.answers:
        answer.cancel()
    await asyncio.sleep(0)


async def test_a_name_that_no_server_has_is_told_to_nobody() -> None:
    link = LinkDouble()
    link.refusal = ValueError("too long")
    changes = Company(link).changes
    changes.tell(X)
    await changes.told()
