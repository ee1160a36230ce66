"""Whether a collection contains times for which bucket ids are not in the order of time (Q12).

From 6.0 the server detects this when buckets are written, and reports it in the unpack stage of every read on the view
as ``usesExtendedRange``. Explaining a read returns it without reading anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from catalog.errors import CommandError
from proxy.request.ports import RunCommand

_AT_ONCE = 8


async def extended_range(run: RunCommand, database: str, names: list[str]) -> dict[str, bool]:
    """For each collection whether such times may be stored; ``True`` if the server does not report it."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> bool:
        async with turns:
            try:
                reply = await run(database, {"explain": {"find": name}, "verbosity": "queryPlanner"})
            except CommandError:
                return True
        return may_hold_extended_range(reply)

    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


def may_hold_extended_range(reply: Mapping[str, Any]) -> bool:
    """The value in the explanation of a read on the view."""
    stages = reply.get("command", {}).get("pipeline", [])
    unpacking = [stage["$_internalUnpackBucket"] for stage in stages if "$_internalUnpackBucket" in stage]
    return not unpacking or unpacking[0].get("usesExtendedRange") is not False
