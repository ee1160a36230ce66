"""The order in which the measurements of a large insert are staged: by series, and in each series by time.

In a batch of late or interleaved rows, neighbours belong to different buckets. While such a batch is staged, its first
buckets are already written; what comes later for the same buckets would be written once more. So the rows of a bucket
are staged together. Results are told by the position in the command, whatever the order was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from catalog.kernel import Measurement

MOST: Final = 10_000
"""The number of measurements that are put in order at once, which takes a few milliseconds."""

Parsed = list[tuple[int, Measurement]]
"""Measurements with their positions in the command."""


def by_series(parsed: Iterable[tuple[int, Measurement]]) -> Parsed:
    """The same measurements; those of equal times stay in the order of the command."""
    series: dict[bytes, list[tuple[int, int, Measurement]]] = {}
    for index, measurement in parsed:
        rows = series.get(measurement.meta)
        if rows is None:
            rows = series[measurement.meta] = []
        rows.append((measurement.time_ms, index, measurement))
    ordered: Parsed = []
    for rows in series.values():
        rows.sort()
        ordered += [(index, measurement) for _, index, measurement in rows]
    return ordered
