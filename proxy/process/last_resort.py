"""Ends the process when a stop takes too long.

A stop waits for nobody without a limit, but three things are out of reach: a task that ignores its cancellation, a
thread that resolves a name, and the interpreter, which waits for all threads.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Self

import structlog

log = structlog.get_logger(__name__)

CLOSE_SECONDS: Final = 10.0
"""Time for closing connections, in addition to the grace period."""
LEAVE_SECONDS: Final = 3.0
"""Time between the last line of the log and the end of the process."""


class LastResort:
    """A timer in a thread of its own, which therefore works even if the event loop does not.

    As a context manager it is cancelled at the end, also by an exception: what calls may handle it and go on.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def within(self, seconds: float, exit_code: int) -> None:
        """From now on, the process ends with this code unless it has ended after this time, or ``cancel`` is called."""
        self.cancel()
        self._timer = threading.Timer(seconds, _leave, (exit_code,))
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Nothing is in the way any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _leave(exit_code: int) -> None:
    log.warning("shutdown is taking too long: exiting without waiting", exit_code=exit_code)
    os._exit(exit_code)
