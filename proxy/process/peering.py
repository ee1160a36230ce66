"""Connects this process with the other proxies of its backend.

They ask one another about retried statements, so that these are executed once (W102); drivers retry inserts on replica
sets and sharded clusters only. They keep their readers waiting while one of them joins parts, and their buckets of one
series become one (``catalog.background.gathering``). And they tell one another which collections have changed.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, Self

import structlog

from catalog.background.absorbing import Order
from catalog.buckets.resting import Given, Rested
from catalog.errors import CommandError
from proxy.backend.current_op import MOST_PROXIES
from proxy.clients.accepting import Listener
from proxy.clients.tls import Newest
from proxy.observe.limited_log import noticed
from proxy.observe.metrics import Metrics
from proxy.observe.peer_numbers import PeerNumbers
from proxy.observe.tasks import Spawn, TaskSet
from proxy.peers.asking import Asking
from proxy.peers.change import Change
from proxy.peers.changes import Changes
from proxy.peers.frames import Answer, Question
from proxy.peers.gathering_links import GatheringLinks
from proxy.peers.handshake import Introduction, key_of, series_key_of
from proxy.peers.holding import HeldHere, Holding
from proxy.peers.link import GREETING_SECONDS, Inbound, Link, LinkLost
from proxy.peers.membership import Membership, Reactions
from proxy.peers.strangers import Strangers
from proxy.process.assembly import Assembly
from proxy.process.exit_codes import cannot_listen
from proxy.settings.table import Address, Settings
from proxy.upstream.connecting import connect

log = structlog.get_logger(__name__)

CONNECT_SECONDS: Final = 1.0
"""Time to open a connection to one address of another process."""

HEARING_SECONDS: Final = 2.0
"""Time for the backend to tell its cluster time."""

MOST_LINKED: Final = 2 * MOST_PROXIES
"""Connections of other processes; more are closed, because without access control anybody can prove to be one."""

BACKLOG: Final = 128

CANNOT_ANNOUNCE: Final = "cannot publish peer_listen to the backend"
TOO_MANY: Final = "too many connections of other tsproxy processes: closing one"
PORT_IN_USE: Final = "the address for other tsproxy processes is in use: another port is chosen"


def now_seconds() -> float:
    """The clock of everything that other processes wait for: it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Peering:
    """The listener for other proxies, the links to them, and what asks them; implements ``proxy.peers.link.Answerer``.

    Made by ``begin``.
    """

    def __init__(
        self,
        settings: Settings,
        assembly: Assembly,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        report: Callable[[BaseException], None],
    ) -> None:
        """``spawn`` owns what runs in the background; ``report`` gets internal errors."""
        options, statements = assembly.committer.options, assembly.ingest.statements
        self._assembly = assembly
        secret = assembly.backend.pool.family.secret
        self._key = key_of(secret)
        in_parts = assembly.in_parts
        self._own = Introduction(
            assembly.backend.others.own_name,
            0,
            keeps_readers=in_parts is not None,
            first_place=assembly.ids.first_place,
        )
        self._strangers = Strangers()
        # Whoever has proved who it is.
        self._inbound: set[Inbound] = set()
        self._is_closed = False
        self._listener: Listener | None = None
        self.numbers = numbers = PeerNumbers(self._links, self._gathered)
        reactions = Reactions(self._changed, statements.begin_generation, statements.contest_all, numbers.stood_still)
        self.membership = Membership(
            self._own.name,
            assembly.backend.others,
            self._connect,
            options.restart_window_seconds,
            now_seconds,
            reactions if assembly.ingest.retryable_writes else Reactions(self._share_backend),
            is_local=is_loopback(settings.listen.host),
        )
        self._asking = Asking(
            statements,
            self.membership,
            self.numbers,
            now_seconds,
            options.server_selection_timeout_seconds,
            spawn,
            report,
            partial(assembly.backend.health, HEARING_SECONDS),
        )
        holding = Holding(self._own.name, self.membership.holders, self.numbers, now_seconds, spawn)
        members = self.membership
        assembly.backend.expect_fences(members.given_up, members.is_uncertain, members.primary_changed)
        readers = None if in_parts is None else in_parts.readers
        self._held_here = HeldHere(readers, holding, numbers, members.ended, now_seconds, spawn)
        changes = Changes(self.membership.peers.values, now_seconds)
        assembly.effects.tell(changes)
        assembly.catalog.begins_extended_range = partial(changes.tell, is_extended_range=True)
        if in_parts is not None:
            in_parts.link(holding, self.membership, GatheringLinks(self.membership, now_seconds, series_key_of(secret)))

    def _links(self) -> tuple[int, int]:
        return self.membership.links()

    def _gathered(self) -> tuple[int, int]:
        in_parts = self._assembly.in_parts
        if in_parts is None:
            return 0, 0
        gathering = in_parts.joining.gathering
        return gathering.given_up, gathering.absorbed

    @classmethod
    async def begin(
        cls,
        settings: Settings,
        assembly: Assembly,
        metrics: Metrics,
        tasks: TaskSet,
        report: Callable[[BaseException], None],
    ) -> Self | None:
        """Listen for other processes and link with those that are there; ``None`` without time-series collections.

        Where nobody retries inserts or joins parts, they still tell one another of changed collections.

        Raises ``ConfigurationError`` for an address that cannot be listened on.
        """
        if not assembly.backend.profile.has_native_timeseries:
            return None
        peering = cls(settings, assembly, tasks.spawn, report)
        await peering._listen(settings, tasks.spawn)
        if metrics.catalog is not None:
            metrics.read_catalog(replace(metrics.catalog, peers=peering.numbers))
        try:
            await assembly.backend.announce(
                peering._own.port, has_tls=peering._own.has_tls, is_local=is_loopback(settings.listen.host)
            )
        except CommandError as error:
            log.warning(CANNOT_ANNOUNCE, reason=error.message)
        await peering.membership.begin()
        tasks.keep(peering.membership.watch)
        tasks.keep(lambda: peering.membership.beat(lambda: assembly.ids.places))
        return peering

    async def _listen(self, settings: Settings, spawn: Spawn) -> None:
        wanted = settings.peer_listen or Address(settings.listen.host, 0)
        tls = _context(settings)
        try:
            sockets = await Listener.listen(wanted.host, wanted.port, BACKLOG)
        except OSError as error:
            if not wanted.port:
                raise cannot_listen("peer_listen", wanted, error) from None
            # Another worker, or the process that this one is about to replace, has it.
            log.info(PORT_IN_USE, address=str(wanted), reason=str(error))
            sockets = await Listener.listen(wanted.host, 0, BACKLOG)
        port = int(sockets[0].getsockname()[1])
        self._own = replace(self._own, port=port, has_tls=tls is not None)
        self._listener = Listener(
            sockets, tls, self._protocol, self._strangers, spawn, handshake_seconds=GREETING_SECONDS
        )

    def _protocol(self, on_admitted: Callable[[], None]) -> Inbound:
        inbound = Inbound(self._own, self._key, self)
        inbound.on_admitted = on_admitted
        return inbound

    async def _connect(self, host: str, port: int, has_tls: bool, name: str) -> Link:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                link = (await connect(partial(Link, self._own, self._key, name), host, port, _trusting(has_tls)))[1]
        except (OSError, TimeoutError) as error:
            raise LinkLost(f"cannot connect to {Address(host, port)}: {error}") from None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await link.introduce()
        except BaseException as error:
            link.close()
            if isinstance(error, TimeoutError):
                raise LinkLost(f"{Address(host, port)} does not answer") from None
            raise
        return link

    # --- Answerer -------------------------------------------------------------------------------------------

    def opened(self, inbound: Inbound) -> None:
        if self._is_closed:
            # It was accepted just before.
            inbound.close()
            return
        # Until now it counted as a handshake.
        inbound.on_admitted()
        self._strangers.enter(inbound.address, inbound, inbound.close)

    def closed(self, inbound: Inbound) -> None:
        self._strangers.end(inbound.address, inbound)
        self._inbound.discard(inbound)

    def linked(self, inbound: Inbound) -> None:
        self._strangers.end(inbound.address, inbound)
        if len(self._inbound) >= MOST_LINKED:
            noticed.info(TOO_MANY, peer=inbound.address)
            inbound.close()
            return
        self._inbound.add(inbound)
        # What it has changed before was not told to this process.
        self._assembly.backend.registry.renew_all()
        self.membership.linked(inbound)

    def heard(self, inbound: Inbound) -> None:
        self.membership.heard(inbound)

    def unlinked(self, inbound: Inbound) -> None:
        self._held_here.unlinked(inbound)
        self.membership.unlinked(inbound)

    def answer(self, name: str, questions: Sequence[Question]) -> list[Answer]:
        return self._asking.answer(name, questions)

    def hold(self, inbound: Inbound, number: int, database: str) -> None:
        self._held_here.ask(inbound, number, database)

    def release(self, inbound: Inbound, number: int) -> None:
        self._held_here.release(inbound, number)

    def rested(self, name: str, rested: Sequence[Rested]) -> None:
        if (in_parts := self._assembly.in_parts) is not None:
            in_parts.joining.gathering.told(name, rested)

    def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        in_parts = self._assembly.in_parts
        return [] if in_parts is None else in_parts.joining.gathering.give_up(ids)

    def absorb(self, orders: Sequence[Order]) -> None:
        if (in_parts := self._assembly.in_parts) is not None:
            in_parts.joining.gathering.ordered(orders)

    def changed(self, change: Change) -> None:
        self._assembly.effects.changed_elsewhere(change)

    # --- what follows ---------------------------------------------------------------------------------------

    def _share_backend(self) -> None:
        """With others, whether clients reach them or not."""
        self._assembly.access_mode.coalescer.share_backend(len(self.membership.peers))

    def _changed(self) -> None:
        """Ask from now on, or not any more: without other processes, inserts pay nothing for all this."""
        self._share_backend()
        ingest, has_company = self._assembly.ingest, self.membership.has_company
        if has_company is (ingest.peer_statements is not None):
            return
        ingest.ask_others(self._asking if has_company else None)
        # For good: what was contested once is not sent without asking, however long that takes.
        for reclaiming in (self._assembly.committer.reclaiming, self._assembly.access_mode.reclaiming):
            reclaiming.ownership = self._asking

    def shown(self) -> dict[str, Mapping[str, Any]]:
        """For the admin command ``peers``: by name, whether the process can be asked, and asks."""
        return {
            peer.name: {
                "linked": peer.is_linked,
                "linksBack": peer.inbound is not None,
                "keepsReaders": peer.keeps_readers,
                "peerPort": peer.port,
            }
            for peer in self.membership.members()
        }

    def close(self) -> None:
        """Close the listener and all connections."""
        self._is_closed = True
        if self._listener is not None:
            self._listener.close()
        for peer in self.membership.members():
            if peer.link is not None:
                peer.link.close()
        self._strangers.close()
        for inbound in list(self._inbound):
            inbound.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(settings: Settings) -> Newest | None:
    """TLS, if the listener for clients has it; the other side checks no certificate (``proxy.peers.handshake``)."""
    if settings.tls_certificate_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
    return lambda: context


def _trusting(has_tls: bool) -> ssl.SSLContext | None:
    if not has_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
