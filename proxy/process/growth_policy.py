"""How buckets grow: as configured, if the backend, the account and other proxies allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import structlog

from catalog.background.gathering import GatheringPeers
from catalog.background.joining import Joining
from catalog.background.joining_pace import JoiningOptions
from catalog.background.orphan_parts import DepartedProcesses
from catalog.background.replacing import Forms
from catalog.catalog import BucketCatalog
from catalog.errors import CommandError
from catalog.growth.growth import GrowthOptions
from catalog.ports import Clock
from proxy.backend.backend import Backend
from proxy.backend.bucket_store import MongoBucketStore
from proxy.backend.current_op import MOST_PROXIES, Proxy
from proxy.backend.parts.part_store import joins_atomically
from proxy.peers.holding import Holding
from proxy.process.readers_elsewhere import ReadersElsewhere
from proxy.readers.register import ReaderRegister
from proxy.reads.cursor_names import CursorNames
from proxy.settings.table import Settings
from rewrite.profile import Profile

log = structlog.get_logger(__name__)

IN_PLACE = "buckets grow in place"
CANNOT_JOIN = "this backend cannot join parts; requires a replica set, or a standalone before 7.0"
MAY_NOT_JOIN = "the backend's account lacks the privilege applyOps on the cluster, which joining parts requires"
MAY_NOT_ASK = "the backend's account lacks the privilege inprog on the cluster, which detecting other readers requires"

MAY_NOT_ANY_MORE = "buckets grow in place from now on: the backend's account has lost the privilege to join parts"

BESIDE_ANOTHER = "another tsproxy cannot be asked to keep its readers waiting: buckets grow in place"
UNKNOWN = "cannot determine whether another tsproxy uses the backend: buckets grow in place meanwhile"
NOT_BESIDE = "every other tsproxy can be asked to keep its readers waiting: buckets grow in parts again"

JOIN_AT_THE_END_SECONDS = 5.0
"""Time for joins at shutdown. Remaining parts can be read, and the next process joins them."""
BUSY = 200.0
"""About a hundred rounds a second, or fewer that concern many buckets (``catalog.growth.growth.Load``)."""
DEAR_SEGMENT_PARTS = 10_000
DEAR_RUNS_TOGETHER = 8
DEAR_BEHIND_PARTS = 20_000
DEAR_BEHIND_SECONDS = 3.0
DEAR_FULL_PARTS = 20_000
"""On a standalone, a join costs several times as much as in a transaction: what cannot be joined as fast as it is
stored is better coalesced early."""
GROW_IN_PLACE = ("in_place", "native")
"""The write strategies with which no bucket grows in parts."""
WATCH_SECONDS = 1.0
"""Interval at which other processes of the proxy are detected."""
GONE_SECONDS = 5.0
"""Time for which a detected process counts as present; it may only be restarting."""


class Able(Protocol):
    """What decides how buckets can grow."""

    @property
    def profile(self) -> Profile:
        """The capabilities of the backend."""

    def may_on_cluster(self, action: str) -> Awaitable[bool]:
        """Whether the proxy's account has this privilege on the cluster; raises ``CommandError``."""
        ...


async def growth_of(settings: Settings, backend: Able) -> GrowthOptions:
    """Decide how buckets grow, before there are any parts.

    Logs a warning if the configured way is not possible, and what is missing for ``auto``.
    """
    profile = backend.profile
    if settings.write_strategy in GROW_IN_PLACE or not (profile.has_native_timeseries and profile.uses_buckets):
        return GrowthOptions()
    is_auto = settings.write_strategy == "auto"
    reason = await why_in_place(backend, asks=is_auto)
    if reason is None:
        _, sealed = joins_atomically(backend.profile)
        options = GrowthOptions(in_parts=True, busy=BUSY if is_auto else 0.0)
        if not sealed:
            return options
        return replace(
            options,
            sealed=True,
            segment_parts=DEAR_SEGMENT_PARTS,
            runs_together=DEAR_RUNS_TOGETHER,
            behind_parts=DEAR_BEHIND_PARTS,
            behind_seconds=DEAR_BEHIND_SECONDS,
            full_parts=DEAR_FULL_PARTS,
        )
    say = log.info if is_auto else log.warning
    say(IN_PLACE, reason=reason)
    return GrowthOptions()


async def why_in_place(backend: Able, *, asks: bool) -> str | None:
    """Why buckets cannot grow in parts, one of the messages above; ``None`` if they can. Raises ``CommandError``.

    ``asks``: whether the proxy asks for other readers, as it does with ``auto``.
    """
    able, _ = joins_atomically(backend.profile)
    if not able:
        return CANNOT_JOIN
    if not backend.profile.is_replica_set and not await backend.may_on_cluster("applyOps"):
        return MAY_NOT_JOIN
    # With "in_parts" this is the responsibility of the user.
    if asks and not await backend.may_on_cluster("inprog"):
        return MAY_NOT_ASK
    return None


