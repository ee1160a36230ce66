"""How long to wait before a worker that has ended is replaced."""

from __future__ import annotations

from typing import Final

PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""The first time at once: its clients should find another one soon."""
STABLE_SECONDS: Final = 60.0
"""A worker that has run for this time counts as if none had ended before."""


class RestartPauses:
    """The pauses of one place, which get longer while workers end soon after their start."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, ran_seconds: float) -> float:
        """The seconds to wait after a worker that has run for this time."""
        if ran_seconds >= STABLE_SECONDS:
            self._failures = 0
        pause_seconds = PAUSES_SECONDS[min(self._failures, len(PAUSES_SECONDS) - 1)]
        self._failures += 1
        return pause_seconds
