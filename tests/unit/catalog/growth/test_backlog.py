"""When joins are behind, and when they have caught up."""

from __future__ import annotations

from catalog.growth.backlog import (
    BEHIND_SECONDS,
    CAUGHT_UP,
    FEWEST_BEHIND,
    FIRST_HOLD_SECONDS,
    FULL,
    LONGEST_HOLD_SECONDS,
    Backlog,
)
from catalog.growth.growth import GrowthOptions


def with_parts(count: int) -> Backlog:
    backlog = Backlog()
    for _ in range(count):
        backlog.stored()
    return backlog


def test_a_few_parts_are_never_too_many() -> None:
    backlog = with_parts(FEWEST_BEHIND)
    backlog.measure(100, 100.0, 1.0)
    assert not backlog.is_behind
    backlog.stored()
    backlog.measure(0, 0.0, 2.0)
    assert backlog.is_behind


def test_joins_are_behind_until_a_quarter_is_left() -> None:
    per_second = 20_000
    limit = int(BEHIND_SECONDS * per_second)
    assert limit > FEWEST_BEHIND
    backlog = with_parts(limit + 1)
    backlog.measure(per_second, 1.0, 1.0)
    assert backlog.is_behind
    backlog.removed(limit // 2, limit // 2)
    backlog.measure(per_second, 1.0, 1.0 + FIRST_HOLD_SECONDS)
    assert backlog.is_behind
    backlog.removed(0, backlog.fresh - int(CAUGHT_UP * limit) + 1)
    backlog.measure(per_second, 1.0, 1.0 + FIRST_HOLD_SECONDS)
    assert not backlog.is_behind


def test_it_is_the_fuller_the_more_waits() -> None:
    """Readers meet what waits, however fast joins are."""
    backlog = with_parts(FULL // 2)
    assert backlog.fullness == 0.5
    backlog.measure(2 * FULL, 1.0, 1.0)
    assert backlog.fullness == 0.5
    assert with_parts(2 * FULL).fullness == 1.0
    assert Backlog().fullness == 0.0
    assert FULL < FEWEST_BEHIND, "joins have all of the time before they are behind"


def test_a_slow_rate_leaves_room_for_two_segments() -> None:
    """Parts of the current segment are not joined: they say nothing about how fast joins are."""
    backlog = with_parts(2 * GrowthOptions().segment_parts)
    backlog.measure(100, 100.0, 1.0)
    assert not backlog.is_behind


def held(backlog: Backlog, now_seconds: float) -> float:
    """Fall behind and catch up at once; for how many seconds no parts are made."""
    for _ in range(FEWEST_BEHIND + 1):
        backlog.stored()
    backlog.measure(0, 0.0, now_seconds)
    backlog.removed(FEWEST_BEHIND + 1, FEWEST_BEHIND + 1)
    seconds = 0.0
    while backlog.is_behind:
        seconds += 1.0
        backlog.measure(0, 0.0, now_seconds + seconds)
    return seconds


def test_parts_are_tried_less_often_while_joins_fall_behind_each_time() -> None:
    backlog, now_seconds, holds = Backlog(), 100.0, []
    for _ in range(7):
        holds.append(held(backlog, now_seconds))
        now_seconds += holds[-1] + 5
    assert holds == [20, 40, 80, 160, 320, 320, 320]
    assert LONGEST_HOLD_SECONDS == 320
    now_seconds += LONGEST_HOLD_SECONDS
    assert held(backlog, now_seconds) == FIRST_HOLD_SECONDS


def test_the_rate_is_an_average_of_passes_that_had_something_to_join() -> None:
    backlog = with_parts(300_000)
    backlog.measure(1_000, 0.025, 1.0)
    assert not backlog.is_behind, "at 40,000 a second, these take 7.5 seconds"
    backlog.measure(99, 1.0, 2.0)
    backlog.measure(0, 0.0, 2.0)
    assert not backlog.is_behind
    backlog.measure(1_000, 0.05, 3.0)
    assert not backlog.is_behind, "one slow pass counts a fifth"
    for _ in range(5):
        backlog.measure(1_000, 0.05, 3.0)
    assert backlog.is_behind


def test_where_joins_are_dear_fewer_parts_may_wait_however_fast_they_are() -> None:
    backlog = Backlog(20_000, 40_000, 1.0)
    for _ in range(20_000):
        backlog.stored()
    assert backlog.fullness == 0.5
    backlog.measure(20_000, 1.0, 1.0)
    assert not backlog.is_behind
    backlog.stored()
    backlog.measure(0, 0.0, 1.0)
    assert backlog.is_behind


def test_joins_that_leave_time_to_others_are_not_behind_and_say_nothing_about_the_rate() -> None:
    backlog = with_parts(FEWEST_BEHIND + 1)
    backlog.measure(1_000_000, 1.0, 1.0, had_all_time=False)
    assert not backlog.is_behind
    backlog.measure(100, 1.0, 2.0)
    assert backlog.is_behind, "the rate was not taken for a million a second"
    backlog.removed(FEWEST_BEHIND, FEWEST_BEHIND)
    backlog.measure(100, 1.0, 2.0 + FIRST_HOLD_SECONDS, had_all_time=False)
    assert not backlog.is_behind, "they may have caught up all the same"
