from __future__ import annotations

import time

import pytest

from proxy.request.times import MOST_STEPS, Times, Wait


def test_waits_add_up_by_their_kind() -> None:
    times = Times()
    now = time.perf_counter()
    times.wait(Wait.QUEUE, now - 1.0)
    times.wait(Wait.QUEUE, now - 2.0)
    with times.waiting(Wait.JOINS):
        pass
    assert times.waited[Wait.QUEUE] == pytest.approx(3.0, abs=0.1)
    assert times.waited[Wait.JOINS] < 0.1


def test_steps_that_fail_count_too() -> None:
    times = Times()
    with pytest.raises(ValueError), times.at_backend():
        raise ValueError
    assert 0 < times.backend_seconds < 0.1


def test_few_steps_are_kept() -> None:
    times = Times()
    for number in range(100):
        times.step({"find": number})
    assert [step["find"] for step in times.steps] == list(range(MOST_STEPS))
