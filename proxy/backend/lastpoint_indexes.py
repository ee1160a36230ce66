"""Indexes that support reads of the latest measurements (Q23).

In an index on a meta path and then, descending, on time, the latest bucket of each series comes first, so a server
finds it without reading the others. This only affects how the latest measurements are queried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from catalog.errors import CommandError
from catalog.namespaces import LONGEST_FIELD_NAME
from proxy.request.ports import RunCommand

LastpointIndexes = frozenset[tuple[str, int]]
"""The first paths of such indexes, with their directions (1 or -1)."""

_AT_ONCE = 8
_NOT_ALL = ("hidden", "partialFilterExpression", "sparse")


async def lastpoint_indexes(
    run: RunCommand, database: str, time_fields: Mapping[str, str]
) -> dict[str, LastpointIndexes | None]:
    """For each collection, given by name with its time field; ``None`` if the server does not report it."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str, time_field: str) -> LastpointIndexes | None:
        async with turns:
            try:
                reply = await run(database, {"listIndexes": name})
            except CommandError:
                return None
        return telling_the_latest(reply, time_field)

    found = await asyncio.gather(*(ask(name, time_field) for name, time_field in time_fields.items()))
    return dict(zip(time_fields, found, strict=True))


def telling_the_latest(reply: Mapping[str, Any], time_field: str) -> LastpointIndexes:
    """From a reply to ``listIndexes``; indexes of further batches, and of very long paths, are ignored."""
    return frozenset(
        (str(paths[0][0]), int(paths[0][1]))
        for paths in usable_indexes(reply)
        if len(paths) > 1
        and paths[1] == (time_field, -1)
        and paths[0][1] in (1, -1)
        and len(paths[0][0]) <= LONGEST_FIELD_NAME
    )


def usable_indexes(reply: Mapping[str, Any]) -> Iterator[list[tuple[str, Any]]]:
    """The keys of those indexes in a reply to ``listIndexes`` that contain every bucket and may be used."""
    for index in reply.get("cursor", {}).get("firstBatch", ()):
        if not any(index.get(option) for option in _NOT_ALL):
            yield list(index.get("key", {}).items())
