"""How slow the machine is at present, for limits of processor time.

Processor time does not count what other processes take, but a shared core, a cold cache or a host that takes the
processor away make the same work cost several times as much of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

NOMINAL_SECONDS: Final = 0.004
"""Processor time of ``_work`` where the limits of the tests were chosen."""
_ROUNDS: Final = 14_000
TRIES: Final = 4


def least_seconds(measure: Callable[[], float], limit_seconds: float) -> float:
    """The least of a few measurements of processor time, up to the first one below the limit.

    A slow moment does not come every time; on a machine that stays slow, the time is divided by its slowness.
    """
    least = float("inf")
    for _ in range(TRIES):
        seconds = measure()
        least = min(least, seconds if seconds < limit_seconds else seconds / slowness())
        if least < limit_seconds:
            break
    return least


def seconds_of(call: Callable[[], object]) -> float:
    """The processor time that a call takes."""
    began_seconds = time.thread_time()
    call()
    return time.thread_time() - began_seconds


def _work() -> int:
    """Objects are made, looked up and freed, as in a turn of the proxy."""
    made = {number: (str(number), [number]) for number in range(_ROUNDS)}
    return sum(len(made[number][0]) for number in range(_ROUNDS))


def slowness() -> float:
    """How many times as long work takes now; at least 1, so that a fast machine has the limits as they are."""
    return max(1.0, seconds_of(_work) / NOMINAL_SECONDS)