def is_alone(settings: Settings, catalog: BucketCatalog, elsewhere: ReadersElsewhere) -> bool:
    """Whether no other process of the proxy is known; joins check again."""
    beside_others = catalog.growth.obstacles.is_beside_other_proxies or elsewhere.names()
    return settings.write_strategy == "auto" and not beside_others


class ProxyList(Protocol):
    """What the backend knows of other processes."""

    def proxies(self) -> Awaitable[Sequence[Proxy]]:
        """The other processes of the proxy, at most ``MOST_PROXIES``; raises ``CommandError``."""
        ...


class OtherProxies:
    """Prevents parts while the backend is used by processes of the proxy that cannot keep their readers waiting.

    Each process knows only its own readers, so its joins could affect readers of the others.
    """

    def __init__(self, catalog: BucketCatalog, others: ProxyList, keep_readers: Callable[[], AbstractSet[str]]) -> None:
        """``keep_readers``: the names of processes that can (``proxy.peers.holding``)."""
        self._catalog = catalog
        self._others = others
        self._keep_readers = keep_readers
        self._until_seconds = 0.0
        self._there_until_seconds = 0.0

    async def look(self) -> None:
        """Check once."""
        now_seconds = asyncio.get_running_loop().time()
        message = BESIDE_ANOTHER
        try:
            names = {each.name for each in await self._others.proxies()}
            if names:
                self._there_until_seconds = now_seconds + GONE_SECONDS
            if not names <= self._keep_readers() or len(names) >= MOST_PROXIES:
                self._until_seconds = now_seconds + GONE_SECONDS
            elif names:
                # A link tells at once, while a process that is not seen may only be starting again.
                self._until_seconds = 0.0
        except CommandError as error:
            # If it is unknown, assume that there is one; a backend that does not respond accepts no parts either.
            self._until_seconds = max(self._until_seconds, now_seconds + 2 * WATCH_SECONDS)
            message = UNKNOWN
            log.debug("cannot ask for other tsproxy processes", reason=error.message)
        is_obstacle = now_seconds < self._until_seconds
        are_there = is_obstacle or now_seconds < self._there_until_seconds
        obstacles = self._catalog.growth.obstacles
        if obstacles.beside_other_proxies(are_there=are_there, keep_readers=not is_obstacle):
            log.info(message if is_obstacle else NOT_BESIDE)

    async def watch(self) -> None:
        """Check forever."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.look()


async def readers_of(
    settings: Settings, backend: Backend, catalog: BucketCatalog, cursors: CursorNames
) -> tuple[ReaderRegister, ReadersElsewhere]:
    """Where growth in parts counts its readers; ``cursors`` are those of rewritten reads. Raises ``CommandError``."""
    # With "auto" there are no parts without this privilege.
    is_auto = settings.write_strategy == "auto"
    may_ask = is_auto or await backend.may_on_cluster("inprog")
    obstacles = catalog.growth.obstacles
    elsewhere = ReadersElsewhere(
        backend.others if may_ask else None, proxies_count=lambda: is_auto and not obstacles.others_read
    )
    register = ReaderRegister(cursors.is_open_in, cursors.killed, elsewhere)

    def gone(process: bytes) -> None:
        cursors.process_gone(process)
        register.relayed.process_gone(process)

    backend.members.follow_processes(gone)
    return register, elsewhere


@dataclass(frozen=True, slots=True)
class InParts:
    """The components that growth in parts requires."""

    readers: ReaderRegister
    elsewhere: ReadersElsewhere
    joining: Joining
    company: OtherProxies | None

    @classmethod
    async def of(
        cls,
        settings: Settings,
        backend: Backend,
        catalog: BucketCatalog,
        store: MongoBucketStore,
        clock: Clock,
        readers: tuple[ReaderRegister, ReadersElsewhere],
        options: JoiningOptions,
        forms: Forms,
    ) -> Self:
        """``readers`` is what ``readers_of`` made. Raises ``CommandError``."""
        register, elsewhere = readers
        is_auto = settings.write_strategy == "auto"
        company = OtherProxies(catalog, backend.others, elsewhere.names) if is_auto else None
        if company is not None:
            await company.look()
        joining = Joining(catalog, store, clock, register, options, _not_allowed, forms)
        return cls(register, elsewhere, joining, company)

    def link(self, holding: Holding, departed: DepartedProcesses, company: GatheringPeers) -> None:
        """Other processes can be asked from now on: to keep readers waiting, who has gone, and for their buckets."""
        self.elsewhere.ask(holding)
        self.joining.link(departed, company)

    def work(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """What goes on in the background."""
        watching = [] if self.company is None else [self.company.watch]
        return [self.joining.run, *watching]

    async def finish(self, patience_seconds: float) -> None:
        """Join what there is time for; there are no more readers."""
        self.readers.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(JOIN_AT_THE_END_SECONDS, max(patience_seconds, 0.0))):
                await self.joining.join_all()


def _not_allowed(error: CommandError) -> None:
    """Logs that a privilege has been lost since startup; ``catalog.background.joining`` ends growth in parts."""
    log.warning(MAY_NOT_ANY_MORE, reason=error.message)
