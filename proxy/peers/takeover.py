"""Takes statements over from processes that cannot be asked (W102).

What such a process has executed is looked up in the stored rows. Before that, all that it has sent must be over: what
the backend executes is waited for (``proxy.peers.quietness``), and what arrives later is refused, because of *fences*
(``proxy.backend.fences``). From then on, each of its writes is refused until one of them has told it of the fences.

Two processes that both reach the backend, and cannot ask one another, take over from one another. If both looked up the
same statement, and then both executed it, it would be stored twice. So a process looks nothing up, once its own writes
were refused, before it has set up fences anew. Whoever has set up the latest ones may write, and what the other one has
looked up no longer counts. The refused process waits for its *turn* before it sets up its own, so that the other one
gets something done.

A process that cannot ask another one may still be asked by it. Each answer lets the other one execute a statement, so
fences that are older than the latest answer do not count either.

Without fences, as on a standalone, only what is executed is waited for, each time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from catalog.errors import CommandError
from proxy.backend.current_op import Activity
from proxy.peers.peer import Peer
from proxy.peers.quietness import QUIET_SECONDS, Quiet, until_quiet

log = structlog.get_logger(__name__)

PARTING_SECONDS: Final = 0.25
"""When two processes have lost one another, the one with the larger name looks up rows this much later."""
TURN_SECONDS: Final = (0.5, 1.0)
"""Between the least and the most time that a process lets another one write that has taken over from it."""
WARNING_SECONDS: Final = 60.0
"""The log is not told more often, because turns may go on for hours."""

TAKEN_OVER: Final = "another tsproxy has taken over unfinished inserts: it is asked about all of them"


class Backend(Protocol):
    """What the backend knows of other processes, and refuses them (``proxy.backend.current_op``)."""

    def activity(self, name: str) -> Awaitable[Activity]:
        """What the process with this name does; raises ``CommandError``."""
        ...

    def fence(self, name: str) -> Awaitable[bool]:
        """What that process has sent until now is not executed later, if this is true; raises ``CommandError``."""
        ...

    def meets_fences(self) -> Awaitable[bool]:
        """Whether others have set up fences that this process has not known of; raises ``CommandError``."""
        ...


class TakeOver:
    """Takes over from other processes."""

    def __init__(
        self,
        own_name: str,
        backend: Backend,
        now_seconds: Callable[[], float],
        chance: Callable[[], float],
        client_seconds: Callable[[], float],
    ) -> None:
        """``chance``: a number from 0 to 1, for processes that have to wait for different times.

        ``client_seconds``: the clock of the answers to clients (``proxy.request.exchange``).
        """
        self._client_seconds = client_seconds
        self._own_name = own_name
        self._backend = backend
        self._now_seconds = now_seconds
        self._chance = chance
        self._lost_seconds = -math.inf
        """When fences of this process were last found to be worth nothing."""
        self._turn_seconds = -math.inf
        """When this process may set up fences again."""
        self._warned_seconds = -math.inf
        self._departed_seconds = -math.inf
        """From when on, by the clock of clients, nothing was given to a process that has gone."""

    def refused(self) -> None:
        """The backend has refused a write of this process: another one has taken over from it."""
        self.forget_fences()
        now_seconds = self._lost_seconds
        self._turn_seconds = self._next_turn(now_seconds)
        if now_seconds - self._warned_seconds >= WARNING_SECONDS:
            self._warned_seconds = now_seconds
            log.warning(TAKEN_OVER)

    def forget_fences(self) -> None:
        """The server that has remembered them may be another one now."""
        self._lost_seconds = self._now_seconds()

    def _next_turn(self, since_seconds: float) -> float:
        least, most = TURN_SECONDS
        return since_seconds + least + (most - least) * self._chance()

    async def quiet(self, peer: Peer, lapsed_seconds: float) -> Quiet:
        """Wait, within a bound, until nothing more is executed of what another process has sent.

        What it executes once it has asked this process, or taken over itself, does not count: from ``lapsed_seconds``
        on, it has to do so for every session.
        """
        asked_seconds, is_queued = self._now_seconds(), peer.turn.locked()
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await peer.turn.acquire()
        except TimeoutError:
            return Quiet.NOT_YET
        try:
            if self._holds(peer, asked_seconds):
                return Quiet.QUIET
            if is_queued and peer.is_linked:
                # It can be asked again, sooner than there are other fences.
                return Quiet.NOT_YET
            begun_seconds = await self._fenced(peer)
            if begun_seconds is not None:
                found = await self._over(peer, lapsed_seconds, is_fenced=True)
                if found is Quiet.QUIET:
                    peer.taken_over_seconds, peer.over_seconds = begun_seconds, self._client_seconds()
                return found
        except CommandError:
            return Quiet.NOT_YET
        finally:
            peer.turn.release()
        return await self._over(peer, lapsed_seconds, is_fenced=False)

    def rules_out(self, peer: Peer, begun_seconds: float) -> bool:
        """Whether a process cannot have executed a statement that its client has sent to nobody before this time.

        It was taken over then, so it may execute the statement only behind fences of its own. These refuse the numbered
        writes of this process, which then has to look up what it has not written.
        """
        return self._holds(peer) and begun_seconds >= max(peer.over_seconds, self._departed_seconds)

    def departed(self, lapse_seconds: float) -> None:
        """A process seems to have gone; if not, it knows after this time that the others think so."""
        self._departed_seconds = self._client_seconds() + lapse_seconds

    def _holds(self, peer: Peer, asked_seconds: float = math.inf) -> bool:
        """Whether all that the process has executed since is refused, or was sent before and is over.

        ``asked_seconds``: since when something is being asked about. What the other one was told later of that, this
        process has yielded to it, and asks about again.
        """
        told_seconds = min(peer.answered_seconds, asked_seconds)
        return peer.taken_over_seconds > max(peer.lost_seconds, told_seconds, self._lost_seconds)

    async def _fenced(self, peer: Peer) -> float | None:
        """Set up fences when it is this process's turn; returns the time before that, ``None`` if there are none."""
        until_seconds = self._now_seconds() + QUIET_SECONDS
        while True:
            turn_seconds = max(self._turn_seconds, peer.turn_seconds)
            await asyncio.sleep(max(turn_seconds - self._now_seconds(), 0.0))
            # Who waits for its turn sends nothing, so it does not notice that somebody else has begun one.
            if not await self._backend.meets_fences() or self._now_seconds() >= until_seconds:
                break
        begun_seconds = self._now_seconds()
        if not await self._backend.fence(peer.name):
            return None
        peer.turn_seconds = self._next_turn(begun_seconds)
        return begun_seconds

    async def _over(self, peer: Peer, lapsed_seconds: float, *, is_fenced: bool) -> Quiet:
        knows_seconds = lapsed_seconds + (PARTING_SECONDS if peer.name < self._own_name else 0.0)
        return await until_quiet(
            self._backend.activity, peer.name, knows_seconds, self._now_seconds, is_fenced=is_fenced
        )
