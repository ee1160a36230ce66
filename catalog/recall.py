"""Rows that an earlier process wrote, so that a statement that is sent again is not written twice (W102).

The record of retryable writes dies with the process. A driver whose answer was lost with it sends the statement
again, to the process that was started anew, within the time in which it seeks a server. For that long after the
start the ``_id`` of the rows in stored buckets are remembered as these are found (W50), and a statement of a
session that this process has not met is taken as written when its ``_id`` is among them.

What is not promised: measurements without ``_id``, rows in a bucket that became full or was closed meanwhile,
commands of the earlier process that the backend has yet to execute, and drivers that retry later.
"""

from __future__ import annotations

from collections import OrderedDict

from catalog.kernel import Measurement, row_ids
from catalog.open_bucket import Series


class Recall:
    """The remembered rows of all series, bounded."""

    __slots__ = ("_rows", "_rows_limit", "_series", "until_seconds")

    def __init__(self, until_seconds: float, rows_limit: int = 200_000) -> None:
        """``until_seconds``: when nobody can be retrying any more; ``rows_limit`` bounds the memory."""
        self.until_seconds = until_seconds
        self._rows_limit = rows_limit
        self._rows = 0
        self._series: OrderedDict[Series, None] = OrderedDict()

    def is_active(self, now_seconds: float) -> bool:
        """Whether retries of an earlier process' statements are still to be expected; forgets all when not."""
        if now_seconds < self.until_seconds:
            return True
        while self._series:
            self._forget_first()
        return False

    def remember(self, series: Series, document: bytes) -> None:
        """A stored bucket of ``series`` was found."""
        try:
            ids = frozenset(row_ids(document)) - {b""}
        except ValueError:
            return
        known = series.recalled or frozenset()
        self._series[series] = None
        series.recalled = known | ids
        self._rows += len(series.recalled) - len(known)
        while self._rows > self._rows_limit and self._series:
            self._forget_first()

    def holds(self, series: Series, measurement: Measurement) -> bool:
        """Whether an earlier process wrote this measurement."""
        return series.recalled is not None and measurement.columns.get(b"_id", b"") in series.recalled

    def _forget_first(self) -> None:
        series, _ = self._series.popitem(last=False)
        self._rows -= len(series.recalled or ())
        series.recalled = None
        if series.is_empty and series.collection.series.get(series.meta) is series:
            del series.collection.series[series.meta]
