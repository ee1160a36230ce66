from __future__ import annotations

import time

import pytest

from proxy.request.times import MOST_PARTS, MOST_STEPS, Times, WaitKind


def test_waits_add_up_by_their_kind() -> None:
    times = Times()
    now = time.perf_counter()
    times.wait(WaitKind.QUEUE, now - 1.0)
    times.wait(WaitKind.QUEUE, now - 2.0)
    with times.waiting(WaitKind.JOINS):
        pass
    # A busy machine may take seconds for a step.
    assert 3.0 <= times.waited[WaitKind.QUEUE] < 13.0
    assert times.waited[WaitKind.JOINS] < 10.0


def test_steps_that_fail_count_too() -> None:
    times = Times()
    with pytest.raises(ValueError), times.at_backend():
        raise ValueError
    assert 0 < times.backend_seconds < 10.0


def test_few_steps_are_kept() -> None:
    times = Times()
    for number in range(100):
        times.step({"find": number})
    assert [step["find"] for step in times.steps] == list(range(MOST_STEPS))


def test_parts_are_recorded_while_commands_are_traced() -> None:
    times = Times(records_spans=True)
    since = time.perf_counter()
    times.was_rewritten(since)
    times.step({"aggregate": "system.views", "pipeline": []})
    with times.at_backend():
        pass
    times.was_at_backend(since)
    assert times.parts is not None
    assert [(each.is_rewriting, each.operation, each.target) for each in times.parts] == [
        (True, "", ""),
        (False, "aggregate", "system.views"),
        (False, "", ""),
    ]
    assert all(since <= each.started_seconds <= each.ended_seconds for each in times.parts)
    for _ in range(MOST_PARTS):
        times.was_at_backend(since)
    assert len(times.parts) == MOST_PARTS


def test_no_parts_are_recorded_otherwise() -> None:
    times = Times()
    times.step({"find": "rows"})
    times.was_rewritten(time.perf_counter())
    with times.at_backend():
        pass
    assert times.parts is None
