"""When a process stops: SIGTERM and Ctrl-C have the same effect, and a second one does not wait for clients."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

import structlog

from proxy.process.last_resort import CLOSE_SECONDS, LastResort

log = structlog.get_logger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """``event`` is set by the first signal. A second one, or one while nobody is served, cancels the task as well."""

    def __init__(
        self,
        last_resort: LastResort,
        grace_seconds: Callable[[], float],
        on_stop: Callable[[], None],
        more_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``more_seconds``: that the process needs after the grace period, besides closing connections."""
        self.event = asyncio.Event()
        self.serves = False
        """Whether clients are served, which may finish."""
        self._last_resort = last_resort
        self._grace_seconds = grace_seconds
        self._more_seconds = more_seconds
        self._on_stop = on_stop
        self._task: asyncio.Task[None] | None = None

    def follow_signals(self) -> None:
        """Stop the current task at a signal from now on; call this after other handlers were added."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        self._last_resort.hears(SIGNALS, lambda: self._allowed_seconds(self._grace_seconds()))

    def _allowed_seconds(self, grace_seconds: float) -> float:
        return grace_seconds + self._more_seconds() + CLOSE_SECONDS

    def _on_signal(self, number: signal.Signals) -> None:
        self.stop(number.name)

    def stop(self, reason: str) -> None:
        """Stop; ``reason`` is for the log."""
        # While clients are served, the event lets them finish. During startup, or at a second signal, stop at once.
        at_once = self.event.is_set() or not self.serves
        grace_seconds = 0.0 if at_once else self._grace_seconds()
        self._last_resort.within(self._allowed_seconds(grace_seconds), exit_code=1)
        log.info("stopping", reason=reason, grace_seconds=grace_seconds)
        self.event.set()
        self._on_stop()
        if at_once and self._task is not None:
            self._task.cancel()
