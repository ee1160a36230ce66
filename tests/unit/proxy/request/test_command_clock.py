from __future__ import annotations

import time

import pytest

from proxy.request.command_clock import CommandClock
from proxy.request.slow_threshold import NEVER_SLOW
from proxy.request.times import NOT_SENT, WaitKind


def test_nothing_is_recorded_unless_something_happens() -> None:
    clock = CommandClock(NEVER_SLOW)
    assert (clock.sent_seconds, clock.known_times) == (0.0, None)
    assert 0 <= time.perf_counter() - clock.started_seconds < 10


def test_time_at_the_backend_ends_when_the_command_comes_back() -> None:
    clock = CommandClock(NEVER_SLOW)
    clock.sent()
    assert clock.started_seconds <= clock.sent_seconds <= time.perf_counter()
    assert clock.known_times is None
    clock.sent_seconds -= 2.0
    clock.sent()
    assert 2.0 <= clock.times().backend_seconds < 12.0
    clock.not_sent()
    assert clock.sent_seconds == NOT_SENT
    backend_seconds = clock.times().backend_seconds
    assert 2.0 <= backend_seconds < 12.0
    clock.not_sent()
    assert clock.times().backend_seconds == backend_seconds


def test_turns_in_a_queue_are_recorded() -> None:
    clock = CommandClock(NEVER_SLOW)
    clock.queued(time.perf_counter() - 3.0)
    assert clock.known_times is clock.times()
    assert 3.0 <= clock.times().waited[WaitKind.QUEUE] < 13.0


def test_a_turn_that_was_waited_for_belongs_to_the_command() -> None:
    clock = CommandClock(NEVER_SLOW)
    began_seconds = clock.started_seconds
    clock.waited_for_turn(began_seconds - 2.0)
    assert clock.turn_seconds == pytest.approx(2.0)
    assert clock.started_seconds == began_seconds - 2.0
    other = CommandClock(NEVER_SLOW)
    other.waited_for_turn(time.perf_counter() + 1.0)
    assert other.turn_seconds == 0.0
