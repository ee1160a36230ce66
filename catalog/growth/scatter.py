"""Measures how the rows of small inserts are scattered over buckets that grow in place.

Where parts are not possible, each batch rewrites its bucket. If the batches of many clients have about one row each,
that is not cheaper than native inserts, of which one command can have many (``proxy.inserts.small_inserts``). If their
rows share buckets, it is much cheaper.
"""

from __future__ import annotations

from catalog.growth.back_off import BackOff

WINDOW_SECONDS = 0.5
"""The time that is measured before a decision."""
BATCHES_A_SECOND = 250.0
"""With fewer batches there is no load."""
BATCHES_IN_A_ROUND = 8
"""With fewer batches in a round, a native command would save nothing."""
ROWS_IN_A_BATCH = 3
"""With more rows in a batch, buckets of the catalog are cheaper."""
FIRST_HOLD_SECONDS = 5.0
LONGEST_HOLD_SECONDS = 60.0
"""Limits of the time until it is measured again."""


class Scatter:
    """The rounds of one collection."""

    __slots__ = ("_batches", "_hold", "_rounds", "_rows", "_since_seconds")

    def __init__(self, now_seconds: float) -> None:
        self._since_seconds = now_seconds
        self._rounds = 0
        self._batches = 0
        self._rows = 0
        self._hold = BackOff(FIRST_HOLD_SECONDS, LONGEST_HOLD_SECONDS)

    def holds(self, now_seconds: float) -> bool:
        """Whether rows were scattered when it was last measured, which is not long ago."""
        return self._hold.is_on(now_seconds)

    def committed(self, batches: int, rows: int, now_seconds: float) -> None:
        """Count a round of ``batches``, one for each bucket, that has stored ``rows``."""
        elapsed_seconds = now_seconds - self._since_seconds
        if elapsed_seconds >= WINDOW_SECONDS:
            if elapsed_seconds < 2 * WINDOW_SECONDS:
                self._decide(elapsed_seconds, now_seconds)
            self._since_seconds = now_seconds
            self._rounds = self._batches = self._rows = 0
        self._rounds += 1
        self._batches += batches
        self._rows += rows

    def _decide(self, elapsed_seconds: float, now_seconds: float) -> None:
        is_scattered = (
            self._batches >= BATCHES_A_SECOND * elapsed_seconds
            and self._batches >= BATCHES_IN_A_ROUND * self._rounds
            and self._rows <= ROWS_IN_A_BATCH * self._batches
        )
        if is_scattered:
            self._hold.begin(now_seconds)
