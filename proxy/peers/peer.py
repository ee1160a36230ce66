"""Another process of the proxy, and the links with it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from catalog.buckets.resting import Given
from proxy.peers.frames import Answer, Question
from proxy.peers.link import Inbound, Link, LinkLost

log = structlog.get_logger(__name__)

ANSWER_SECONDS: Final = 2.0
"""Time that a process has to answer a question; then it is given up."""


@dataclass(slots=True, eq=False)
class Peer:
    """Another process; implements ``proxy.peers.asking.Member`` and ``proxy.peers.holding.Holder``."""

    name: str
    hosts: tuple[str, ...] = ()
    port: int = 0
    has_tls: bool = False
    is_local: bool = False
    """Whether it serves clients on its own machine only."""
    link: Link | None = None
    inbound: Inbound | None = None
    was_heard: bool = False
    """Whether it has ever opened a link, so that it counts on this process to answer."""
    has_failed: bool = False
    """Whether the last attempt to reach it has failed, so that nobody waits for the next one."""
    is_connecting: bool = False
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the end of an attempt to connect, successful or not."""
    lost_seconds: float = -math.inf
    """When the latest link with it has ended, so that it hears no longer that this process counts on it."""
    met_seconds: float = 0.0
    """When it was seen first. It opens a link at once, or will not count on this process to answer."""
    answered_seconds: float = -math.inf
    """When a question of it was answered last."""
    taken_over_seconds: float = -math.inf
    """When the latest fences were begun behind which nothing more of it was executed (``proxy.peers.takeover``)."""
    over_seconds: float = math.inf
    """When that was certain, latest, by the clock of clients (``TakeOver``)."""
    turn_seconds: float = -math.inf
    """When fences may be set up again."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of what takes over from it."""

    @property
    def is_linked(self) -> bool:
        """Whether it can be asked."""
        return self.link is not None and self.link.is_open

    @property
    def keeps_readers(self) -> bool:
        """Whether it can be asked to keep its readers waiting."""
        link = self.link
        return link is not None and link.is_open and link.peer is not None and link.peer.keeps_readers

    @property
    def heard_seconds(self) -> float:
        """When this process has heard last that the other one counts on it to answer."""
        if self.inbound is not None:
            return self.inbound.heard_seconds
        if self.was_heard:
            return -math.inf
        # It tells the backend where it listens before it serves clients.
        return self.met_seconds if self.port else math.inf

    def may_have_made(self, stored_id: bytes, now_seconds: float) -> bool:
        """Whether it may have made this id, unless that was just now; ``now_seconds``: by the clock of ``Inbound``."""
        inbound = self.inbound
        if inbound is None or inbound.peer is None or inbound.peer.first_place is None:
            return True
        return inbound.places.may_have_made(inbound.peer.first_place, stored_id, now_seconds)

    async def hold(self, number: int, database: str) -> bool:
        if self.link is None:
            raise LinkLost("not connected")
        return await self.link.hold(number, database)

    def release(self, number: int) -> None:
        if self.link is not None:
            self.link.release(number)

    async def let_give_up(self, ids: Sequence[bytes]) -> list[Given]:
        """Ask it to give these buckets up (``catalog.background.gathering``); those it has. Raises ``LinkLost``."""
        if self.link is None:
            raise LinkLost("not connected")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self.link.give_up(ids)
        except TimeoutError:
            raise LinkLost("no answer in time") from None

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    return await (await self._open()).ask(questions)
                except LinkLost:
                    # Only the connection may have ended. Asking twice is harmless.
                    return await (await self._open()).ask(questions)
        except TimeoutError:
            self.give_up()
            raise LinkLost("no answer in time") from None

    async def _open(self) -> Link:
        if not self.is_linked and not self.has_failed and self.port:
            await self.connected.wait()
        if self.link is None:
            raise LinkLost("not connected")
        return self.link

    def give_up(self) -> None:
        """It does not answer: close the link, so that it reconnects and notices."""
        if not self.has_failed:
            log.warning(
                "another tsproxy does not answer: retried inserts are checked against stored rows", peer=self.name
            )
        self.has_failed = True
        if self.link is not None:
            self.link.close()
