"""A signal ends a fuzz run early, and the run then tells what it knows."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import Stop
from tests.fuzz.report import verdict
from tests.fuzz.siege import Arena, Siege

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield Stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_ends_the_run_and_the_second_is_as_usual(stop: Stop, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    assert stop.wait(5)
    assert stop.name == number.name
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.timeout(200)
def test_round_that_is_stopped_tells_what_it_knows(tmp_path: Path, stop: Stop) -> None:
    """Without waiting for the time that it was given."""
    arena = Arena(tmp_path, guarded=False)
    try:
        arena.start()
        timer = threading.Timer(4, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        report = Siege(arena, 1, heavy_rows=300, stop=stop).run(2, 600)
        timer.join()
    finally:
        arena.stop()
    told = verdict([report], stopped_by=stop.name)
    assert not report.complete
    assert report.failures == []
    assert not told.passed
    assert "stopped by SIGTERM" in told.text
    assert report.requests["handled by the proxy"] > 0
