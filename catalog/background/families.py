"""Which buckets of several processes belong together: the *families* of one series, within one span.

The process that gathers (``catalog.background.gathering``) is told of all buckets that rest. The bucket of a family
that starts first gets the rows of the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from catalog.buckets.resting import Rested
from catalog.parts import bucket_key

MOST_BUCKETS: Final = 30_000
"""Maximum number of remembered buckets, less than 1 KiB each; above it, the series reported first are forgotten."""
MOST_OF_A_SERIES: Final = 16
"""Maximum number of remembered buckets of one series."""
SETTLED_SECONDS: Final = 1.5
"""Wait this long after the last report of a series: all processes report within it."""
BUCKETS_AT_ONCE: Final = 500
"""Maximum number of buckets examined in one piece, apart from those of the last series."""


class Bounds(NamedTuple):
    """What one bucket of a collection may have."""

    span_seconds: int
    rows: int
    size_bytes: int


class Family(NamedTuple):
    """Buckets that may be one: the one that starts first, of the process ``owner``, and the others with theirs."""

    owner: str
    stored_id: bytes
    others: Sequence[tuple[str, bytes]]


class _Series:
    __slots__ = ("buckets", "told_seconds")

    def __init__(self) -> None:
        self.buckets: dict[bytes, tuple[str, Rested]] = {}
        """By ``bucket_key``, with the name of the owner."""
        self.told_seconds = 0.0


class Families:
    """Remembers what all processes told, and finds families."""

    def __init__(self) -> None:
        self._series: OrderedDict[bytes, _Series] = OrderedDict()
        """In the order of their latest reports."""
        self._waiting: OrderedDict[bytes, None] = OrderedDict()
        """Series reported since they were examined, in the same order; the others cannot have families."""
        self._buckets = 0

    def told(self, owner: str, rested: Iterable[Rested], now_seconds: float) -> None:
        """A process reports its buckets; a bucket already reported by another process is ignored."""
        for each in rested:
            series = self._series.get(each.series)
            if series is None:
                series = self._series[each.series] = _Series()
            key = bucket_key(each.stored_id)
            known = series.buckets.get(key)
            if known is not None and known[0] != owner:
                continue
            if known is None:
                self._buckets += 1
                if len(series.buckets) == MOST_OF_A_SERIES:
                    del series.buckets[next(iter(series.buckets))]
                    self._buckets -= 1
            series.buckets[key] = owner, each
            series.told_seconds = now_seconds
            self._series.move_to_end(each.series)
            self._waiting[each.series] = None
            self._waiting.move_to_end(each.series)
        while self._buckets > MOST_BUCKETS:
            self._forget(next(iter(self._series)))

    def is_due(self, now_seconds: float) -> bool:
        """Whether a series can be examined."""
        first = next(iter(self._waiting), None)
        return first is not None and now_seconds - self._series[first].told_seconds >= SETTLED_SECONDS

    def due(self, now_seconds: float, bounds: Callable[[bytes], Bounds | None]) -> list[Family]:
        """Families of some series that nobody reported for ``SETTLED_SECONDS``; their buckets are forgotten.

        ``bounds`` gives those of a collection; ``None``: this process does not know it yet. What has no family waits
        until it is told of again.
        """
        found: list[Family] = []
        left = BUCKETS_AT_ONCE
        while left > 0 and self.is_due(now_seconds):
            key, _ = self._waiting.popitem(last=False)
            series = self._series[key]
            left -= len(series.buckets)
            limits = bounds(next(iter(series.buckets.values()))[1].collection)
            if limits is None:
                series.told_seconds = now_seconds
                self._waiting[key] = None
                continue
            families = _families(series, limits)
            for family in families:
                for stored_id in (family.stored_id, *(each for _, each in family.others)):
                    del series.buckets[bucket_key(stored_id)]
                    self._buckets -= 1
            found += families
            if not series.buckets:
                self._forget(key)
        return found

    def _forget(self, key: bytes) -> None:
        self._buckets -= len(self._series.pop(key).buckets)
        self._waiting.pop(key, None)

    def forget_all(self) -> None:
        """Another process gathers from now on."""
        self._series.clear()
        self._waiting.clear()
        self._buckets = 0


def _families(series: _Series, limits: Bounds) -> list[Family]:
    found: list[Family] = []
    if len({owner for owner, _ in series.buckets.values()}) < 2:
        return found
    left = sorted(series.buckets.values(), key=lambda each: each[1].stored_id)
    while left:
        (owner, first), *rest = left
        left = []
        rows, size_bytes = first.rows, first.size_bytes
        others: list[tuple[str, bytes]] = []
        for name, each in rest:
            fits = rows + each.rows <= limits.rows and size_bytes + each.size_bytes <= limits.size_bytes
            if name != owner and fits and _start_seconds(each) - _start_seconds(first) < limits.span_seconds:
                others.append((name, each.stored_id))
                rows += each.rows
                size_bytes += each.size_bytes
            else:
                left.append((name, each))
        if others:
            found.append(Family(owner, first.stored_id, others))
    return found


def _start_seconds(rested: Rested) -> int:
    return int.from_bytes(rested.stored_id[:4], "big")
