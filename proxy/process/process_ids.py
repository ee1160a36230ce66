"""Makes the ids of this process's buckets."""

from __future__ import annotations

import os
from typing import Final

from catalog.parts import PLACE_AT, PLACES, PREFIX_BYTES, SEGMENT_AT, is_among

_SEGMENTS: Final = 1 << 8 * (PLACE_AT - SEGMENT_AT)


class ProcessIds:
    """Segments and places that count from random numbers, so that processes hardly collide (W11); ``catalog.parts``."""

    def __init__(self) -> None:
        self._first_segment = int.from_bytes(os.urandom(PLACE_AT - SEGMENT_AT), "big")
        self.first_place = int.from_bytes(os.urandom(PREFIX_BYTES - PLACE_AT), "big")
        self._segments = 0
        self.places = 0
        """The number of places that were used, each of them one after the one before."""
        self._segment = self._segment_bytes()

    def _segment_bytes(self) -> bytes:
        return ((self._first_segment + self._segments) % _SEGMENTS).to_bytes(PLACE_AT - SEGMENT_AT, "big")

    def suffix(self) -> bytes:
        place = (self.first_place + self.places) % PLACES
        self.places += 1
        return self._segment + place.to_bytes(PREFIX_BYTES - PLACE_AT, "big") + bytes(12 - PREFIX_BYTES)

    def segment(self) -> bytes:
        return self._segment

    def next_segment(self) -> None:
        self._segments += 1
        self._segment = self._segment_bytes()

    def made(self, stored_id: bytes) -> bool:
        number = int.from_bytes(stored_id[SEGMENT_AT:PLACE_AT], "big")
        is_made = (number - self._first_segment) % _SEGMENTS <= self._segments
        return is_made and is_among(self.first_place, self.places, stored_id)
