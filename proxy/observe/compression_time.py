"""Measures the CPU time of compression, which runs in threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from catalog.background.replacing import Forms


class Spent:
    """A sum of seconds that several threads add to."""

    __slots__ = ("_lock", "seconds")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add to the sum."""
        with self._lock:
            self.seconds += seconds


@dataclass(frozen=True, slots=True)
class TimedForms(Forms):
    """As ``Forms``; ``spent`` gets the CPU time of compressing, including the comparison with the stored form."""

    spent: Spent = field(default_factory=Spent)

    def compressed(self, document: bytes, time_field: bytes) -> bytes | None:
        began_seconds = time.thread_time()
        try:
            return Forms.compressed(self, document, time_field)
        finally:
            self.spent.add(time.thread_time() - began_seconds)
