"""Counts what waits to be joined, and decides when joins are behind.

Parts can be made faster than they are joined. While so many wait that joining them would take long, small inserts go
another way (``BucketGrowth.is_scattered``), so that reads stay fast and the server's cache holds what is written.
"""

from __future__ import annotations

from catalog.growth.back_off import BackOff

BEHIND_SECONDS = 10.0
"""Joins are behind if the waiting parts would take them longer."""
FEWEST_BEHIND = 150_000
"""With fewer waiting parts they are not: some are of the current segment, and those of one or two more may wait."""
FULL = 100_000
"""With this many waiting parts, joins have all of the time."""
CAUGHT_UP = 0.25
"""They have caught up when this share of these parts is left."""
FIRST_HOLD_SECONDS = 20.0
LONGEST_HOLD_SECONDS = 320.0
"""Limits of the least time without new parts. It doubles while joins fall behind again soon after it."""
MEASURED_DOCUMENTS = 100
"""A pass that joins fewer says nothing about the rate."""
WEIGHT = 0.2
"""Weight of the latest pass in the rate."""


class Backlog:
    """The documents of all buckets that are stored in parts.

    ``unjoined``: parts and runs, beyond one for each bucket; ``fresh``: the parts among them, which are to become runs
    within seconds.
    """

    __slots__ = (
        "_behind_seconds",
        "_fewest_behind",
        "_full",
        "_hold",
        "_limit",
        "_per_second",
        "fresh",
        "is_behind",
        "unjoined",
    )

    def __init__(
        self, fewest_behind: int = FEWEST_BEHIND, full: int = FULL, behind_seconds: float = BEHIND_SECONDS
    ) -> None:
        """See ``FEWEST_BEHIND``, ``FULL`` and ``BEHIND_SECONDS``."""
        self._behind_seconds = behind_seconds
        self._fewest_behind = float(fewest_behind)
        self._full = full
        self.unjoined = 0
        self.fresh = 0
        self.is_behind = False
        """Whether parts are made faster than they are joined."""
        self._per_second = 0.0
        """Documents joined in a second, while a pass is in progress."""
        self._limit = self._fewest_behind
        self._hold = BackOff(FIRST_HOLD_SECONDS, LONGEST_HOLD_SECONDS)
        """While it is on, joins count as behind although they have caught up."""

    @property
    def pressure(self) -> float:
        """How many times what should wait at most does."""
        return self.fresh / self._full

    @property
    def fullness(self) -> float:
        """How much of what should wait at most does, at most 1."""
        return min(1.0, self.pressure)

    def stored(self) -> None:
        """One more part is stored."""
        self.unjoined += 1
        self.fresh += 1

    def removed(self, unjoined: int, fresh: int) -> None:
        """This many parts are joined, or will never be."""
        self.unjoined -= unjoined
        self.fresh -= fresh

    def measure(self, documents: int, seconds: float, now_seconds: float, *, had_all_time: bool = True) -> None:
        """A pass has joined this number of documents.

        ``had_all_time``: it has left no time to others on purpose. Otherwise it says nothing about the rate, and joins
        are not behind however much waits, as they will have more of the time.
        """
        if had_all_time and documents >= MEASURED_DOCUMENTS and seconds > 0:
            self._per_second += (documents / seconds - self._per_second) * (WEIGHT if self._per_second else 1.0)
        limit = self._limit = max(self._fewest_behind, self._behind_seconds * self._per_second)
        if not self.is_behind:
            self.is_behind = had_all_time and self.fresh > limit
            if self.is_behind:
                self._hold.begin(now_seconds)
        elif self.fresh < CAUGHT_UP * limit:
            self.is_behind = self._hold.is_on(now_seconds)
