"""Ends the process when a stop takes too long.

A stop waits for nobody without a limit, but some things are out of reach: a task that ignores its cancellation, a
thread that resolves a name, the interpreter, which waits for all threads, and an event loop that writes to a pipe that
nobody reads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Self

import structlog
import uvloop

log = structlog.get_logger(__name__)

CLOSE_SECONDS: Final = 10.0
"""Time for closing connections, in addition to the grace period."""
LEAVE_SECONDS: Final = 3.0
"""Time between the last line of the log and the end of the process."""
SAY_SECONDS: Final = 0.5
"""Time for the line of the log that says so."""


class LastResort:
    """A timer in a thread of its own, which therefore works even if the event loop does not.

    As a context manager it is cancelled at the end, also by an exception: what calls may handle it and go on.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._ear: _Ear | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()
        self.cancel()

    def hears(self, signals: Collection[int], seconds: Callable[[], float]) -> None:
        """From now on, the first of these signals starts the timer at once, with exit code 1.

        The event loop gets all signals as before, but if it does not work, it cannot start the timer. Call this after
        all handlers were added to the loop.
        """

        def heard() -> None:
            with self._lock:
                if self._timer is None:
                    self._start(seconds(), 1)

        self._ear = _Ear(frozenset(signals), heard, collects=isinstance(asyncio.get_running_loop(), uvloop.Loop))

    def within(self, seconds: float, exit_code: int) -> None:
        """From now on, the process ends with this code unless it has ended after this time, or ``cancel`` is called."""
        with self._lock:
            self._cancel()
            self._start(seconds, exit_code)

    def cancel(self) -> None:
        """Nothing is in the way any more."""
        with self._lock:
            self._cancel()

    def _start(self, seconds: float, exit_code: int) -> None:
        self._timer = threading.Timer(seconds, _leave, (exit_code,))
        self._timer.daemon = True
        self._timer.start()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Ear:
    """A thread that learns of signals before the event loop, and passes them on to it."""

    def __init__(self, signals: frozenset[int], heard: Callable[[], None], *, collects: bool) -> None:
        """``collects``: the loop learns from handlers which signals have come, and needs to be woken only."""
        self._signals = signals
        self._collects = collects
        self._heard = heard
        self._inner, self._outer = socket.socketpair()
        self._outer.setblocking(False)
        self._loops = signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)
        # A descriptor of its own, because that of the loop may soon be that of something else.
        self._to_loop = os.dup(self._loops) if self._loops >= 0 else -1
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while numbers := self._inner.recv(64):
            if not self._signals.isdisjoint(numbers):
                self._heard()
            if self._to_loop >= 0:
                # A number that comes later than that of another signal, by which the loop has learned of both, would
                # be a second signal: a stop would not wait for clients.
                with suppress(OSError):  # full: the loop will look anyway
                    os.write(self._to_loop, b"\0" if self._collects else numbers)

    def close(self) -> None:
        """Let the loop learn of signals itself; nothing is heard after this."""
        current = signal.set_wakeup_fd(-1)
        # Otherwise the loop has ended.
        signal.set_wakeup_fd(self._loops if current == self._outer.fileno() else current)
        self._outer.close()
        self._thread.join()
        self._inner.close()
        if self._to_loop >= 0:
            os.close(self._to_loop)


def _leave(exit_code: int) -> None:
    """End the process, also if the line of the log cannot be written."""
    try:
        saying = threading.Thread(target=_say, args=(exit_code,), daemon=True)
        saying.start()
        saying.join(SAY_SECONDS)
    finally:
        os._exit(exit_code)


def _say(exit_code: int) -> None:
    log.warning("shutdown is taking too long: exiting without waiting", exit_code=exit_code)
