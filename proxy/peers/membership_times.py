"""What a process remembers of when others were there."""

from __future__ import annotations

import asyncio
import math


class MembershipTimes:
    """Moments of the clock that goes on while the process is stopped, and how often something has happened."""

    __slots__ = (
        "beat",
        "certain_until",
        "contested",
        "departures",
        "gone_until",
        "is_lapsed",
        "looked",
        "looks_begun",
        "wakes",
    )

    def __init__(self, now_seconds: float) -> None:
        self.beat = now_seconds
        """When this process was last known to run."""
        self.certain_until = math.inf
        self.contested = -math.inf
        """When statements in progress were contested last."""
        self.gone_until = -math.inf
        self.is_lapsed = False
        self.departures = 0
        self.looks_begun = 0
        self.looked = 0
        """The number of the latest look that succeeded."""
        self.wakes = asyncio.Event()
        """Set when something has happened to a link, so that ``watch`` looks at once."""
