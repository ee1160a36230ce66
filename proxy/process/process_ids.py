"""Makes the ids of this process's buckets."""

from __future__ import annotations

import os

_START_BYTES = 4
_COUNTER_BYTES = 5
_COUNTERS = 1 << (8 * _COUNTER_BYTES)


class ProcessIds:
    """A counter of five bytes with a random start, so that processes hardly collide, and three zero bytes (W11)."""

    def __init__(self) -> None:
        self._start = self._counter = int.from_bytes(os.urandom(_COUNTER_BYTES), "big")

    def suffix(self) -> bytes:
        """See ``IdSource``."""
        self._counter = (self._counter + 1) % _COUNTERS
        return self._counter.to_bytes(_COUNTER_BYTES, "big") + bytes(3)

    def made(self, stored_id: bytes) -> bool:
        """See ``IdSource``."""
        counter = int.from_bytes(stored_id[_START_BYTES : _START_BYTES + _COUNTER_BYTES], "big")
        return 0 < (counter - self._start) % _COUNTERS <= (self._counter - self._start) % _COUNTERS
