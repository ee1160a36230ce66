"""Another process is asked over its link, twice if only the connection has ended, and given up in time."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from structlog.testing import capture_logs

from catalog.identity import NOBODY
from proxy.peers import peer as under_test
from proxy.peers.frames import UNKNOWN, Answer, Question
from proxy.peers.handshake import Introduction
from proxy.peers.link import LinkLost
from proxy.peers.peer import Peer

QUESTIONS = [Question((b"session", NOBODY), 7)]


class LinkDouble:
    """A link that does what it is told to."""

    def __init__(self, *, keeps_readers: bool = False) -> None:
        self.is_open = True
        self.peer = Introduction("tsproxy two", 7, keeps_readers=keeps_readers)
        self.outcomes: list[Any] = []
        self.released: list[int] = []

    async def ask(self, questions: object) -> list[Answer]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        return [UNKNOWN]

    async def hold(self, number: int, database: str) -> int:
        return 3 if number == 1 and database == "d" else 0

    def release(self, number: int) -> None:
        self.released.append(number)

    def close(self) -> None:
        self.is_open = False


def linked(link: LinkDouble) -> Peer:
    return Peer("tsproxy two", link=link)  # type: ignore[arg-type]


async def test_a_lost_connection_is_no_answer_yet() -> None:
    link = LinkDouble()
    link.outcomes = [LinkLost("closed"), True]
    assert await linked(link).ask(QUESTIONS) == [UNKNOWN]
    link.outcomes = [LinkLost("closed"), LinkLost("closed")]
    with pytest.raises(LinkLost):
        await linked(link).ask(QUESTIONS)


async def test_who_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "ANSWER_SECONDS", 0.05)
    link = LinkDouble()
    link.outcomes = [None]
    peer = linked(link)
    with capture_logs() as logs, pytest.raises(LinkLost):
        await peer.ask(QUESTIONS)
    assert (peer.has_failed, peer.is_linked) == (True, False)
    assert [line["log_level"] for line in logs] == ["warning"]


async def test_readers_are_held_where_the_other_side_can() -> None:
    assert not linked(LinkDouble()).keeps_readers
    link = LinkDouble(keeps_readers=True)
    peer = linked(link)
    assert peer.keeps_readers
    assert await peer.hold(1, "d") == 3
    assert await peer.hold(2, "d") == 0
    peer.release(2)
    assert link.released == [2]
    link.close()
    assert not peer.keeps_readers
    unlinked = Peer("tsproxy three")
    assert not unlinked.keeps_readers
    unlinked.release(1)
    with pytest.raises(LinkLost):
        await unlinked.hold(1, "d")


def test_who_has_opened_no_link_counts_on_an_answer_at_first() -> None:
    peer = Peer("tsproxy two", met_seconds=7.0)
    assert peer.heard_seconds == math.inf, "it does not serve clients yet"
    peer.port = 1
    assert peer.heard_seconds == 7.0
    peer.was_heard = True
    assert peer.heard_seconds == -math.inf, "its link has ended"
