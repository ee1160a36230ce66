"""Handles commands whose primary has stepped down or was lost.

A command that may be sent again goes to the next primary. A login cannot be transferred, so a client that has logged in
needs a new connection: its old one is closed, but only when there is a new primary. Drivers retry a command only once
and immediately, on any of their connections, and report a second failure to the application.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from proxy.request.attempt import Primary
from proxy.request.session import Session

SETTLING_SECONDS: Final = (1.0, 1.5)
"""Time in which drivers notice that the connections in their pools are invalid: each process takes one between these.

If two proxies closed the connections of their clients at the same moment, the only retry of a driver would often go to
the other proxy when its pool for that one is being emptied.
"""


class Failover:
    """Asks whether the primary has moved, and waits for the next one."""

    def __init__(self, has_left: Callable[[str], Awaitable[bool]], next_primary: Callable[[], Awaitable[None]]) -> None:
        """``has_left``: whether a server is no longer the primary; ``next_primary`` waits for one, for limited time."""
        self._has_left = has_left
        self._next_primary = next_primary
        self._settling_seconds = random.uniform(*SETTLING_SECONDS)  # noqa: S311 - nothing secret

    async def ask(self, session: Session) -> Primary:
        """The state of the primary, after a reply "not primary" or a lost connection.

        Returns ``MOVED_FROM_LOGIN`` only when there is a primary again, or none was found in time.
        """
        upstream = session.upstream
        if not upstream.address or not await self._has_left(upstream.address):
            return Primary.STAYS
        if not upstream.is_bound:
            return Primary.MOVED
        await self._next_primary()
        if not upstream.is_retired:
            return Primary.MOVED
        await asyncio.sleep(self._settling_seconds)
        return Primary.MOVED_FROM_LOGIN
