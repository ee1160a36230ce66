"""Counts of observations by size, and the quantiles that can be told from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

HELD_BOUNDS_SECONDS: Final[tuple[float, ...]] = (0.001, 0.002_5, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts of observations by upper bound. ``bounds`` ascend; the last count is for values above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each upper bound as text with the number of observations up to it, ending with ``+Inf``."""
        reached = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            reached += count
            yield bound, reached


class Held(Histogram):
    """How long the event loop was blocked, and the longest time since the last scrape."""

    __slots__ = ("longest_seconds",)

    def __init__(self) -> None:
        super().__init__(HELD_BOUNDS_SECONDS)
        self.longest_seconds = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        super().observe(value)
        self.longest_seconds = max(self.longest_seconds, value)

    def take_longest_seconds(self) -> float:
        """The longest time since the previous call."""
        taken, self.longest_seconds = self.longest_seconds, 0.0
        return taken


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value that ``share`` of the observations do not exceed, interpolated within its bound.

    ``counts`` are those of a ``Histogram`` with these ``bounds``, or a difference of two. Values above the last bound
    count as this bound. ``None`` if there are no observations.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    reached, below = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and reached + count >= wanted:
            return below + (bound - below) * (wanted - reached) / count
        reached += count
        below = bound
    return below
