"""Signals that come before they have handlers."""

from __future__ import annotations

import signal

from proxy.process import early_signals


def test_a_signal_waits_for_its_handler() -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGHUP)
    early_signals.hold()
    try:
        # To this thread alone: other tests may have left threads, to which the signal of a process would go.
        signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
        assert heard == []
        early_signals.release()
        assert heard == [signal.SIGHUP]
    finally:
        early_signals.release()
        signal.signal(signal.SIGHUP, before)
