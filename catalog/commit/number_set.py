"""A set of integers that are mostly consecutive: the ids of statements."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class NumberSet:
    """A set of integers, stored as runs of consecutive ones."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The number after the last of each run."""

    def __contains__(self, number: int) -> bool:
        run = bisect_right(self._starts, number) - 1
        return run >= 0 and number < self._ends[run]

    def add(self, number: int) -> None:
        """Add a number; adjacent runs become one."""
        self.add_run(number, number + 1)

    def add_run(self, start: int, end: int) -> None:
        """Add the numbers from ``start`` to before ``end``."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        # The runs from ``first`` to before ``last`` overlap the new one, or are adjacent to it.
        first, last = bisect_left(ends, start), bisect_right(starts, end)
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]

    @property
    def runs(self) -> int:
        """The number of runs, which determines its size."""
        return len(self._starts)

    def spans(self) -> list[tuple[int, int]]:
        """The runs: the first number of each, and the one after its last."""
        return list(zip(self._starts, self._ends, strict=True))
