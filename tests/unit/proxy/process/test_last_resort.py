"""The timer that ends the process although something does not end."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from proxy.process.last_resort import LastResort
last_resort = LastResort()
last_resort.within(0.2, 7)
{}
threading.Thread(target=threading.Event().wait, args=({},)).start()
"""


def ended_with(step: str, busy_seconds: float) -> int:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(step, busy_seconds)], timeout=60, check=False
    ).returncode


def test_thread_that_does_not_end_is_left_behind() -> None:
    assert ended_with("", 50) == 7


def test_later_time_replaces_the_earlier_one_and_cancel_ends_it() -> None:
    assert ended_with("last_resort.within(0.3, 8)", 50) == 8
    assert ended_with("last_resort.cancel()", 1) == 0


EXCEPTION_AND_ON = """
import threading
from proxy.process.last_resort import LastResort
try:
    with LastResort() as last_resort:
        last_resort.within(0.2, 7)
        raise ValueError
except ValueError:
    threading.Event().wait(1)
"""


def test_exception_ends_it_too() -> None:
    """What calls may handle the exception: the timer must not end it later."""
    assert subprocess.run([sys.executable, "-c", EXCEPTION_AND_ON], timeout=60, check=False).returncode == 0
