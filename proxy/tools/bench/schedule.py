"""Which connection inserts which rows, and the order of the rounds. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.tools.bench.shapes import mixed

BUCKET_ROWS: Final = 1_000
"""The most rows of a bucket."""
MOST_FILLING_ROWS: Final = 500_000
"""Rows of the warm-up in all; with more series, each gets fewer."""
FILLING_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Turns:
    """The series and connections of a load.

    ``fills``: whether series begin with some rows, between none and a full bucket, so that buckets are half full on
    average, and do not become full at the same moment.
    """

    connections: int
    series: int
    fills: bool = True

    def filling_rows(self, series: int) -> int:
        """With how many rows this series begins."""
        if not self.fills:
            return 0
        most = min(BUCKET_ROWS, 2 * MOST_FILLING_ROWS // self.series)
        return mixed(series) % max(most, 1)

    def allotment(self, connection: int) -> Allotment:
        """What this connection inserts."""
        return Allotment(self, connection)


class Allotment:
    """The rows of one connection, which has series of its own, or shares one if there are fewer than connections."""

    def __init__(self, turns: Turns, connection: int) -> None:
        self._turns = turns
        self._first = connection % turns.series
        self._step = min(turns.connections, turns.series)
        self._sharers = len(range(self._first, turns.connections, turns.series))
        self._place = connection // turns.series
        self._series = self._first
        self._round = 0

    def filling(self) -> Iterator[list[tuple[int, int]]]:
        """Series and tick of the rows to begin with, in batches of one series."""
        if self._place:
            return
        for series in range(self._first, self._turns.series, self._step):
            count = self._turns.filling_rows(series)
            for start in range(0, count, FILLING_BATCH):
                yield [(series, tick) for tick in range(start, min(start + FILLING_BATCH, count))]

    def next(self) -> tuple[int, int]:
        """Series and tick of the next row."""
        series = self._series
        tick = self._turns.filling_rows(series) + self._round * self._sharers + self._place
        self._series += self._step
        if self._series >= self._turns.series:
            self._series = self._first
            self._round += 1
        return series, tick


def order_of(rounds: int, sides: tuple[str, str]) -> Iterator[str]:
    """The side of each round. Every second pair is in the other order, so that drift affects both sides."""
    for number in range(rounds):
        yield from sides if number % 2 == 0 else sides[::-1]
