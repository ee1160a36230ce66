"""Segments: which parts of all buckets are stored together (``catalog.parts``).

A server is quick at inserting into few pages, and at deleting and reading ranges. The ids of the parts that a process
makes during some seconds share their segment. When the segment has many parts, or is old, it ends and the next one
begins. Its parts are joined then, neighbours together, while those of the next segment are made.
"""

from __future__ import annotations

from catalog.ports import IdSource


class Segments:
    """Counts the parts of the current segment, and begins the next one."""

    __slots__ = ("_ids", "_most_parts", "_most_seconds", "_parts", "_since_seconds", "ended", "stored_at_seconds")

    def __init__(self, ids: IdSource, most_parts: int, most_seconds: float) -> None:
        """A segment ends when it has ``most_parts``, or ``most_seconds`` after its first one."""
        self._ids = ids
        self._most_parts = most_parts
        self._most_seconds = most_seconds
        self._parts = 0
        self._since_seconds = 0.0
        self.ended = 0
        """The number of segments that have ended."""
        self.stored_at_seconds = 0.0
        """When the latest part was stored."""

    @property
    def current(self) -> bytes:
        """The bytes of the current segment in the ids of its parts."""
        return self._ids.segment()

    def stored(self, now_seconds: float) -> None:
        """One more part is stored."""
        if not self._parts:
            self._since_seconds = now_seconds
        self._parts += 1
        self.stored_at_seconds = now_seconds
        if self._parts >= self._most_parts:
            self._end()

    def end_old(self, now_seconds: float) -> None:
        """Begin the next segment if this one has parts and is old."""
        if self._parts and now_seconds - self._since_seconds >= self._most_seconds:
            self._end()

    def _end(self) -> None:
        self._ids.next_segment()
        self._parts = 0
        self.ended += 1
