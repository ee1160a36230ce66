"""How much of the backend's cache open buckets may fill (W51)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from bson import encode

from catalog.bson.codec import decode
from catalog.errors import CommandError

log = structlog.get_logger(__name__)

SHARE: Final = 0.5
"""The part of the cache that servers leave to open buckets."""

_QUESTION: Final = encode({"serverStatus": 1, **dict.fromkeys(("repl", "metrics", "locks"), 0), "$db": "admin"})


async def cache_share_bytes(request: Callable[[bytes, float], Awaitable[bytes]], deadline_seconds: float) -> int:
    """The share of the primary's cache; 0 if the account may not ask, or the backend has none, such as a mongos.

    ``request`` sends a command to the primary before a deadline, and returns its reply.
    """
    try:
        reply: dict[str, Any] = decode(await request(_QUESTION, deadline_seconds))
    except CommandError as error:
        log.debug("the size of the backend's cache is unknown", error=error.message)
        return 0
    cache_bytes = reply.get("wiredTiger", {}).get("cache", {}).get("maximum bytes configured", 0)
    return int(cache_bytes * SHARE)
