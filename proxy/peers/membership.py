"""The other proxies at the backend: who they are, links to them, and when they are given up (W102).

Others are found by their connections to the backend (``proxy.backend.current_op``), and by the links that they open. A
process looks for others and links with them before it serves clients, so that each one knows all of them.

A process gives another one up that has not answered for ``ANSWER_SECONDS``, and then does not ask it. So each process
must know in time that it may be given up: the others send a ping every ``PING_SECONDS``, and one that has heard nothing
from one of them for ``SESSION_LEASE_SECONDS`` takes no session for its own without asking. Then, or if it was suspended
for ``STANDSTILL_SECONDS``, its statements in progress are contested: before one of them is sent, the others are asked
about it (``catalog.commit.reclaiming``).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Final

import structlog

from catalog.errors import CommandError
from proxy.backend.current_op import MOST_PROXIES
from proxy.peers.link import Inbound, Link, LinkLost
from proxy.peers.membership_times import MembershipTimes
from proxy.peers.peer import ANSWER_SECONDS, Peer
from proxy.peers.peer_directory import PeerDirectory
from proxy.peers.quietness import Quiet, until_over, until_quiet
from proxy.peers.takeover import TakeOver

log = structlog.get_logger(__name__)

SESSION_LEASE_SECONDS: Final = 1.2
"""Time after the latest ping of another process in which its answers about sessions still hold."""
STANDSTILL_SECONDS: Final = 1.0
"""In a process that was suspended for longer, all statements in progress are contested."""
CONTEST_SECONDS: Final = 0.5
"""While others may have given this process up, what it took this time ago is contested again."""
PING_SECONDS: Final = 0.3
"""Interval of the pings to other processes."""
WATCH_SECONDS: Final = 2.0
"""Interval at which the backend is asked for other processes, while nothing happens to a link."""
SEARCH_SECONDS: Final = 0.2
"""The interval after a link has ended."""

STOOD_STILL: Final = "the process was suspended: others are asked about unsent statements"
ENDED_TRANSACTIONS: Final = "another tsproxy was stopped during a join: its transaction was ended"
CANNOT_FIND: Final = "cannot detect other tsproxy processes: an insert retried through another one may be stored twice"


Connect = Callable[[str, int, bool, str], Awaitable[Link]]
"""Opens a link to host and port, with or without TLS, to the process with this name; raises ``LinkLost``."""


@dataclass(frozen=True, slots=True)
class Reactions:
    """What this process does about others.

    ``changed`` is called when there are other processes, or none any more; ``lapsed`` when another process may have
    taken any session: begin another generation. ``contested`` is called when it may have executed statements in
    progress, with the present time, and the time before which their sessions were taken. ``stood_still`` is called
    after a standstill.
    """

    changed: Callable[[], None] = lambda: None
    lapsed: Callable[[], None] = lambda: None
    contested: Callable[[float, float], None] = lambda now_seconds, taken_before_seconds: None
    stood_still: Callable[[], None] = lambda: None


class Membership:
    """All other processes; implements ``proxy.peers.asking.Peers``, and part of ``proxy.peers.link.Answerer``."""

    def __init__(
        self,
        own_name: str,
        others: PeerDirectory,
        connect: Connect,
        window_seconds: float,
        now_seconds: Callable[[], float],
        reactions: Reactions = Reactions(),
        *,
        is_local: bool = False,
        chance: Callable[[], float] = random.random,
        client_seconds: Callable[[], float] = perf_counter,
    ) -> None:
        """``is_local``: only this machine reaches this process. ``chance`` and ``client_seconds``: see ``TakeOver``.

        ``window_seconds``: how long drivers retry statements that a process got that has gone since.
        ``now_seconds`` must go on while the process is stopped.
        """
        self._is_local = is_local
        self.own_name = own_name
        self.peers: dict[str, Peer] = {}
        self.why_blind = ""
        """Why the backend does not tell who else is there."""
        self._others = others
        self._connect = connect
        self._reactions = reactions
        self._window_seconds = window_seconds
        self._now_seconds = now_seconds
        self._times = MembershipTimes(now_seconds())
        self._take_over = TakeOver(own_name, others, now_seconds, chance, client_seconds)

    # --- Company --------------------------------------------------------------------------------------------

    def is_uncertain(self) -> bool:
        times, now_seconds = self._times, self.check()
        if now_seconds < times.certain_until:
            return False
        if not times.is_lapsed:
            times.is_lapsed = True
            self._contest(now_seconds)
        elif now_seconds - times.contested >= CONTEST_SECONDS:
            times.contested = now_seconds
            self._reactions.contested(now_seconds, now_seconds - CONTEST_SECONDS)
        return True

    def check(self) -> float:
        """Notice a standstill; returns the present time."""
        now_seconds = self._now_seconds()
        seconds = now_seconds - self._times.beat
        if seconds > STANDSTILL_SECONDS:
            self._times.beat = now_seconds
            if self.has_company:
                log.warning(STOOD_STILL, seconds=round(seconds, 3))
                self._reactions.stood_still()
                self._contest(now_seconds)
        return now_seconds

    def given_up(self) -> None:
        """Another process has taken over what this one had sent."""
        self._take_over.refused()
        self._contest(self._now_seconds())

    def primary_changed(self) -> None:
        """The primary may be another server, which knows no fences of others."""
        self._take_over.forget_fences()
        if self.is_uncertain():
            self._contest(self._now_seconds())

    def _contest(self, now_seconds: float) -> None:
        """Others may have taken any session."""
        self._times.contested = now_seconds
        self._reactions.lapsed()
        self._reactions.contested(now_seconds, math.inf)

    def members(self) -> Sequence[Peer]:
        return [peer for peer in self.peers.values() if not self._has_other_clients(peer)]

    def holders(self) -> Sequence[Peer]:
        """Those that can keep their readers waiting (``proxy.peers.holding``)."""
        return [peer for peer in self.peers.values() if peer.keeps_readers]

    def _has_other_clients(self, peer: Peer) -> bool:
        """Whether no client can reach both: each serves its own machine only, as a sidecar does."""
        return self._is_local and peer.is_local and peer.has_failed and not peer.was_heard

    @property
    def are_lately_gone(self) -> bool:
        return self._now_seconds() < self._times.gone_until

    @property
    def has_company(self) -> bool:
        """Whether there are other processes, or were lately."""
        return self.are_lately_gone or bool(self.members())

    async def quiet(self, names: Sequence[str]) -> bool:
        return all(await asyncio.gather(*map(self._quiet, names)))

    def rules_out(self, names: Sequence[str], begun_seconds: float) -> bool:
        peers = [self.peers.get(name) for name in names]
        return all(peer is not None and self._take_over.rules_out(peer, begun_seconds) for peer in peers)

    async def over(self, sessions: Sequence[bytes]) -> bool:
        # Without the privilege, nothing is known of other processes either.
        return bool(self.why_blind) or await until_over(lambda: self._others.executes(sessions), self._now_seconds)

    def answered(self, name: str) -> bool:
        if (peer := self.peers.get(name)) is None:
            return False
        peer.answered_seconds = self._now_seconds()
        return peer.is_linked

    async def ended(self, name: str) -> bool:
        """As ``quiet``, for a process that has stopped on its own what it is waited for."""
        return await until_quiet(self._others.activity, name, -math.inf, self._now_seconds) is not Quiet.NOT_YET

    async def _quiet(self, name: str) -> bool:
        peer = self.peers.get(name) or Peer(name)
        lapsed_seconds = min(peer.lost_seconds, self._now_seconds()) + SESSION_LEASE_SECONDS
        quiet = await self._take_over.quiet(peer, lapsed_seconds)
        if quiet is Quiet.ABSENT and not peer.is_linked and peer.inbound is None:
            self._gone(peer)
        return quiet is not Quiet.NOT_YET

    # --- Answerer -------------------------------------------------------------------------------------------

    def linked(self, inbound: Inbound) -> None:
        assert inbound.peer is not None
        own, peer = inbound.peer, self._peer(inbound.peer.name)
        if peer.inbound is not None and peer.inbound is not inbound:
            self._contest(self._now_seconds())
            peer.inbound.close()
        peer.inbound, peer.was_heard = inbound, True
        if inbound.address not in peer.hosts:
            peer.hosts = (inbound.address, *peer.hosts)
        peer.port, peer.has_tls = own.port, own.has_tls
        # It may have taken sessions while it could not ask.
        self._reactions.lapsed()
        self.heard(inbound)
        self._times.wakes.set()

    def heard(self, inbound: Inbound) -> None:
        inbound.heard_seconds = self.check()
        self._renew()

    def unlinked(self, inbound: Inbound) -> None:
        peer = self.peers.get(inbound.peer.name) if inbound.peer is not None else None
        if peer is not None and peer.inbound is inbound:
            peer.inbound = None
            self._renew()
            # At once, because the next link makes it certain again.
            self.is_uncertain()
            self._times.wakes.set()

    def _renew(self) -> None:
        """Until when no other process can have given this one up."""
        heard = [peer.heard_seconds for peer in self.members()]
        self._times.certain_until = min(heard, default=math.inf) + SESSION_LEASE_SECONDS
        if self._times.is_lapsed and self._now_seconds() < self._times.certain_until:
            self._times.is_lapsed = False

    # --- who is there ---------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Find the others and link with them, as far as that succeeds in ``ANSWER_SECONDS``."""
        await self.look()
        await asyncio.gather(*(self._reach(peer) for peer in self.peers.values()))
        self._times.beat = self._now_seconds()

    async def watch(self) -> None:
        """Look for others, for ever."""
        while True:
            await self.look()
            unlinked = [peer for peer in self.peers.values() if not peer.is_linked]
            if unlinked:
                await asyncio.gather(*(self._reach(peer) for peer in unlinked))
            searches = any(peer.was_heard and peer.inbound is None for peer in self.peers.values())
            wakes = self._times.wakes
            with suppress(TimeoutError):
                async with asyncio.timeout(SEARCH_SECONDS if searches else WATCH_SECONDS):
                    await wakes.wait()
            wakes.clear()

    async def beat(self, places: Callable[[], int] = lambda: 0) -> None:
        """Show the others that this process is there, for ever; ``places``: how many it has used for its buckets."""
        while True:
            self.runs()
            for peer in self.peers.values():
                if peer.link is not None:
                    peer.link.ping(places())
            self._reactions.changed()
            await asyncio.sleep(PING_SECONDS)

    def runs(self) -> None:
        """The process runs, now."""
        self._times.beat = self.check()

    async def look(self) -> None:
        """Ask the backend who is there."""
        self._times.looks_begun = number = self._times.looks_begun + 1
        try:
            found = {each.name: each for each in await self._others.proxies()}
        except CommandError as error:
            if not self.why_blind:
                log.warning(CANNOT_FIND, reason=error.message)
            self.why_blind = error.message
            return
        self.why_blind = ""
        self._times.looked = number
        for name, proxy in found.items():
            peer = self._peer(name)
            if not peer.hosts:
                # Where it listens on this machine only, the address that the backend sees may not be reachable.
                peer.hosts = tuple(dict.fromkeys((proxy.address, "127.0.0.1")))
            if not peer.port:
                peer.port, peer.has_tls, peer.is_local = proxy.port, proxy.has_tls, proxy.is_local
        self._renew()
        for peer in list(self.peers.values()):
            if peer.name not in found and not peer.is_linked and peer.inbound is None:
                self._gone(peer)
        await self._end_idle_transactions()

    async def _end_idle_transactions(self) -> None:
        with suppress(CommandError):  # the next look tries again
            if ended := await self._others.end_idle_transactions():
                log.warning(ENDED_TRANSACTIONS, transactions=ended)

    def _peer(self, name: str) -> Peer:
        peer = self.peers.get(name)
        if peer is None:
            peer = self.peers[name] = Peer(name, met_seconds=self._now_seconds())
            log.info("another tsproxy uses the backend", peer=name)
            self._reactions.changed()
        return peer

    def _gone(self, peer: Peer) -> None:
        if self.peers.get(peer.name) is not peer:
            return
        self._times.departures += 1
        had_other_clients = self._has_other_clients(peer)
        del self.peers[peer.name]
        peer.has_failed = True
        peer.connected.set()
        if not had_other_clients:
            self._times.gone_until = self._now_seconds() + self._window_seconds
            self._take_over.departed(SESSION_LEASE_SECONDS)
        log.info("another tsproxy has gone", peer=peer.name)
        self._renew()
        self._reactions.changed()

    async def _reach(self, peer: Peer) -> None:
        """Link with a process, unless it does not say where it listens."""
        if peer.is_linked or peer.is_connecting or not peer.port:
            return
        peer.is_connecting = True
        peer.connected.clear()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                peer.link, peer.lost_seconds = await self._linked(peer), math.inf
            peer.link.lost = partial(self._lost, peer)
            log.info("linked with another tsproxy", peer=peer.name)
            peer.has_failed = False
        except (LinkLost, TimeoutError) as error:
            if not peer.has_failed and self.peers.get(peer.name) is peer:
                log.info("another tsproxy cannot be reached", peer=peer.name, port=peer.port, reason=str(error))
            peer.has_failed = True
            self._renew()
        finally:
            peer.is_connecting = False
            peer.connected.set()

    def _lost(self, peer: Peer) -> None:
        """The link has ended; who asks waits for one attempt to open another."""
        peer.lost_seconds = self._now_seconds()
        if not peer.has_failed:
            peer.connected.clear()
        self._times.wakes.set()

    async def _linked(self, peer: Peer) -> Link:
        reason = LinkLost("no address")
        for host in peer.hosts:
            try:
                return await self._connect(host, peer.port, peer.has_tls, peer.name)
            except LinkLost as error:
                reason = error
        raise reason

    @property
    def departures(self) -> int:
        """How many processes have gone."""
        return self._times.departures

    @property
    def looks(self) -> int:
        """How many times this process has begun to look who is there."""
        return self._times.looks_begun

    def has_looked_since(self, looks: int) -> bool:
        """Whether it has begun another look after the first ``looks``, and seen who is there."""
        return self._times.looked > looks

    def has_gone(self, stored_id: bytes) -> bool:
        """Whether another process has made this id that is certainly gone, and has no operation at the backend.

        Who has made ids within the latest seconds may be unknown.
        """
        if self.why_blind or len(self.peers) >= MOST_PROXIES:
            return False
        now_seconds = self._now_seconds()
        return not any(peer.may_have_made(stored_id, now_seconds) for peer in self.peers.values())

    def links(self) -> tuple[int, int]:
        """How many others there are, and how many can be asked."""
        members = self.members()
        return len(members), sum(peer.is_linked for peer in members)
