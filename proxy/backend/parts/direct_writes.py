"""Remembers in which collections this process has changed stored rows, other than by inserts and joins.

Deletes and updates of single measurements change parts in a way that the quick conditions of a join do not notice
(``proxy.backend.parts.join_operations``). So these hold only where there were no such writes for some time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from catalog.bounded import remember
from catalog.namespaces import Namespace

RECENT_SECONDS: Final = 60.0
"""How long a write may be in progress after it was noted: it changes some buckets, and notes the next ones again."""
REMEMBERED: Final = 1_000
"""Maximum number of collections whose latest write is known. All others count as written to when the last of those was
forgotten."""


class DirectWrites:
    """When each collection was last written to in this way."""

    __slots__ = ("_at_seconds", "_clock", "_others_seconds")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: a monotonic time in seconds."""
        self._clock = clock
        self._at_seconds: OrderedDict[Namespace, float] = OrderedDict()
        """In the order of time."""
        self._others_seconds = float("-inf")

    def note(self, namespace: Namespace) -> None:
        """Buckets of this collection are about to be changed, or have just been."""
        forgotten_seconds = remember(self._at_seconds, namespace, self._clock(), REMEMBERED)
        if forgotten_seconds is not None:
            self._others_seconds = forgotten_seconds

    def are_recent(self, namespace: Namespace) -> bool:
        """Whether a write may still be in progress."""
        return self.since(namespace, self._clock() - RECENT_SECONDS)

    def since(self, namespace: Namespace, seconds: float) -> bool:
        """Whether there was a write at this time or later."""
        return self._at_seconds.get(namespace, self._others_seconds) >= seconds

    def now(self) -> float:
        """The time, for ``since``."""
        return self._clock()
