"""How buckets grow in front of this backend: as the setting says, where backend, account and company allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

import structlog

from catalog.catalog import BucketCatalog, Growth
from catalog.errors import CommandError
from catalog.joining import Joining, JoiningOptions
from catalog.ports import Clock
from catalog.replacing import Forms
from proxy.backend.backend import Backend
from proxy.backend.bucket_store import MongoBucketStore
from proxy.backend.parts.part_store import joins_atomically
from proxy.readers.register import ReaderRegister, nobody
from proxy.reads.cursor_names import CursorNames
from proxy.settings.table import Settings

log = structlog.get_logger(__name__)

IN_PLACE = "buckets grow in place"
CANNOT_JOIN = "this backend cannot join parts; requires a replica set, or a standalone before 7.0"
MAY_NOT_JOIN = "the backend's account lacks the privilege applyOps on the cluster, which joining parts requires"
MAY_NOT_ASK = "the backend's account lacks the privilege inprog on the cluster, which detecting other readers requires"

MAY_NOT_ANY_MORE = "buckets grow in place from now on: the backend's account has lost the privilege to join parts"

JOIN_AT_THE_END_SECONDS = 5.0
"""What joining may add to the time that stopping takes; parts that are left are read, and joined by the next one."""
BUSY = 200.0
"""About a hundred rounds a second, or fewer that concern many buckets (``catalog.hindrances.Load``)."""
WATCH_SECONDS = 1.0
"""How soon another process of the proxy is noticed."""
GONE_SECONDS = 5.0
"""How long one that was seen counts as present: it may only be starting again."""


async def growth_of(settings: Settings, backend: Backend) -> Growth:
    """How buckets grow, found out before there are any parts.

    What somebody asked for by name and cannot have is a warning; what is missing for ``auto`` is said, too.
    """
    if settings.bucket_growth == "in_place":
        return Growth()
    is_auto = settings.bucket_growth == "auto"
    able, sealed = joins_atomically(backend.profile)
    reason = await _missing_right(backend, asks=is_auto) if able else CANNOT_JOIN
    if reason is None:
        return Growth(in_parts=True, sealed=sealed, busy=BUSY if is_auto else 0.0)
    say = log.info if is_auto else log.warning
    say(IN_PLACE, reason=reason)
    return Growth()


async def _missing_right(backend: Backend, *, asks: bool) -> str | None:
    if not backend.profile.is_replica_set and not await backend.may_on_cluster("applyOps"):
        return MAY_NOT_JOIN
    # With "in_parts" that is the user's own responsibility.
    if asks and not await backend.may_on_cluster("inprog"):
        return MAY_NOT_ASK
    return None


def is_alone(settings: Settings, catalog: BucketCatalog) -> bool:
    """Whether no other process of the proxy is there, as far as is known; joins ask again."""
    return settings.bucket_growth == "auto" and not catalog.hindrances.is_shared


class Others(Protocol):
    """See ``proxy.backend.current_op``."""

    def are_proxies(self) -> Awaitable[bool]:
        """Whether other processes of the proxy are connected; raises ``CommandError``."""
        ...


class OtherProxies:
    """Sees to it that no parts are made while other processes of the proxy use the backend.

    Each knows its own readers only, and what it joins would be met by the others'.
    """

    def __init__(self, catalog: BucketCatalog, others: Others) -> None:
        self._catalog = catalog
        self._others = others
        self._until_seconds = 0.0

    async def look(self) -> None:
        """Look once."""
        now_seconds = asyncio.get_running_loop().time()
        try:
            if await self._others.are_proxies():
                self._until_seconds = now_seconds + GONE_SECONDS
        except CommandError:
            # Unknown is not alone; a backend that does not answer takes no parts either.
            self._until_seconds = max(self._until_seconds, now_seconds + 2 * WATCH_SECONDS)
        shared = now_seconds < self._until_seconds
        if shared != self._catalog.hindrances.is_shared:
            self._catalog.hindrances.is_shared = shared
            log.info(
                "another tsproxy uses the backend: buckets grow in place"
                if shared
                else "no other tsproxy uses the backend: buckets grow in parts again"
            )

    async def watch(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.look()


@dataclass(frozen=True, slots=True)
class InParts:
    """What growth in parts needs besides."""

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
        cursors: CursorNames,
        options: JoiningOptions,
        forms: Forms,
    ) -> Self:
        """``cursors`` are those of rewritten reads. Raises ``CommandError``."""
        company = OtherProxies(catalog, backend.others) if settings.bucket_growth == "auto" else None
        if company is not None:
            await company.look()

        async def read_elsewhere(database: str) -> bool:
            return await backend.others.read(database, or_are_proxies=is_alone(settings, catalog))

        # With "auto" there would be no parts without that right.
        may_ask = company is not None or await backend.may_on_cluster("inprog")
        readers = ReaderRegister(cursors.is_open_in, cursors.killed, read_elsewhere if may_ask else nobody)
        return cls(readers, Joining(catalog, store, clock, readers, options, _not_allowed, forms), company)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on in the background."""
        watching = [] if self.company is None else [self.company.watch()]
        return [self.joining.run(), *watching]

    async def finish(self) -> None:
        """No reader comes any more: join what there is time for."""
        self.readers.closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(JOIN_AT_THE_END_SECONDS):
                await self.joining.join_all()


def _not_allowed(error: CommandError) -> None:
    """A right that was there at the start is missing now; what becomes of growth is in ``catalog.joining``."""
    log.warning(MAY_NOT_ANY_MORE, reason=error.message)
