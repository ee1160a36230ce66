"""Why rows do not leave in parts for the moment (``catalog.parts``), though the backend can join parts.

Where little is written there is nothing to gain by it. And joins need moments without readers: while there are none,
parts would become more and more, and reads of many small buckets are slow.
"""

from __future__ import annotations

from catalog.open_bucket import CollectionBuckets

LATELY_SECONDS = 15.0
"""Joins that readers do not let in are tried again more often than this."""
LOAD_SECONDS = 2.0
"""What was committed so long ago is nearly forgotten."""
BATCHES_OF_A_ROUND = 32
"""So many batches in a round weigh as much as another round."""


class Load:
    """How much was committed lately: rounds, and batches in them, each weighing less the longer ago it was."""

    __slots__ = ("_at_seconds", "level")

    def __init__(self) -> None:
        self.level = 0.0
        self._at_seconds = 0.0

    def committed(self, batches: int, now_seconds: float) -> None:
        """A round with so many batches."""
        left = max(0.0, 1.0 - (now_seconds - self._at_seconds) / LOAD_SECONDS)
        self.level = self.level * left + 1.0 + batches / BATCHES_OF_A_ROUND
        self._at_seconds = now_seconds


class Hindrances:
    """What is known of them now."""

    __slots__ = ("_apart", "is_shared", "load")

    def __init__(self) -> None:
        self.load = Load()
        self.is_shared = False
        """Whether other processes like this use the backend now: they would meet joins, since only their own readers
        are known to each."""
        self._apart: dict[CollectionBuckets, tuple[float, float]] = {}
        """Since when, and when last, readers did not let the parts of a collection be joined."""

    def tried(self, buckets: CollectionBuckets, now_seconds: float, *, alone: bool) -> None:
        """Parts were to be joined: whether there was a moment without readers."""
        if alone:
            self._apart.pop(buckets, None)
            return
        for each in [each for each in self._apart if self._is_over(each, now_seconds)]:
            del self._apart[each]
        first_seconds, _ = self._apart.get(buckets, (now_seconds, now_seconds))
        self._apart[buckets] = first_seconds, now_seconds

    @property
    def are_known(self) -> bool:
        """Whether there may be any, for any collection."""
        return self.is_shared or bool(self._apart)

    def hinder(self, buckets: CollectionBuckets, now_seconds: float, apart_seconds: float) -> bool:
        """Whether there is one for this collection; readers are after ``apart_seconds``."""
        if self.is_shared:
            return True
        if buckets not in self._apart:
            return False
        if self._is_over(buckets, now_seconds):
            del self._apart[buckets]
            return False
        first_seconds, last_seconds = self._apart[buckets]
        return last_seconds - first_seconds >= apart_seconds

    def _is_over(self, buckets: CollectionBuckets, now_seconds: float) -> bool:
        """Whether joins of this collection have not been tried for long."""
        return self._apart[buckets][1] < now_seconds - LATELY_SECONDS
