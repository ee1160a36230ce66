"""How buckets grow in front of this backend: as the setting says, where backend, account and company allow it."""

from __future__ import annotations

import asyncio

import structlog

from catalog.catalog import BucketCatalog, Growth
from catalog.errors import CommandError
from proxy.backend import Backend
from proxy.config import Settings
from proxy.other_clients import OtherClients
from proxy.part_store import joins_atomically

log = structlog.get_logger(__name__)

IN_PLACE = "buckets grow in place"
CANNOT_JOIN = "this backend cannot join parts; a replica set can, and a standalone before 7.0"
MAY_NOT_JOIN = "the backend's account may not join parts: it lacks applyOps on the cluster"
MAY_NOT_ASK = "the backend's account may not see who else reads: it lacks inprog on the cluster"

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
    able, sealed = joins_atomically(backend.profile)
    reason = None if able else CANNOT_JOIN
    if reason is None:
        reason = await _missing_right(backend, asks=settings.bucket_growth == "auto")
    if reason is None:
        return Growth(in_parts=True, sealed=sealed)
    say = log.info if settings.bucket_growth == "auto" else log.warning
    say(IN_PLACE, reason=reason)
    return Growth()


async def _missing_right(backend: Backend, *, asks: bool) -> str | None:
    if not await backend.may_on_cluster("applyOps") and not backend.profile.is_replica_set:
        return MAY_NOT_JOIN
    # With "in_parts" that is the user's own responsibility.
    if asks and not await backend.may_on_cluster("inprog"):
        return MAY_NOT_ASK
    return None


class Company:
    """Sees to it that no parts are made while other processes of the proxy use the backend.

    Each knows its own readers only, and what it joins would be met by the others'.
    """

    def __init__(self, catalog: BucketCatalog, others: OtherClients) -> None:
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
        if shared != self._catalog.is_shared:
            self._catalog.is_shared = shared
            log.info(
                "buckets grow in place while another tsproxy uses the backend"
                if shared
                else "no other tsproxy uses the backend: buckets grow in parts again"
            )

    async def watch(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.look()
