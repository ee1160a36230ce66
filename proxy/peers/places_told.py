"""Which buckets another process has made, as its pings tell.

Bucket ids have a place, which a process counts up from its first one (``catalog.parts``). So two numbers tell whether
an id is of a process that is still there, or of one that has gone.
"""

from __future__ import annotations

import math
from typing import Final

from catalog.parts import is_among

MOST_BETWEEN_PINGS_SECONDS: Final = 1.0
"""Pings that come in shorter intervals have not been under way for long."""
STEADY_SECONDS: Final = 2.0
"""Time after a longer gap in which pings may arrive that were sent before it."""


class PlacesTold:
    """How many places a process has used."""

    __slots__ = ("_pinged_seconds", "_places", "_steady_seconds")

    def __init__(self) -> None:
        self._places = 0
        self._pinged_seconds = -math.inf
        self._steady_seconds = math.inf
        """Since when pings have come without a gap."""

    def pinged(self, places: int, now_seconds: float) -> None:
        """A ping has come."""
        self._places = places
        if now_seconds - self._pinged_seconds > MOST_BETWEEN_PINGS_SECONDS:
            self._steady_seconds = now_seconds
        self._pinged_seconds = now_seconds

    def may_have_made(self, first_place: int, stored_id: bytes, now_seconds: float) -> bool:
        """Whether the process may have made this id, unless that was within the latest ``STEADY_SECONDS``."""
        is_steady = now_seconds - self._steady_seconds >= STEADY_SECONDS
        if not is_steady or now_seconds - self._pinged_seconds > MOST_BETWEEN_PINGS_SECONDS:
            return True
        return is_among(first_place, self._places, stored_id)
