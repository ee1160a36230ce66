"""Lets a read from another member begin once that member has every join of bucket parts that was committed before.

Joins wait for the readers of their database, wherever these read. But a member applies a join some time after the
primary, perhaps in the middle of a read that began meanwhile, which then returns rows twice or misses them. So the
first read of a database from a member after a join waits until the member has what the primary has written by then. A
member that is further behind is left: the primary answers instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import bson
from bson import Timestamp

from catalog.bounded import BoundedCache
from catalog.bson.codec import TOLERANT
from catalog.errors import BackendUnavailable, CommandError
from proxy.request.session import Session

CATCH_UP_SECONDS: Final = 0.5
"""Maximum time that a read waits for its member."""
_FIRST_PAUSE_SECONDS: Final = 0.002
_LONGEST_PAUSE_SECONDS: Final = 0.05
KNOWN_BYTES: Final = 1_048_576
"""Limit of the members and databases for which it is recorded that no read has to wait."""

MemberAddress = tuple[str, int | None]
RunOnPrimary = Callable[[str, dict[str, Any]], Awaitable[bytes]]

_HELLO: Final = {"hello": 1}
_NEVER: Final = Timestamp(0, 0)


class JoinsApplied:
    """Knows for each member and database up to which join a read meets none."""

    def __init__(self, joins: Callable[[str], int], run_on_primary: RunOnPrimary) -> None:
        """``joins(database)`` rises with each join of that database, by whatever process."""
        self._joins = joins
        self._run_on_primary = run_on_primary
        self._known: BoundedCache[tuple[MemberAddress, str], int] = BoundedCache(KNOWN_BYTES, _weight)

    def are_certain(self, member: MemberAddress, database: str) -> bool:
        """Whether the member has applied all joins that were committed by now."""
        return self._known.peek((member, database)) == self._joins(database)

    async def awaited(self, session: Session, database: str) -> bool:
        """Wait for the member of ``session``; false if it is too far behind, or does not respond.

        The caller counts as a reader, so that no join begins meanwhile.
        """
        assert session.member is not None
        joins = self._joins(database)
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                wanted = _written(await self._run_on_primary("admin", _HELLO))
        except (BackendUnavailable, CommandError, TimeoutError):
            # Without a primary there is nobody else to read from.
            return True
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._caught_up(session, wanted)
        except (BackendUnavailable, CommandError, TimeoutError):
            return False
        self._known.put((session.member, database), joins)
        return True

    async def _caught_up(self, session: Session, wanted: Timestamp) -> None:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while _written(await session.upstream.run("admin", _HELLO)) < wanted:
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)


def _weight(key: tuple[MemberAddress, str], joins: int) -> int:
    (host, _), database = key
    return len(host) + 4 * len(database)


def _written(reply: bytes) -> Timestamp:
    """The time of the last write that a member of a set has, from its reply to ``hello``."""
    optime = bson.decode(reply, codec_options=TOLERANT).get("lastWrite", {}).get("opTime", {})
    written = optime.get("ts")
    return written if isinstance(written, Timestamp) else _NEVER
