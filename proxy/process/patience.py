"""Waits for a backend that is not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from catalog.errors import CommandError
from proxy.backend.first_answer import may_pass

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 5.0
REPEAT_SECONDS: Final = 60.0
"""Time after which the log repeats a reason that has not changed."""

log = structlog.get_logger(__name__)


async def until_reached(attempt: Callable[[], Awaitable[T]], waiting: Callable[[CommandError], str]) -> T:
    """The result of the first attempt that succeeds.

    ``waiting`` is called after each attempt that failed, and returns the reason for the log. Raises ``CommandError`` if
    a later attempt cannot succeed either.
    """
    now_seconds = asyncio.get_running_loop().time
    pause_seconds, told, told_at_seconds = FIRST_PAUSE_SECONDS, "", 0.0
    while True:
        try:
            return await attempt()
        except CommandError as error:
            if not may_pass(error):
                raise
            reason = waiting(error)
        if reason != told or now_seconds() >= told_at_seconds + REPEAT_SECONDS:
            log.warning("waiting for the backend", reason=reason)
            told, told_at_seconds = reason, now_seconds()
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, LONGEST_PAUSE_SECONDS)
