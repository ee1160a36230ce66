"""Retries commands of the proxy's own account after a step-down if that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from catalog.bson.codec import encode
from catalog.queries import NO_DOCUMENT
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LostAfterSending
from proxy.request.command_table import REPEATABLE
from proxy.upstream.not_primary import NotPrimary, not_primary

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.5


def may_repeat(body: Mapping[str, Any]) -> bool:
    """Whether a command can safely be sent twice.

    This holds for reads, for retryable writes, and for deletes that match nothing (which only check whether the backend
    refuses the command).
    """
    deletes = body.get("deletes", ())
    of_nothing = bool(deletes) and all(each["q"] == NO_DOCUMENT for each in deletes)
    return next(iter(body)) in REPEATABLE or "stmtId" in body or of_nothing


async def request(pool: ServicePool, body: Mapping[str, Any], deadline_seconds: float) -> bytes:
    """Send ``body`` to the primary, again after a step-down; returns the raw reply.

    Raises ``BackendUnavailable`` if there is no reply by the deadline.
    """
    message, repeatable = encode(body), may_repeat(body)
    now_seconds = asyncio.get_running_loop().time
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        is_late = now_seconds() + pause_seconds >= deadline_seconds
        try:
            reply = await pool.request(message, deadline_seconds)
        except LostAfterSending:
            if is_late or not repeatable:
                raise
        else:
            verdict = not_primary(reply)
            if verdict is None:
                return reply
            pool.forget_primary()
            if is_late or not (repeatable or verdict is NotPrimary.REFUSED):
                return reply
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
