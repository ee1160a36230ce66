"""What prevents joins, so that no parts are made: the backend, other proxies, or readers of a collection."""

from __future__ import annotations

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.ports import Clock

BLOCK_EXPIRY_SECONDS = 15.0
"""A collection whose joins were not tried for this time no longer counts as blocked by readers."""


class JoinObstacles:
    """What prevents joins of all collections, or of one for some time."""

    __slots__ = ("_blocked", "_blocked_seconds", "_clock", "_may_join", "_others_read", "is_beside_other_proxies")

    def __init__(self, clock: Clock, *, may_join: bool, blocked_seconds: float) -> None:
        """``may_join``: whether the backend can join.

        ``blocked_seconds``: readers are an obstacle if they have prevented joins for this time.
        """
        self._clock = clock
        self._blocked_seconds = blocked_seconds
        self._blocked: dict[CollectionBuckets, tuple[float, float]] = {}
        """When readers first and last prevented joins of a collection."""
        self._may_join = may_join
        self._others_read = False
        self.is_beside_other_proxies = False
        """Whether other proxies use the backend."""

    def tried(self, buckets: CollectionBuckets, *, alone: bool) -> None:
        """A join of this collection was tried; ``alone``: whether there was a moment without readers."""
        if alone:
            self._blocked.pop(buckets, None)
            return
        now_seconds = self._clock.monotonic_seconds()
        for each in [each for each in self._blocked if self._is_over(each, now_seconds)]:
            del self._blocked[each]
        first_seconds, _ = self._blocked.get(buckets, (now_seconds, now_seconds))
        self._blocked[buckets] = first_seconds, now_seconds

    def refused(self) -> bool:
        """The backend refuses joins for lack of privileges; returns whether this is the first time."""
        was, self._may_join = self._may_join, False
        return was

    def beside_other_proxies(self, *, are_there: bool, keep_readers: bool = False) -> bool:
        """Record whether other proxies use the backend, and whether all of them keep readers waiting for joins.

        Returns whether they have become an obstacle, or are none any more.
        """
        self.is_beside_other_proxies = are_there
        was, self._others_read = self._others_read, are_there and not keep_readers
        return was is not self._others_read

    @property
    def others_read(self) -> bool:
        """Whether joins would affect readers of another proxy, which this one cannot make wait."""
        return self._others_read

    @property
    def are_everywhere(self) -> bool:
        """Whether no collection can be joined."""
        return not self._may_join or self._others_read

    @property
    def may_be_there(self) -> bool:
        """Whether some collection cannot be joined."""
        return self.are_everywhere or bool(self._blocked)

    def are_there(self, buckets: CollectionBuckets) -> bool:
        """Whether the backend, other proxies, or readers of this collection for some time prevent joins."""
        if self.are_everywhere:
            return True
        if buckets not in self._blocked:
            return False
        if self._is_over(buckets, self._clock.monotonic_seconds()):
            del self._blocked[buckets]
            return False
        first_seconds, last_seconds = self._blocked[buckets]
        return last_seconds - first_seconds >= self._blocked_seconds

    def _is_over(self, buckets: CollectionBuckets, now_seconds: float) -> bool:
        """Whether the last try to join parts of this collection was long ago."""
        return self._blocked[buckets][1] < now_seconds - BLOCK_EXPIRY_SECONDS
