"""Limits log messages that clients can cause as often as they like: a few of each kind in each period."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog

PERIOD_SECONDS: Final = 10.0
MOST_IN_A_PERIOD: Final = 5


class LimitedLog:
    """``event`` must be a constant, because each has a counter for ever.

    For the thread of the event loop only.
    """

    def __init__(self, logger: Any, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._now_seconds = now_seconds
        self._periods: dict[str, _Period] = {}

    def info(self, event: str, **values: object) -> None:
        """Log or only count; the first message of the next period has the number of those not logged."""
        self._say(self._logger.info, event, values)

    def warning(self, event: str, **values: object) -> None:
        """As ``info``, at a higher level."""
        self._say(self._logger.warning, event, values)

    def _say(self, log: Callable[..., object], event: str, values: dict[str, object]) -> None:
        now_seconds = self._now_seconds()
        period = self._periods.get(event)
        if period is None or now_seconds >= period.until_seconds:
            omitted = 0 if period is None else period.omitted
            period = self._periods[event] = _Period(now_seconds + PERIOD_SECONDS)
            if omitted:
                values["not_logged_before"] = omitted
        if period.left:
            period.left -= 1
            log(event, **values)
        else:
            period.omitted += 1


class _Period:
    __slots__ = ("left", "omitted", "until_seconds")

    def __init__(self, until_seconds: float) -> None:
        self.until_seconds = until_seconds
        self.left = MOST_IN_A_PERIOD
        self.omitted = 0


noticed: Final = LimitedLog(structlog.get_logger("tsproxy.noticed"))
"""Shared, so that the limits apply to the whole process."""
