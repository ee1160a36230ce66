"""The collections that most measurements are written to, found by looking at their counters from time to time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.namespaces import Namespace

LOOK_SECONDS: Final = 10.0
MOST_COLLECTIONS: Final = 10_000
"""All further ones are not looked at."""
LOOKED_AT_ONCE: Final = 250
"""Collections that are looked at in one turn of the event loop."""
MOST_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Busy:
    """One collection, and what was committed to it between the last two looks."""

    namespace: Namespace
    measurements: int
    measurements_per_commit: float
    series: int

    def as_document(self, seconds: float) -> dict[str, Any]:
        """Everything in one document; ``seconds`` passed between the two looks."""
        return {
            "collection": str(self.namespace),
            "measurementsPerSecond": round(self.measurements / seconds, 1),
            "measurementsPerBatch": round(self.measurements_per_commit, 1),
            "series": self.series,
        }


class BusiestCollections:
    """Keeps the counters of the last look, and the collections with the greatest increases."""

    def __init__(
        self, collections: Callable[[], Sequence[CollectionBuckets]], now_seconds: Callable[[], float]
    ) -> None:
        """``collections``: those of the catalog; ``now_seconds`` is monotonic."""
        self._collections = collections
        self._now_seconds = now_seconds
        self._before: dict[Namespace, tuple[int, int]] = {}
        self._looked_at_seconds = now_seconds()
        self.shown: list[Busy] = []
        self.seconds = 0.0
        """Between the last two looks; 0 before the second one."""
        self.total = 0
        """Number of collections, of which ``examined`` were looked at."""
        self.examined = 0

    async def look_when_due(self) -> None:
        """Look, if the last look was long enough ago."""
        if self._now_seconds() - self._looked_at_seconds >= LOOK_SECONDS:
            await self.look()

    async def look(self) -> None:
        """Look at all of them, some in each turn of the event loop."""
        collections = self._collections()
        self.total = len(collections)
        examined = collections[:MOST_COLLECTIONS]
        seconds = self._now_seconds() - self._looked_at_seconds
        self._looked_at_seconds += seconds
        found: list[Busy] = []
        seen: dict[Namespace, tuple[int, int]] = {}
        for first in range(0, len(examined), LOOKED_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            for each in examined[first : first + LOOKED_AT_ONCE]:
                namespace, counters = each.collection.namespace, each.counters
                now = seen[namespace] = counters.numMeasurementsCommitted, counters.numCommits
                before = self._before.get(namespace, (0, 0))
                # One that was dropped meanwhile counts from 0 again.
                measurements, commits = now if now < before else (now[0] - before[0], now[1] - before[1])
                if measurements:
                    found.append(Busy(namespace, measurements, measurements / max(commits, 1), len(each.series)))
        self._before, self.seconds, self.examined = seen, seconds, len(examined)
        self.shown = heapq.nlargest(MOST_SHOWN, found, key=lambda busy: busy.measurements)
