"""Makes the ids of this process's buckets."""

from __future__ import annotations

import os
from typing import Final

from catalog.parts import PLACE_AT, PREFIX_BYTES, SEGMENT_AT

_SEGMENTS: Final = 1 << 8 * (PLACE_AT - SEGMENT_AT)
_PLACES: Final = 1 << 8 * (PREFIX_BYTES - PLACE_AT)


class ProcessIds:
    """Segments and places that count from random numbers, so that processes hardly collide (W11); ``catalog.parts``."""

    def __init__(self) -> None:
        self._first_segment = int.from_bytes(os.urandom(PLACE_AT - SEGMENT_AT), "big")
        self._first_place = int.from_bytes(os.urandom(PREFIX_BYTES - PLACE_AT), "big")
        self._segments = 0
        self._places = 0
        self._segment = self._segment_bytes()

    def _segment_bytes(self) -> bytes:
        return ((self._first_segment + self._segments) % _SEGMENTS).to_bytes(PLACE_AT - SEGMENT_AT, "big")

    def suffix(self) -> bytes:
        """See ``IdSource``."""
        self._places += 1
        place = (self._first_place + self._places) % _PLACES
        return self._segment + place.to_bytes(PREFIX_BYTES - PLACE_AT, "big") + bytes(12 - PREFIX_BYTES)

    def segment(self) -> bytes:
        """See ``IdSource``."""
        return self._segment

    def next_segment(self) -> None:
        """See ``IdSource``."""
        self._segments += 1
        self._segment = self._segment_bytes()

    def made(self, stored_id: bytes) -> bool:
        """See ``IdSource``."""
        number = int.from_bytes(stored_id[SEGMENT_AT:PLACE_AT], "big")
        place = int.from_bytes(stored_id[PLACE_AT:PREFIX_BYTES], "big")
        is_made = (number - self._first_segment) % _SEGMENTS <= self._segments
        return is_made and (place - self._first_place - 1) % _PLACES < self._places
