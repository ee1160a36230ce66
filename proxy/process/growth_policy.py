"""How buckets grow: as configured, if the backend, the account and other proxies allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

import structlog

from catalog.catalog import BucketCatalog
from catalog.errors import CommandError
from catalog.growth import GrowthOptions
from catalog.joining import Joining
from catalog.joining_pace import JoiningOptions
from catalog.ports import Clock
from catalog.replacing import Forms
from proxy.backend.backend import Backend
from proxy.backend.bucket_store import MongoBucketStore
from proxy.backend.parts.part_store import joins_atomically
from proxy.readers.register import ReaderRegister, nobody
from proxy.reads.cursor_names import CursorNames
from proxy.settings.table import Settings
from rewrite.profile import Profile

log = structlog.get_logger(__name__)

IN_PLACE = "buckets grow in place"
CANNOT_JOIN = "this backend cannot join parts; requires a replica set, or a standalone before 7.0"
MAY_NOT_JOIN = "the backend's account lacks the privilege applyOps on the cluster, which joining parts requires"
MAY_NOT_ASK = "the backend's account lacks the privilege inprog on the cluster, which detecting other readers requires"

MAY_NOT_ANY_MORE = "buckets grow in place from now on: the backend's account has lost the privilege to join parts"

BESIDE_ANOTHER = "another tsproxy uses the backend: buckets grow in place"
UNKNOWN = "the backend did not say whether another tsproxy uses it: buckets grow in place meanwhile"
ALONE_AGAIN = "no other tsproxy uses the backend: buckets grow in parts again"

JOIN_AT_THE_END_SECONDS = 5.0
"""Time for joins at shutdown. Remaining parts can be read, and the next process joins them."""
BUSY = 200.0
"""About a hundred rounds a second, or fewer that concern many buckets (``catalog.growth.Load``)."""
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
        return GrowthOptions(in_parts=True, sealed=sealed, busy=BUSY if is_auto else 0.0)
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


def is_alone(settings: Settings, catalog: BucketCatalog) -> bool:
    """Whether no other process of the proxy is known; joins check again."""
    return settings.write_strategy == "auto" and not catalog.growth.obstacles.is_beside_other_proxies


class Others(Protocol):
    """What the backend knows of other processes."""

    def are_proxies(self) -> Awaitable[bool]:
        """Whether other processes of the proxy are connected; raises ``CommandError``."""
        ...


class OtherProxies:
    """Prevents parts while other processes of the proxy use the backend.

    Each process knows only its own readers, so its joins could affect readers of the others.
    """

    def __init__(self, catalog: BucketCatalog, others: Others) -> None:
        self._catalog = catalog
        self._others = others
        self._until_seconds = 0.0

    async def look(self) -> None:
        """Check once."""
        now_seconds = asyncio.get_running_loop().time()
        message = BESIDE_ANOTHER
        try:
            if await self._others.are_proxies():
                self._until_seconds = now_seconds + GONE_SECONDS
        except CommandError as error:
            # If it is unknown, assume that there is one; a backend that does not respond accepts no parts either.
            self._until_seconds = max(self._until_seconds, now_seconds + 2 * WATCH_SECONDS)
            message = UNKNOWN
            log.debug("cannot ask for other tsproxy processes", reason=error.message)
        shared = now_seconds < self._until_seconds
        if self._catalog.growth.obstacles.beside_other_proxies(are_there=shared):
            log.info(message if shared else ALONE_AGAIN)

    async def watch(self) -> None:
        """Check forever."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.look()


async def readers_of(
    settings: Settings, backend: Backend, catalog: BucketCatalog, cursors: CursorNames
) -> ReaderRegister:
    """Where growth in parts counts its readers; ``cursors`` are those of rewritten reads. Raises ``CommandError``."""

    async def read_elsewhere(database: str) -> bool:
        return await backend.others.read(database, or_are_proxies=is_alone(settings, catalog))

    # With "auto" there are no parts without this privilege.
    may_ask = settings.write_strategy == "auto" or await backend.may_on_cluster("inprog")
    return ReaderRegister(cursors.is_open_in, cursors.killed, read_elsewhere if may_ask else nobody)


@dataclass(frozen=True, slots=True)
class InParts:
    """The components that growth in parts requires."""

    readers: ReaderRegister
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
        readers: ReaderRegister,
        options: JoiningOptions,
        forms: Forms,
    ) -> Self:
        """``readers`` is what ``readers_of`` made. Raises ``CommandError``."""
        company = OtherProxies(catalog, backend.others) if settings.write_strategy == "auto" else None
        if company is not None:
            await company.look()
        return cls(readers, Joining(catalog, store, clock, readers, options, _not_allowed, forms), company)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """The background tasks."""
        watching = [] if self.company is None else [self.company.watch()]
        return [self.joining.run(), *watching]

    async def finish(self, patience_seconds: float) -> None:
        """Join what there is time for; there are no more readers."""
        self.readers.closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(min(JOIN_AT_THE_END_SECONDS, max(patience_seconds, 0.0))):
                await self.joining.join_all()


def _not_allowed(error: CommandError) -> None:
    """Logs that a privilege has been lost since startup; ``catalog.joining`` ends growth in parts."""
    log.warning(MAY_NOT_ANY_MORE, reason=error.message)
