"""The last minutes of the proxy, in points: what happened between one reading and the next.

A reading is taken every two seconds, whoever looks, so that a page that is opened after something has happened shows
it. A point is encoded once, however often it is asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from proxy.observe.histograms import quantile
from proxy.observe.metrics import LATENCY_BOUNDS_SECONDS
from proxy.observe.readings import ErrorKey, Reading

SAMPLE_SECONDS: Final = 2.0
MOST_POINTS: Final = 150
"""Five minutes."""
NOW_SECONDS: Final = 10.0
"""The time that figures of "now" are about."""
SHARES: Final = (0.5, 0.95, 0.99)

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Span:
    """What happened in some time: increases, as in ``Reading``, without those that are 0."""

    seconds: float
    counts: Mapping[str, int]
    latencies: Mapping[str, tuple[int, ...]]
    errors: Mapping[ErrorKey, int]
    rollovers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Point:
    """One span in the history. ``encoded`` is it in JSON."""

    number: int
    span: Span
    encoded: msgspec.Raw


def quantiles_ms(counts: Sequence[int]) -> list[float]:
    """The quantiles of ``SHARES`` in milliseconds; empty if there were no observations."""
    found = [quantile(LATENCY_BOUNDS_SECONDS, counts, share) for share in SHARES]
    return [round(seconds * 1000, 3) for seconds in found if seconds is not None]


class History:
    """The latest points, oldest first."""

    def __init__(self, read: Callable[[], Reading], now_ms: Callable[[], int]) -> None:
        """``now_ms`` is the time of the day, for people."""
        self._read = read
        self._now_ms = now_ms
        self.latest = read()
        self._points: deque[Point] = deque(maxlen=MOST_POINTS)
        self._number = 0
        self._spans: dict[float, Span] = {}
        """The results of ``last`` until the next reading, so that many pages cost hardly more than one."""

    async def run(self, also: Callable[[], Any]) -> None:
        """Take readings until the task is cancelled; ``also`` is awaited after each."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self.sample()
            await also()

    def sample(self) -> None:
        """Take a reading, and add a point."""
        before, after = self.latest, self._read()
        span = between(before, after)
        self.latest = after
        self._spans.clear()
        self._number += 1
        shown = {
            "number": self._number,
            "at": self._now_ms(),
            "seconds": round(span.seconds, 3),
            "ready": after.is_ready,
            "counts": span.counts,
            "gauges": after.gauges,
            "ways": {way: [sum(counts), *quantiles_ms(counts)] for way, counts in span.latencies.items()},
        }
        self._points.append(Point(self._number, span, msgspec.Raw(msgspec.json.encode(shown))))

    def after(self, number: int) -> list[msgspec.Raw]:
        """The points after this one; all if there is none of this number, as after a restart of the proxy."""
        first = number if number <= self._number else 0
        return [point.encoded for point in self._points if point.number > first]

    def last(self, seconds: float) -> Span:
        """What happened in the points of the last ``seconds``; for a few different values of these."""
        known = self._spans.get(seconds)
        if known is None:
            known = self._spans[seconds] = self._last(seconds)
        return known

    def _last(self, seconds: float) -> Span:
        spans: list[Span] = []
        total_seconds = 0.0
        for point in reversed(self._points):
            # A reading may be some milliseconds late.
            if spans and total_seconds + point.span.seconds > seconds + SAMPLE_SECONDS / 2:
                break
            spans.append(point.span)
            total_seconds += point.span.seconds
        return total(spans)


def between(before: Reading, after: Reading) -> Span:
    """The increases from one reading to the next."""
    latencies: dict[str, tuple[int, ...]] = {}
    for way, counts in after.latencies.items():
        earlier = before.latencies.get(way)
        increases = counts if earlier is None else tuple(map(int.__sub__, counts, earlier))
        if any(increases):
            latencies[way] = increases
    return Span(
        seconds=after.at_seconds - before.at_seconds,
        counts=_increases(before.counts, after.counts),
        latencies=latencies,
        errors=_increases(before.errors, after.errors),
        rollovers=_increases(before.rollovers, after.rollovers),
    )


def _increases(before: Mapping[K, int], after: Mapping[K, int]) -> dict[K, int]:
    # What falls was dropped with its collection.
    return {key: count - before.get(key, 0) for key, count in after.items() if count > before.get(key, 0)}


def total(spans: Iterable[Span]) -> Span:
    """All of these together."""
    seconds = 0.0
    counts: Counter[str] = Counter()
    errors: Counter[ErrorKey] = Counter()
    rollovers: Counter[str] = Counter()
    found: dict[str, list[tuple[int, ...]]] = {}
    for span in spans:
        seconds += span.seconds
        counts.update(span.counts)
        errors.update(span.errors)
        rollovers.update(span.rollovers)
        for way, each in span.latencies.items():
            found.setdefault(way, []).append(each)
    latencies = {way: tuple(map(sum, zip(*each, strict=True))) for way, each in found.items()}
    return Span(seconds, counts, latencies, errors, rollovers)


def wall_ms() -> int:
    """The time of the day in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
