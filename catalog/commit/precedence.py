"""How the rounds of large inserts give way to those of others.

A server that executes a command of hundreds of buckets delays the commits of all other clients: they wait for the
processors, and on a replica set also for earlier writes to become visible. So while others commit, a lane of large
inserts has one short round at a time.
"""

from __future__ import annotations

from typing import Final

from catalog.commit.round import RoundLimits
from catalog.ports import Clock

GIVES_WAY_SECONDS: Final = 0.25
"""Time after the start of another round for which large inserts give way."""
BULK: Final = RoundLimits(statements=250)
"""For rounds of large inserts, which also delay other clients while they are prepared and settled."""
GIVING_WAY: Final = RoundLimits(statements=100)
"""For rounds of large inserts while others commit; shorter ones would take the server much longer in all."""


class Precedence:
    """Decides how many rounds of a lane are in progress at the same time, and how large they are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gives_way_until_seconds = 0.0

    def began(self, *, is_bulk: bool) -> None:
        """A round begins now."""
        if not is_bulk:
            self._gives_way_until_seconds = self._clock.monotonic_seconds() + GIVES_WAY_SECONDS

    def rounds(self, at_most: int, *, is_bulk: bool) -> int:
        """Maximum number of concurrent rounds of one lane, of which others may have ``at_most``."""
        return 1 if is_bulk and self._gives_way() else at_most

    def limits(self, of_others: RoundLimits, *, is_bulk: bool) -> RoundLimits:
        """The limits of the next round of a lane."""
        if not is_bulk:
            return of_others
        return GIVING_WAY if self._gives_way() else BULK

    def _gives_way(self) -> bool:
        return self._clock.monotonic_seconds() < self._gives_way_until_seconds
