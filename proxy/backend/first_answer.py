"""Checks at the start whether the backend responds, before other components depend on it."""

from __future__ import annotations

from functools import partial
from typing import Final

from pymongo import AsyncMongoClient

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.driver_calls import DriverCalls
from proxy.upstream.not_primary import NOT_PRIMARY_CODES

AUTHENTICATION_FAILED: Final = 18

_PASSING: Final = frozenset({89, 91, 133, 11600, *NOT_PRIMARY_CODES})
"""Errors of a server that starts, stops, or has no primary."""


async def first_answer(uri: str, timeout_seconds: float) -> None:
    """Ask the primary, the standalone or a mongos once, with the credentials of ``uri``.

    Raises ``CommandError``, which is a ``BackendUnavailable`` if there is no answer in time.
    """
    timeout_ms = max(int(timeout_seconds * 1000), 1)
    calls = DriverCalls(
        partial(AsyncMongoClient, uri, serverSelectionTimeoutMS=timeout_ms, connectTimeoutMS=timeout_ms)
    )
    try:
        await calls.ask(lambda client: client.admin.command("ping"))
    finally:
        await calls.aclose()


def may_pass(error: CommandError) -> bool:
    """Whether a later attempt may succeed without a change at the proxy."""
    if error.code == AUTHENTICATION_FAILED:
        return False
    return isinstance(error, BackendUnavailable) or error.code in _PASSING
