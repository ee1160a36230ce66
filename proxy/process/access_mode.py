"""What follows from how time-series collections are read and written (``rewrite.profile.Access``).

The access is chosen when the proxy connects to the backend, and may change while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from importlib import metadata
from typing import Any

import structlog

from catalog.catalog import BucketCatalog
from catalog.commit.committer import Committer
from catalog.commit.reclaiming import Reclaiming
from catalog.commit.restart_dedup import RestartDedup
from catalog.ports import Clock
from proxy.backend.access_probe import Followers
from proxy.backend.backend import Backend
from proxy.clients.server import Server
from proxy.inserts.coalescing import WHOLE_ALONE_DOCUMENTS, WHOLE_DOCUMENTS, Coalescer
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.native_staging import NativeStaging
from proxy.inserts.small_inserts import SmallInserts
from proxy.observe.access_numbers import AccessNumbers
from proxy.request.command_table import ON_BUCKETS
from rewrite.commands.reading import FASTER_ON_VIEW
from rewrite.profile import Profile, Why

log = structlog.get_logger(__name__)


def about(catalog: BucketCatalog, profile: Profile) -> dict[str, Any]:
    """What ``serverStatus`` and ``buildInfo`` say of the proxy."""
    growth = "in_parts" if catalog.growth.is_in_parts else "in_place"
    return {
        "version": metadata.version("tsproxy"),
        "mode": growth if profile.uses_buckets else "native",
        "access": profile.access.value,
        "accessReason": profile.reason,
    }


def translated(commands: Collection[str], profile: Profile) -> frozenset[str]:
    """Those of the ``commands`` with a rewriter that are rewritten with this access; others are relayed."""
    if profile.uses_buckets:
        return frozenset(commands)
    kept = FASTER_ON_VIEW | ({"getMore"} if profile.had_buckets else set())
    return frozenset(commands) - (ON_BUCKETS - kept)


def tell(profile: Profile) -> None:
    """Log the access; a warning if it is native because the account lacks privileges."""
    say = log.warning if profile.why is Why.RIGHTS else log.info
    say("access to time-series collections", access=profile.access.value, reason=profile.reason)


class AccessMode:
    """Makes the components follow the access of the backend; ``coalescer`` inserts natively."""

    def __init__(
        self,
        backend: Backend,
        catalog: BucketCatalog,
        committer: Committer,
        ingest: InsertHandler,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        coalesces_small: bool = False,
    ) -> None:
        """``spawn`` owns look-ups of stored rows; ``coalesces_small``: see ``proxy.inserts.small_inserts``."""
        self._backend = backend
        self._catalog = catalog
        self._committer = committer
        self._ingest = ingest
        store, options = backend.collection_store(), committer.options
        patience_seconds = options.server_selection_timeout_seconds

        def search(work: Coroutine[Any, Any, None]) -> None:
            spawn(work)

        dedup = RestartDedup(store, clock, options.restart_window_seconds, patience_seconds, search)
        self.reclaiming = Reclaiming(dedup)
        self.coalescer = Coalescer(
            store,
            clock,
            lambda: committer.options,
            committer.report,
            committer.precedence,
            self.reclaiming,
            whole_documents=WHOLE_ALONE_DOCUMENTS if backend.profile.is_standalone else WHOLE_DOCUMENTS,
        )
        self._dedup = dedup
        self._native = NativeStaging(self.coalescer, ingest.statements, dedup, ingest.slices)
        may_insert = backend.probe.may_insert
        self._small = SmallInserts(catalog, self._native, may_insert) if coalesces_small else None

    @property
    def numbers(self) -> AccessNumbers:
        """The metrics."""

        def access() -> tuple[str, str]:
            profile = self._backend.profile
            return profile.access.value, profile.why.value

        return AccessNumbers(access, self.coalescer.metrics)

    def pursued(self) -> tuple[int, int]:
        """The measurements of coalesced inserts with an unknown outcome that are pursued, and their bytes."""
        return self.coalescer.pursued()

    def sentence(self) -> str:
        """What ``/readyz`` says of the access; ``""`` if the backend has no time-series collections."""
        profile = self._backend.profile
        if not profile.has_native_timeseries:
            return ""
        return f"access to time-series collections: {profile.access.value} ({profile.reason})"

    def begin(self, server: Server, commands: Collection[str]) -> None:
        """``server`` is about to serve clients; ``commands`` have a rewriter."""

        def follow() -> None:
            profile = self._backend.profile
            if profile.has_native_timeseries:
                tell(profile)
            if profile.uses_buckets:
                self._ingest.use(None, self._small)
            else:
                self._ingest.use(self._native)
            server.translate(translated(commands, profile))

        def changed() -> None:
            self._forget()
            follow()

        def covered(database: str) -> None:
            self._committer.restart_dedup.doubt(database)
            self._dedup.doubt(database)

        self._backend.probe.follow(Followers(changed, covered))
        follow()

    async def drain(self, patience_seconds: float) -> bool:
        """Wait until no write is in progress; false if some were cancelled after ``patience_seconds``."""
        drained = await asyncio.gather(self._committer.drain(patience_seconds), self.coalescer.drain(patience_seconds))
        return all(drained)

    def _forget(self) -> None:
        """Forget what is known of stored buckets and of collections: it may not hold later."""
        for collection in self._backend.registry.known():
            self._catalog.drop(collection.namespace)
            self._backend.registry.forget(collection.namespace)
