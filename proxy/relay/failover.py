"""What becomes of a command whose primary was lost under it.

A command that may be sent again goes to the next primary. A login cannot be taken there, so a client that has logged in
has to come again over a new connection: its own is closed, but not before there is a next primary. Drivers repeat a
command once and at once, over any connection that they have, and a second failure is the application's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from proxy.request.attempt import Primary
from proxy.request.session import Session

SETTLING_SECONDS: Final = 0.5
"""Drivers hear at once that the connections in their pools are no good, but not all at the same moment."""


class Failover:
    """Finds out, and waits where that is right."""

    def __init__(self, has_left: Callable[[str], Awaitable[bool]], next_primary: Callable[[], Awaitable[None]]) -> None:
        """``has_left`` tells whether a server is primary no more; ``next_primary`` waits for one, not for ever."""
        self._has_left = has_left
        self._next_primary = next_primary

    async def ask(self, session: Session) -> Primary:
        """What became of the primary, after a reply that says "not primary", or a lost connection.

        Returns ``MOVED_FROM_LOGIN`` only when there is a primary again, or none came in time.
        """
        upstream = session.upstream
        if not upstream.address or not await self._has_left(upstream.address):
            return Primary.STAYS
        if not upstream.is_bound:
            return Primary.MOVED
        await self._next_primary()
        if not upstream.is_retired:
            return Primary.MOVED
        await asyncio.sleep(SETTLING_SECONDS)
        return Primary.MOVED_FROM_LOGIN
