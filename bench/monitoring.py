"""Rows like those of the published comparison of layouts for monitoring data, from a seed, at any scale.

The figures of the publication: 8.38 million rows of six columns within 4.5 hours in periods of 60 seconds, about
30,900 a period; 285,522 combinations of the three dimensions, of which 5,927 carry nearly all rows. The values'
distributions are invented: error codes are rare, commands and applications are skewed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

PERIODS = 270
PERIOD_SECONDS = 60
START_SECONDS = 1_704_067_200
FREQUENT = 5_927
RARE = 285_522 - FREQUENT
ROWS_A_PERIOD = 30_900


class Dimensions(NamedTuple):
    """What tells one series from another."""

    iResult: int  # noqa: N815 - the published column names
    vCmdid: int  # noqa: N815
    vAppid: int  # noqa: N815


class Row(NamedTuple):
    """One row; ``timestamp`` in seconds."""

    timestamp: int
    dimensions: Dimensions
    totalCount: int  # noqa: N815
    dProcessTime: float  # noqa: N815


@dataclass(frozen=True)
class Monitoring:
    """The whole set; iterating twice gives the same rows. ``scale`` 1 is the published size."""

    scale: float
    seed: int = 1

    def _dimensions(self, source: random.Random, count: int) -> list[Dimensions]:
        found: dict[Dimensions, None] = {}
        while len(found) < count:
            result = 0 if source.random() < 0.6 else -source.randint(1, 3000)
            command = int(source.paretovariate(0.6)) % 1500
            found[Dimensions(result, command, 100_000 + source.randint(0, 4000))] = None
        return list(found)

    def rows(self) -> Iterator[Row]:
        """In order of time."""
        source = random.Random(self.seed)
        frequent = max(1, round(FREQUENT * self.scale))
        rare = max(1, round(RARE * self.scale))
        dimensions = self._dimensions(source, frequent + rare)
        source.shuffle(dimensions)
        often, seldom = dimensions[:frequent], dimensions[frequent:]
        a_period = ROWS_A_PERIOD * self.scale
        each = (a_period - rare / PERIODS) / frequent
        level = {one: source.expovariate(1 / 200) + 1 for one in dimensions}
        for period in range(PERIODS):
            start = START_SECONDS + period * PERIOD_SECONDS
            members = [
                one for one in often for _ in range(int(each) + (1 if source.random() < each - int(each) else 0))
            ]
            members += seldom[period * rare // PERIODS : (period + 1) * rare // PERIODS]
            times = sorted(source.randrange(PERIOD_SECONDS) for _ in members)
            source.shuffle(members)
            for second, one in zip(times, members, strict=True):
                count = 1 + int(source.expovariate(1 / level[one]))
                yield Row(start + second, one, count, round(count * source.uniform(0.5, 20.0), 3))
