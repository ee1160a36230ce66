"""Which namespaces are virtual, as the backend stores it (there is no other record).

One ``listCollections`` for each database tells all its time-series collections. A listing is used until it is
``refresh_seconds`` old; then the next lookup still gets it, and a new one is fetched meanwhile. One that nobody
renewed for ``STALE_FACTOR`` times that long is not trusted. What changes through this proxy is forgotten at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from catalog.errors import CommandError
from catalog.namespaces import BUCKETS_PREFIX, Namespace, TimeseriesOptions, VirtualCollection
from proxy.request.router import UNRESOLVED, Unresolved

STALE_FACTOR = 6

LISTING_FILTER: Mapping[str, Any] = {
    "$or": [
        {"type": "timeseries"},
        {"name": {"$regex": "^system\\.buckets\\."}, "options.timeseries": {"$exists": True}},
    ]
}

EXTENDED_RANGE = "extendedRange"
"""Added to entries: whether times may be stored for which bucket ids are not in the order of time (Q12)."""

LASTPOINT_INDEXES = "lastpointIndexes"
"""Added to entries: see ``VirtualCollection.lastpoint_indexes``."""


class _Listing:
    __slots__ = ("collections", "listed_at_seconds", "refreshing")

    def __init__(self, collections: dict[str, VirtualCollection], listed_at_seconds: float) -> None:
        self.collections = collections
        self.listed_at_seconds = listed_at_seconds
        self.refreshing = False


class NamespaceRegistry:
    """The virtual collections of each database that clients used."""

    def __init__(
        self,
        list_collections: Callable[[str, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        now_seconds: Callable[[], float],
        refresh_seconds: float,
    ) -> None:
        """``list_collections(database, filter)`` asks the backend; ``spawn`` owns background refreshes."""
        self._list_collections = list_collections
        self._spawn = spawn
        self._now_seconds = now_seconds
        self._refresh_seconds = refresh_seconds
        self._listings: dict[str, _Listing] = {}
        self._fetching: dict[str, asyncio.Future[dict[str, VirtualCollection]]] = {}

    def lookup(self, namespace: Namespace) -> VirtualCollection | Unresolved | None:
        """The collection; ``None`` when it is not virtual; ``UNKNOWN`` when the backend must be asked."""
        listing = self._listings.get(namespace.database)
        if listing is None:
            return UNRESOLVED
        age_seconds = self._now_seconds() - listing.listed_at_seconds
        if age_seconds > self._refresh_seconds:
            if age_seconds > self._refresh_seconds * STALE_FACTOR:
                return UNRESOLVED
            if not listing.refreshing:
                listing.refreshing = True
                self._spawn(self._refresh(namespace.database))
        return listing.collections.get(namespace.collection)

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``lookup``, asking the backend where needed; raises ``CommandError`` when it cannot be asked."""
        known = self.lookup(namespace)
        if not isinstance(known, Unresolved):
            return known
        return (await self._fetch(namespace.database)).get(namespace.collection)

    async def resolve_anew(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``resolve``, but never from memory."""
        self.forget(namespace)
        return await self.resolve(namespace)

    def forget(self, namespace: Namespace) -> None:
        """What is known of this namespace's database is stale."""
        self._listings.pop(namespace.database, None)
        # A listing that is being fetched right now may have been made before the change.
        self._fetching.pop(namespace.database, None)

    async def _refresh(self, database: str) -> None:
        listing = self._listings.get(database)
        try:
            await self._fetch(database)
        except CommandError:
            # The old listing stays until it is stale; the next command asks again.
            if listing is not None:
                listing.refreshing = False

    async def _fetch(self, database: str) -> dict[str, VirtualCollection]:
        fetching = self._fetching.get(database)
        if fetching is not None:
            return await asyncio.shield(fetching)
        fetching = self._fetching[database] = asyncio.get_running_loop().create_future()
        try:
            entries = await self._list_collections(database, LISTING_FILTER)
        except BaseException as error:
            if self._fetching.get(database) is fetching:
                del self._fetching[database]
            if not fetching.done():
                failure = (
                    error if isinstance(error, CommandError) else CommandError(6, "listing collections was interrupted")
                )
                fetching.set_exception(failure)
                fetching.exception()
            raise
        before = self._listings.get(database)
        collections = _keep_identity(virtual_collections(database, entries), before.collections if before else {})
        if self._fetching.get(database) is fetching:
            del self._fetching[database]
            self._listings[database] = _Listing(collections, self._now_seconds())
        if not fetching.done():
            fetching.set_result(collections)
        return collections


def virtual_collections(database: str, entries: list[dict[str, Any]]) -> dict[str, VirtualCollection]:
    """The time-series collections among ``listCollections`` entries: those with a view and buckets (C5, C20)."""
    buckets = {entry["name"]: entry for entry in entries if entry["name"].startswith(BUCKETS_PREFIX)}
    found: dict[str, VirtualCollection] = {}
    for entry in entries:
        stored = buckets.get(BUCKETS_PREFIX + entry["name"])
        if entry.get("type") != "timeseries" or stored is None:
            continue
        options = stored["options"]
        uuid = stored.get("info", {}).get("uuid")
        expiry = options.get("expireAfterSeconds")
        found[entry["name"]] = VirtualCollection(
            namespace=Namespace(database, entry["name"]),
            options=TimeseriesOptions.from_document(options["timeseries"]),
            uuid=bytes(uuid) if uuid is not None else b"",
            collation=options.get("collation"),
            expire_after_seconds=None if expiry is None else int(expiry),
            extended_range=bool(entry.get(EXTENDED_RANGE, False)),
            lastpoint_indexes=entry.get(LASTPOINT_INDEXES),
        )
    return found


def _details(collection: VirtualCollection) -> tuple[object, ...]:
    return collection, collection.collation, collection.extended_range, collection.lastpoint_indexes


def _keep_identity(
    new: dict[str, VirtualCollection], old: Mapping[str, VirtualCollection]
) -> dict[str, VirtualCollection]:
    """Equal collections stay the same objects, so that the hot path may compare them by identity."""
    for name, collection in new.items():
        before = old.get(name)
        if before is not None and _details(before) == _details(collection):
            new[name] = before
    return new
