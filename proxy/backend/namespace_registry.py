"""Determines which namespaces are virtual, from the backend's list of collections.

One ``listCollections`` for each database returns all its time-series collections. A listing is used until it is
``refresh_seconds`` old; then the next lookup still uses it, and a new one is fetched in the background. A listing that
is ``STALE_FACTOR`` times older is not used. When a command through this proxy changes a collection, only that one is
forgotten, and is looked up by itself before its next use, so the other collections of the database are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from catalog.bounded import BoundedCache
from catalog.errors import CommandError
from catalog.namespaces import BUCKETS_PREFIX, LONGEST_FIELD_NAME, Namespace, TimeseriesOptions, VirtualCollection
from proxy.backend.explained_views import ExplainedView
from proxy.request.router import UNRESOLVED, Unresolved

STALE_FACTOR = 2

_SHORT: Mapping[str, Any] = {"$not": {"$regex": f"^.{{{LONGEST_FIELD_NAME + 1}}}", "$options": "s"}}

LISTING_FILTER: Mapping[str, Any] = {
    "$or": [
        {"type": "timeseries"},
        {"name": {"$regex": "^system\\.buckets\\."}, "options.timeseries": {"$exists": True}},
    ],
    "options.timeseries.timeField": _SHORT,
    "options.timeseries.metaField": _SHORT,
}
"""Time-series collections, without those whose field names are too long, which could be hundreds of megabytes."""

MOST_DOUBTFUL = 1_000
"""Maximum number of forgotten collections of a database; above it, the whole database is listed again."""

VIEW = "explainedView"
"""Added to entries of views: their ``ExplainedView``."""

_NOT_EXPLAINED = ExplainedView(extended_range=False, mixed_types=False)
"""Where no read is rewritten, it does not matter."""

LASTPOINT_INDEXES = "lastpointIndexes"
"""Added to entries: see ``VirtualCollection.lastpoint_indexes``."""


TRUSTED_SECONDS = 0.5
"""Time for which a name that is not in a listing is no time-series collection, although others have changed since."""


class _Listing:
    __slots__ = ("collections", "doubtful", "listed_at_seconds", "refreshing", "size_bytes")

    def __init__(self, collections: dict[str, VirtualCollection], listed_at_seconds: float, doubtful: set[str]) -> None:
        """``doubtful``: names whose collections may have changed since."""
        self.collections = collections
        self.listed_at_seconds = listed_at_seconds
        self.doubtful = doubtful
        self.refreshing = False
        self.size_bytes = sum(map(_weight, collections.values()))

    def put(self, name: str, collection: VirtualCollection | None) -> None:
        """Add or replace the collection of this name, or remove it."""
        before = self.collections.pop(name, None)
        self.size_bytes -= _weight(before) if before is not None else 0
        if collection is not None:
            self.collections[name] = collection
            self.size_bytes += _weight(collection)


LISTINGS_BYTES = 32 << 20
"""Limit of the listings of all databases. A listing that is in use is fetched again, and then counts as used."""


MOST_RENEWED = 100
"""Maximum number of databases that are listed at once; others are listed before their next use."""

EXTENDED_BYTES = 1 << 20
"""Limit of the names of which other processes have told that distant times are stored."""


def _weight(collection: VirtualCollection) -> int:
    """An upper bound of the memory of a collection in a listing, at four bytes for each character."""
    options, collation, indexes = collection.options, collection.collation or {}, collection.lastpoint_indexes or ()
    characters = 2 * len(collection.namespace.collection) + len(options.time_field) + len(options.meta_field or "")
    # A server accepts only fields of a collation that it knows.
    values = sum(len(value) for value in collation.values() if isinstance(value, str))
    paths = sum(len(path) + 50 for path, _ in indexes)
    return 4 * (characters + values + paths) + 2_000


def _weight_of_listing(database: str, listing: _Listing) -> int:
    return 4 * len(database) + 1_000 + listing.size_bytes


class _Fetch:
    """A running query: for a whole database, or for one collection."""

    __slots__ = ("doubtful", "found")

    def __init__(self) -> None:
        self.found: asyncio.Future[dict[str, VirtualCollection]] = asyncio.get_running_loop().create_future()
        self.doubtful: set[str] = set()
        """Names that have changed during the query, so that its result may be outdated."""

    def fail(self, error: CommandError) -> None:
        """The query has failed; all its callers may have given up."""
        self.found.set_exception(error)
        self.found.exception()


class NamespaceRegistry:
    """The virtual collections of each database that clients used."""

    def __init__(
        self,
        list_collections: Callable[[str, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        now_seconds: Callable[[], float],
        refresh_seconds: float,
    ) -> None:
        """``list_collections(database, filter)`` asks the backend; ``spawn`` owns the tasks of the queries."""
        self._list_collections = list_collections
        self._spawn = spawn
        self._now_seconds = now_seconds
        self.refresh_seconds = refresh_seconds
        self._listings: BoundedCache[str, _Listing] = BoundedCache(LISTINGS_BYTES, _weight_of_listing)
        self._fetching: dict[Namespace, _Fetch] = {}
        self._extended: BoundedCache[Namespace, bool] = BoundedCache(
            EXTENDED_BYTES, lambda name, _: 4 * (len(name.database) + len(name.collection)) + 500
        )

    def lookup(self, namespace: Namespace) -> VirtualCollection | Unresolved | None:
        """The collection; ``None`` when it is not virtual; ``UNRESOLVED`` when the backend must be asked."""
        listing = self._listings.peek(namespace.database)
        if listing is None or (listing.doubtful and namespace.collection in listing.doubtful):
            return UNRESOLVED
        age_seconds = self._now_seconds() - listing.listed_at_seconds
        if age_seconds > self.refresh_seconds:
            if age_seconds > self.refresh_seconds * STALE_FACTOR:
                return UNRESOLVED
            self._renew(namespace.database, listing)
        found = listing.collections.get(namespace.collection)
        if found is not None or not listing.doubtful:
            return found
        # If one collection has changed, others may have, through another proxy: one that was missing may exist now. But
        # a database whose collections change all the time must not be listed for each command.
        return None if age_seconds < TRUSTED_SECONDS else UNRESOLVED

    def known(self) -> list[VirtualCollection]:
        """All collections in memory, also those whose listings are outdated."""
        return [each for _, listing in self._listings.items() for each in listing.collections.values()]

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``lookup``, asking the backend if needed; raises ``CommandError`` if it does not respond."""
        known = self.lookup(namespace)
        if not isinstance(known, Unresolved):
            return known
        whole = Namespace(namespace.database, "")
        # A fresh listing in which only this name is doubtful, or a running query that may be older than its change.
        for source in (self._fresh(namespace.database), self._fetching.get(whole)):
            if source is not None and namespace.collection in source.doubtful:
                found = (await self._fetch(namespace)).get(namespace.collection)
                if found is not None:
                    return found
                break
        return (await self._fetch(whole)).get(namespace.collection)

    def _fresh(self, database: str) -> _Listing | None:
        listing = self._listings.peek(database)
        is_old = (
            listing is None or self._now_seconds() - listing.listed_at_seconds > self.refresh_seconds * STALE_FACTOR
        )
        return None if is_old else listing

    async def resolve_anew(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``resolve``, but never from memory."""
        self.forget(namespace)
        return await self.resolve(namespace)

    def forget(self, namespace: Namespace) -> None:
        """The cached state of this collection is outdated; with an empty name, that of the whole database."""
        database, name = namespace.database, namespace.collection
        listing, under_way = self._listings.peek(database), self._fetching.get(Namespace(database, ""))
        # The result of a running query may be from before the change.
        self._fetching.pop(namespace, None)
        for known in (listing, under_way):
            if known is not None:
                known.doubtful.add(name)
        if not name or any(known is not None and len(known.doubtful) > MOST_DOUBTFUL for known in (listing, under_way)):
            self._listings.discard(database)
            self._fetching.pop(Namespace(database, ""), None)

    def note_extended_range(self, namespace: Namespace) -> None:
        """Another process stores the first time of this collection for which bucket ids are not in order (Q12).

        It may not be stored yet, so the backend may not know of it when it is asked next.
        """
        self._extended.put(namespace, True)
        listing = self._listings.peek(namespace.database)
        if listing is not None and (known := listing.collections.get(namespace.collection)) is not None:
            listing.put(namespace.collection, replace(known, extended_range=True))

    def renew_all(self) -> None:
        """What is cached may be outdated: list the databases again. Until that is done, it is used.

        Commands that have just been routed by it rely on it, such as a ``getMore`` of another process's cursor.
        """
        listings = list(self._listings.items())
        for database, _ in listings[:-MOST_RENEWED]:
            self._listings.discard(database)
        for database, listing in listings[-MOST_RENEWED:]:
            self._renew(database, listing)

    def _renew(self, database: str, listing: _Listing) -> None:
        if not listing.refreshing:
            listing.refreshing = True
            self._spawn(self._refresh(database))

    async def _refresh(self, database: str) -> None:
        listing = self._listings.peek(database)
        try:
            await self._fetch(Namespace(database, ""))
        except CommandError:
            # The old listing is kept until it is stale; the next command starts another query.
            if listing is not None:
                listing.refreshing = False

    async def _fetch(self, namespace: Namespace) -> dict[str, VirtualCollection]:
        """The virtual collections of a database, or the one of this name. Concurrent callers share a query."""
        fetch = self._fetching.get(namespace)
        if fetch is None:
            fetch = self._fetching[namespace] = _Fetch()
            # A task of its own, so that a caller that is cancelled does not end the query for the others.
            self._spawn(self._answer(namespace, fetch))
        return await asyncio.shield(fetch.found)

    async def _answer(self, namespace: Namespace, fetch: _Fetch) -> None:
        try:
            fetch.found.set_result(await self._ask(namespace, fetch))
        except CommandError as error:
            fetch.fail(error)
        except BaseException:
            fetch.fail(CommandError(6, "listing collections was interrupted"))
            raise
        finally:
            if self._fetching.get(namespace) is fetch:
                del self._fetching[namespace]

    async def _ask(self, namespace: Namespace, fetch: _Fetch) -> dict[str, VirtualCollection]:
        entries = await self._list_collections(namespace.database, _filter(namespace))
        listing = self._listings.peek(namespace.database)
        before = listing.collections if listing is not None else {}
        collections = virtual_collections(namespace.database, entries)
        for name, collection in collections.items():
            if not collection.extended_range and self._extended.peek(collection.namespace):
                collections[name] = replace(collection, extended_range=True)
        collections = _keep_identity(collections, before)
        if self._fetching.get(namespace) is fetch:
            self._learn(namespace, fetch, collections)
        return collections

    def _learn(self, namespace: Namespace, fetch: _Fetch, collections: dict[str, VirtualCollection]) -> None:
        """Record the result of a query, except for names that have changed during it."""
        database, name = namespace.database, namespace.collection
        if not name:
            self._listings.put(database, _Listing(collections, self._now_seconds(), fetch.doubtful))
            return
        listing = self._listings.peek(database)
        if listing is None:
            return
        if name in collections:
            listing.doubtful.discard(name)
            listing.doubtful.add("")
        listing.put(name, collections.get(name))
        # Its weight has changed.
        self._listings.put(database, listing)


def _filter(namespace: Namespace) -> Mapping[str, Any]:
    if not namespace.collection:
        return LISTING_FILTER
    names = [namespace.collection, BUCKETS_PREFIX + namespace.collection]
    return {"$and": [{"name": {"$in": names}}, LISTING_FILTER]}


def needed_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is used of an entry of ``listCollections``. Other options, such as ``storageEngine``, may be of any size."""
    options = entry.get("options", {})
    kept = {name: options[name] for name in ("timeseries", "collation") if name in options}
    return {**{name: entry[name] for name in ("name", "type", "info") if name in entry}, "options": kept}


def virtual_collections(database: str, entries: list[dict[str, Any]]) -> dict[str, VirtualCollection]:
    """The time-series collections among ``listCollections`` entries: those with a view and buckets (C5, C20).

    A server that has lost the buckets of a collection, or their options, still lists its view. Those whose field names
    are too long are left out (``LONGEST_FIELD_NAME``).
    """
    buckets = {entry["name"]: entry for entry in entries if entry["name"].startswith(BUCKETS_PREFIX)}
    found: dict[str, VirtualCollection] = {}
    for entry in entries:
        # A server that does not list buckets shows the collection itself as what is stored.
        is_stored_itself = "uuid" in entry.get("info", {})
        stored = buckets.get(BUCKETS_PREFIX + entry["name"], entry if is_stored_itself else None)
        if entry.get("type") != "timeseries" or stored is None:
            continue
        options = stored["options"]
        fields = options.get("timeseries")
        if fields is None or max(len(fields["timeField"]), len(fields.get("metaField", ""))) > LONGEST_FIELD_NAME:
            continue
        uuid = stored.get("info", {}).get("uuid")
        view = entry.get(VIEW, _NOT_EXPLAINED)
        found[entry["name"]] = VirtualCollection(
            namespace=Namespace(database, entry["name"]),
            options=TimeseriesOptions.from_document(fields),
            uuid=bytes(uuid) if uuid is not None else b"",
            collation=options.get("collation"),
            extended_range=view.extended_range,
            mixed_types=view.mixed_types,
            lastpoint_indexes=entry.get(LASTPOINT_INDEXES),
        )
    return found


def _details(collection: VirtualCollection) -> tuple[object, ...]:
    facts = collection.extended_range, collection.mixed_types, collection.lastpoint_indexes
    return collection, collection.collation, facts


def _keep_identity(
    new: dict[str, VirtualCollection], old: Mapping[str, VirtualCollection]
) -> dict[str, VirtualCollection]:
    """The new collections, with the old objects for equal ones, so that they can be compared by identity."""
    for name, collection in new.items():
        before = old.get(name)
        if before is not None and _details(before) == _details(collection):
            new[name] = before
    return new
