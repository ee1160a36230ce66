"""What was measured of a load: counts, latencies and errors, and the figures that follow from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pymongo.errors import AutoReconnect, BulkWriteError, OperationFailure, PyMongoError, ServerSelectionTimeoutError

PERCENTILES: Final = (50, 95, 99)
BUSY_SHARE: Final = 0.85
"""A load process that uses more of one core than this limits the rate itself."""
_RESOLUTION: Final = 1.02
"""Latencies are counted in classes whose bounds differ by this factor."""
_FASTEST_SECONDS: Final = 1e-6


class Latencies:
    """A histogram of durations, exact to two percent and of bounded size."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[math.ceil(math.log(max(seconds, _FASTEST_SECONDS) / _FASTEST_SECONDS, _RESOLUTION))] += 1

    def percentile_ms(self, percent: float) -> float | None:
        """The duration that ``percent`` of all do not exceed, in milliseconds; ``None`` without any."""
        total = self.counts.total()
        if not total:
            return None
        wanted, reached = math.ceil(total * percent / 100), 0
        for position in sorted(self.counts):
            reached += self.counts[position]
            if reached >= wanted:
                return 1000 * _FASTEST_SECONDS * _RESOLUTION**position
        raise AssertionError("unreachable")


@dataclass(slots=True)
class Tally:
    """The numbers of one load process, or of several, in one round.

    ``rows``: acknowledged; ``check``: the sum of their check values. ``unknown_rows``: those whose commands ended
    without a reply. ``cpu_seconds``: of the load processes; ``busiest_share``: of one core, by the busiest of them.
    """

    seconds: float = 0.0
    rows: int = 0
    check: int = 0
    unknown_rows: int = 0
    commands: int = 0
    reads: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    inserting: Latencies = field(default_factory=Latencies)
    reading: Latencies = field(default_factory=Latencies)
    cpu_seconds: float = 0.0
    busiest_share: float = 0.0

    def add(self, other: Tally) -> None:
        """Add the numbers of another process in the same round."""
        self.seconds = max(self.seconds, other.seconds)
        self._add_counts(other)
        self.busiest_share = max(self.busiest_share, other.busiest_share)

    def follow(self, other: Tally) -> None:
        """Add the numbers of another round."""
        self.seconds += other.seconds
        self._add_counts(other)
        self.busiest_share = max(self.busiest_share, other.busiest_share)

    def _add_counts(self, other: Tally) -> None:
        self.rows += other.rows
        self.check += other.check
        self.unknown_rows += other.unknown_rows
        self.commands += other.commands
        self.reads += other.reads
        self.errors += other.errors
        self.inserting.counts += other.inserting.counts
        self.reading.counts += other.reading.counts
        self.cpu_seconds += other.cpu_seconds

    @property
    def rate(self) -> float:
        """Acknowledged rows in a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def is_limited_by_client(self) -> bool:
        """Whether a load process was busy nearly all the time, so that the server was not."""
        return self.busiest_share > BUSY_SHARE


def class_of(error: PyMongoError) -> str:
    """The class of an error: the name and code that the server sends, or else the name of the driver's type."""
    details: object = getattr(error, "details", None)
    if isinstance(error, BulkWriteError) and isinstance(details, dict) and details.get("writeErrors"):
        first = details["writeErrors"][0]
        return f"write error {first.get('code')}"
    if isinstance(error, OperationFailure) and error.code is not None:
        name = details.get("codeName", "") if isinstance(details, dict) else ""
        return f"{name} ({error.code})" if name else f"error {error.code}"
    return type(error).__name__


def is_unknown(error: PyMongoError) -> bool:
    """Whether the rows of the command may be stored all the same: there was no reply, or one that leaves it open."""
    if isinstance(error, ServerSelectionTimeoutError):
        # It was not sent.
        return False
    return isinstance(error, AutoReconnect) or error.timeout


def median(values: Sequence[float]) -> float:
    """The middle one, or the mean of the two in the middle; ``values`` is not empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster one side is than the other: the median of all rounds, the least and the greatest."""

    median: float
    least: float
    greatest: float


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """The ratio of each pair; ``None`` if a denominator is 0, or there is no pair."""
    if not denominators or not all(denominators):
        return None
    ratios = [one / other for one, other in zip(numerators, denominators, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))
