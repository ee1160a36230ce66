"""What the stored buckets of a collection may contain, as the server says when it explains a read of the view.

From 6.0 its unpack stage says whether there are times for which bucket ids are not in the order of time (Q12,
``usesExtendedRange``), and that no bucket has values of different types in one field (Q16,
``assumeNoMixedSchemaData``): 5.0 makes such buckets, and later servers keep them. To explain reads nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.errors import CommandError
from proxy.request.ports import RunCommand

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ExplainedView:
    """``extended_range`` and ``mixed_types`` of a ``VirtualCollection``; true if the server does not say it."""

    extended_range: bool = True
    mixed_types: bool = True


async def explained_views(run: RunCommand, database: str, names: list[str]) -> dict[str, ExplainedView]:
    """What the server says of each collection."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> ExplainedView:
        async with turns:
            try:
                reply = await run(database, {"explain": {"find": name}, "verbosity": "queryPlanner"})
            except CommandError:
                return ExplainedView()
        return explained_view(reply)

    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


def explained_view(reply: Mapping[str, Any]) -> ExplainedView:
    """From the explanation of a read on the view."""
    for stage in reply.get("command", {}).get("pipeline", []):
        unpack = stage.get("$_internalUnpackBucket")
        if unpack is not None:
            return ExplainedView(
                extended_range=unpack.get("usesExtendedRange") is not False,
                mixed_types=unpack.get("assumeNoMixedSchemaData") is not True,
            )
    return ExplainedView()
