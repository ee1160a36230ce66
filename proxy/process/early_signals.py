"""Signals that come while the program starts wait until they have handlers: their default is to end the program."""

from __future__ import annotations

import signal
from typing import Final

HELD: Final = frozenset({signal.SIGHUP, signal.SIGUSR2})
"""A reload, and a restart of the workers. SIGTERM and SIGINT end the program at any time."""


def hold() -> None:
    """Hold them back from now on, in this thread and in those that begin later; call this before any other begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def release() -> None:
    """Deliver them from now on, those that have come meanwhile at once. Call this when handlers are installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
