"""Limits commands that change collections and want no reply.

A drop takes a lock that blocks the writes of all other clients. A client that waits for replies is slowed down with the
server; one that wants none can send thousands in a second, and the sockets buffer more. So each client has one such
command in progress, and after ``BURST_SECONDS`` in total these commands get ``SHARE`` of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from catalog.namespaces import VirtualCollection
from proxy.request.command import Command
from proxy.request.command_table import CHANGES_INDEXES, REDEFINES
from proxy.request.ports import Translator
from proxy.request.session import Session
from proxy.request.times import Times, WaitKind

CHANGES_COLLECTIONS: Final = REDEFINES | CHANGES_INDEXES
BURST_SECONDS: Final = 1.0
"""Total time that commands of a client may take before they have to pause."""
SHARE: Final = 0.05
"""The share of the time that they get then. What they leave for later, files and checkpoints, costs a server more."""
LONGEST_PAUSE_SECONDS: Final = 5.0
"""A single command may take long, because others hold the lock."""
_NOTHING_SECONDS: Final = 1e-6
"""Less than this is an error of rounding."""


@dataclass(slots=True)
class _Owner:
    """What the commands of one client have taken lately."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    taken_seconds: float = 0.0
    at_seconds: float = 0.0
    commands: int = 0
    """In progress or waiting."""
    has_timer: bool = False

    def pause_seconds(self, now_seconds: float) -> float:
        """How long the next command must wait."""
        self.recovered(now_seconds)
        return max(self.taken_seconds - BURST_SECONDS, 0.0) / SHARE

    def took(self, seconds: float, now_seconds: float) -> None:
        """Count the duration of a command."""
        self.recovered(now_seconds)
        self.taken_seconds = min(self.taken_seconds + seconds, BURST_SECONDS + LONGEST_PAUSE_SECONDS * SHARE)

    def recovered(self, now_seconds: float) -> bool:
        """Whether nothing counts any more of what was taken."""
        self.taken_seconds = max(0.0, self.taken_seconds - (now_seconds - self.at_seconds) * SHARE)
        self.at_seconds = now_seconds
        return self.taken_seconds < _NOTHING_SECONDS


class Unanswered:
    """The turns of such commands."""

    def __init__(
        self,
        now_seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now_seconds = now_seconds
        self._sleep = sleep
        self._owners: dict[Hashable, _Owner] = {}

    def __len__(self) -> int:
        return len(self._owners)

    @asynccontextmanager
    async def turn(self, owner: Hashable, times: Times) -> AsyncIterator[None]:
        """Wait for the turn of a command of this client, which takes place inside the context."""
        since_seconds = time.perf_counter()
        state = self._owners.get(owner)
        if state is None:
            state = self._owners[owner] = _Owner(at_seconds=self._now_seconds())
        state.commands += 1
        try:
            async with state.turn:
                pause_seconds = state.pause_seconds(self._now_seconds())
                if pause_seconds > 0.0:
                    await self._sleep(pause_seconds)
                times.wait(WaitKind.QUEUE, since_seconds)
                began_seconds = self._now_seconds()
                try:
                    yield
                finally:
                    now_seconds = self._now_seconds()
                    state.took(now_seconds - began_seconds, now_seconds)
        finally:
            state.commands -= 1
            if not state.commands:
                self._forget_later(owner, state)

    def _forget_later(self, owner: Hashable, state: _Owner) -> None:
        """Forget a client that has no command as soon as it owes nothing; one timer for each."""
        if not state.has_timer:
            state.has_timer = True
            wait_seconds = state.taken_seconds / SHARE
            asyncio.get_running_loop().call_later(wait_seconds, self._forget, owner, state)

    def _forget(self, owner: Hashable, state: _Owner) -> None:
        state.has_timer = False
        if state.commands:
            return
        if state.recovered(self._now_seconds()):
            del self._owners[owner]
        else:
            self._forget_later(owner, state)


def in_turns(translate: Translator, unanswered: Unanswered) -> Translator:
    """``translate``, with the turns of such commands on virtual collections."""

    def limited(
        session: Session, command: Command, collection: VirtualCollection | None, times: Times
    ) -> Awaitable[bytes]:
        if command.expects_reply or command.name not in CHANGES_COLLECTIONS:
            return translate(session, command, collection, times)
        return in_turn(session, command, collection, times)

    async def in_turn(session: Session, command: Command, collection: VirtualCollection | None, times: Times) -> bytes:
        async with unanswered.turn(session.owner, times):
            return await translate(session, command, collection, times)

    return limited
