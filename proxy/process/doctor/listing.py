"""Lists time-series collections and their indexes, within limits of number and time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from proxy.backend.lastpoint_indexes import telling_the_latest, usable_indexes
from proxy.backend.namespace_registry import LISTING_FILTER, virtual_collections
from proxy.process.doctor.found import Collections, SeriesIndexes
from proxy.request.ports import RunCommand

MOST_DATABASES: Final = 200
MOST_ENTRIES: Final = 2_000
"""Of a listing; each time-series collection has two, its view and its buckets."""
MOST_COLLECTIONS: Final = 500
"""Maximum number of collections whose indexes are looked at."""
LIST_SECONDS: Final = 15.0
"""Time for everything here; what was not looked at by then is reported as unknown."""

_INTERNAL: Final = frozenset({"admin", "config", "local"})


async def collections_of(run: RunCommand) -> Collections:
    """The time-series collections that the account sees; raises ``CommandError`` if it cannot list databases."""
    until_seconds = asyncio.get_running_loop().time() + LIST_SECONDS
    reply = await run("admin", {"listDatabases": 1, "nameOnly": True})
    names = [str(each["name"]) for each in reply.get("databases", ()) if each["name"] not in _INTERNAL]
    found: list[VirtualCollection] = []
    indexes: list[SeriesIndexes] = []
    unknown, asked, is_complete = 0, 0, len(names) <= MOST_DATABASES
    try:
        async with asyncio.timeout_at(until_seconds):
            for name in names[:MOST_DATABASES]:
                listed, whole = await _listed(run, name)
                is_complete = is_complete and whole
                found += listed
            for collection in found:
                if collection.options.meta_field is None:
                    continue
                if asked == MOST_COLLECTIONS:
                    is_complete = False
                    break
                asked += 1
                answer = await _indexes(run, collection, collection.options.meta_field)
                if answer is None:
                    unknown += 1
                else:
                    indexes.append(answer)
    except TimeoutError:
        is_complete = False
    return Collections(len(found), tuple(indexes), unknown, is_complete)


async def _listed(run: RunCommand, database: str) -> tuple[list[VirtualCollection], bool]:
    """The time-series collections of a database, and whether these are all."""
    body = {"listCollections": 1, "filter": LISTING_FILTER, "cursor": {"batchSize": MOST_ENTRIES}}
    try:
        entries, whole = await _first_batch(run, database, body)
    except CommandError:
        return [], False
    return list(virtual_collections(database, entries).values()), whole


async def _indexes(run: RunCommand, collection: VirtualCollection, meta_field: str) -> SeriesIndexes | None:
    """``None`` if the account may not see them."""
    namespace = collection.namespace
    try:
        batch, _ = await _first_batch(run, namespace.database, {"listIndexes": namespace.collection})
    except CommandError:
        return None
    reply = {"cursor": {"firstBatch": batch}}
    time_field = collection.options.time_field
    return SeriesIndexes(
        namespace,
        time_field,
        meta_field,
        finds_series=any(paths and paths[0] in ((meta_field, 1), (meta_field, -1)) for paths in usable_indexes(reply)),
        finds_latest=bool(telling_the_latest(reply, time_field)),
    )


async def _first_batch(run: RunCommand, database: str, body: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The first batch of a cursor, and whether it is all. No cursor stays open: joins would wait for it."""
    cursor = (await run(database, body))["cursor"]
    if cursor["id"]:
        with suppress(CommandError):
            name = str(cursor["ns"]).partition(".")[2]
            await run(database, {"killCursors": name, "cursors": [cursor["id"]]})
    return list(cursor["firstBatch"]), not cursor["id"]
