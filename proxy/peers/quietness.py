"""Waits until what another process has sent to the backend is over, because it cannot be asked.

A process under load always has operations at the backend. So those that are found at first are waited for, not those
that follow: once the process knows that it was given up, they are of no concern (``catalog.commit.reclaiming``).

What it has relayed goes over its clients' connections, but the backend shows the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from catalog.errors import CommandError
from proxy.backend.current_op import Activity

QUIET_SECONDS: Final = 10.0
"""How long operations are waited for."""
QUIET_PAUSE_SECONDS: Final = 0.03
"""Pause between two looks at the operations."""
QUIET_LOOKS: Final = 3
"""The operations that this many looks have found are waited for."""


class Quiet(Enum):
    """Whether a process is quiet."""

    ABSENT = "it has no connection"
    QUIET = "its operations have ended"
    NOT_YET = "some have not ended in time, or it is not known"


async def until_quiet(
    activity: Callable[[str], Awaitable[Activity]],
    name: str,
    knows_seconds: float,
    now_seconds: Callable[[], float],
) -> Quiet:
    """Wait until the process with this name is quiet, or for ``QUIET_SECONDS``.

    ``activity`` tells what it does at the backend; raises ``CommandError``. From ``knows_seconds`` on, the process
    knows that it was given up.
    """
    until_seconds = now_seconds() + QUIET_SECONDS
    looks, operations = 0, frozenset[str]()
    while now_seconds() < until_seconds:
        with suppress(CommandError):
            seen = await activity(name)
            if not seen.is_connected:
                return Quiet.ABSENT
            if looks < QUIET_LOOKS:
                operations |= seen.operations
                looks += now_seconds() >= knows_seconds
            else:
                operations &= seen.operations
            if looks == QUIET_LOOKS and not operations:
                return Quiet.QUIET
        await asyncio.sleep(QUIET_PAUSE_SECONDS)
    return Quiet.NOT_YET


async def is_over(quiet: Quiet, fence: Callable[[], Awaitable[None]]) -> bool:
    """Whether nothing of a process that was waited for follows; ``fence`` sees to it that its network brings nothing.

    It raises ``CommandError``.
    """
    if quiet is not Quiet.QUIET:
        return quiet is Quiet.ABSENT
    try:
        await fence()
    except CommandError:
        return False
    return True


async def until_over(executes: Callable[[], Awaitable[bool]], now_seconds: Callable[[], float]) -> bool:
    """Wait until the backend executes nothing more of some sessions, for ``QUIET_SECONDS`` at most; whether it does.

    ``executes`` tells whether it does at the moment; raises ``CommandError``.
    """
    until_seconds = now_seconds() + QUIET_SECONDS
    while now_seconds() < until_seconds:
        with suppress(CommandError):
            if not await executes():
                return True
        await asyncio.sleep(QUIET_PAUSE_SECONDS)
    return False
