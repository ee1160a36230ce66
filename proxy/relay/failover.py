"""What becomes of a command whose primary was lost under it.

A command that may be sent again goes to the next primary. A login cannot be taken there, so a client that has logged in
has to come again over a new connection: its own is closed, but not before there is a next primary. Drivers repeat a
command once and at once, over any connection that they have, and a second failure is the application's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final

from proxy.request.session import Session

SETTLING_SECONDS: Final = 0.5
"""Drivers hear at once that the connections in their pools are no good, but not all at the same moment."""


class Way(Enum):
    """How it goes on."""

    STAYS = auto()
    """The server is primary still, so something else went wrong, which is the client's to know."""
    AGAIN = auto()
    """The command may be sent again over the session's upstream."""
    ANEW = auto()
    """There is a primary again, and the client has to log in there: close its connection."""


class Failover:
    """Finds out, and waits where that is right."""

    def __init__(self, has_left: Callable[[str], Awaitable[bool]], next_primary: Callable[[], Awaitable[None]]) -> None:
        """``has_left`` tells whether a server is primary no more; ``next_primary`` waits for one, not for ever."""
        self._has_left = has_left
        self._next_primary = next_primary

    async def way_on(self, session: Session) -> Way:
        """After a reply that says "not primary", or a lost connection."""
        upstream = session.upstream
        if not upstream.address or not await self._has_left(upstream.address):
            return Way.STAYS
        if not upstream.is_bound:
            return Way.AGAIN
        await self._next_primary()
        if not upstream.is_retired:
            return Way.AGAIN
        await asyncio.sleep(SETTLING_SECONDS)
        return Way.ANEW
