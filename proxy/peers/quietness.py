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
"""Between two looks, what a process has sent may be about to begin."""
QUIET_LOOKS_BEHIND_FENCES: Final = 1
"""What it has sent before, and has not begun, is refused (``proxy.backend.fences``)."""


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
    *,
    is_fenced: bool = False,
) -> Quiet:
    """Wait until the process with this name is quiet, or for ``QUIET_SECONDS``.

    ``activity`` tells what it does at the backend; raises ``CommandError``. From ``knows_seconds`` on, the process
    knows that it was given up; operations that are found then are waited for. ``is_fenced``: what it had sent, and the
    backend has not begun to execute, is not executed later.
    """
    until_seconds = now_seconds() + QUIET_SECONDS
    wanted_looks = QUIET_LOOKS_BEHIND_FENCES if is_fenced else QUIET_LOOKS
    looks, operations = 0, frozenset[str]()
    while now_seconds() < until_seconds:
        with suppress(CommandError):
            seen = await activity(name)
            if not seen.is_connected:
                return Quiet.ABSENT
            if looks < wanted_looks:
                operations |= seen.operations
                looks += now_seconds() >= knows_seconds
            else:
                operations &= seen.operations
            if looks == wanted_looks and not operations:
                return Quiet.QUIET
        await asyncio.sleep(QUIET_PAUSE_SECONDS)
    return Quiet.NOT_YET


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
