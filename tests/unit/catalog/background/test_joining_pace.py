"""How much time joins take."""

from __future__ import annotations

import pytest

from catalog.background.joining_pace import JoiningPace, pace_of
from catalog.growth.backlog import FEWEST_BEHIND, FULL
from tests.support.catalog_parts import measurement
from tests.support.joining_bench import OPTIONS, JoiningBench


def pace_for(bench: JoiningBench) -> JoiningPace:
    return pace_of(OPTIONS, bench.catalog.growth, bench.clock)


def test_joins_have_a_share_of_the_time_until_they_are_behind_or_no_more_parts_are_made() -> None:
    bench = JoiningBench()
    pace, backlog = pace_for(bench), bench.catalog.growth.backlog
    for number in range(3):
        bench.commit(measurement(number))
    assert pace.pause_after(0.05, has_more=True) == pytest.approx(0.45)
    assert pace.pass_seconds() == OPTIONS.gentle_seconds
    assert pace.pause_after(0.001, has_more=True) == OPTIONS.interval_seconds
    for _ in range(FULL // 2):
        backlog.stored()
    assert pace.pause_after(0.05, has_more=True) == pytest.approx(0.05, rel=0.01), "half of what may wait does"
    assert pace.pause_after(0.001, has_more=True) == OPTIONS.breath_seconds
    assert pace.pause_after(0.001, has_more=False) == OPTIONS.interval_seconds
    for _ in range(FEWEST_BEHIND - FULL // 2):
        backlog.stored()
    backlog.measure(0, 0.0, bench.clock.now)
    assert backlog.is_behind
    assert pace.pass_seconds() == OPTIONS.slice_seconds
    assert pace.pause_after(0.05, has_more=True) == OPTIONS.breath_seconds
    assert pace.pause_after(0.05, has_more=False) == OPTIONS.interval_seconds


def test_joins_do_not_pause_when_nothing_was_committed_for_a_while() -> None:
    bench = JoiningBench()
    for number in range(3):
        bench.commit(measurement(number))
    bench.clock.now += 2.1
    assert pace_for(bench).pause_after(0.05, has_more=True) == OPTIONS.breath_seconds


def test_where_a_commit_keeps_writers_waiting_a_gap_follows_it_instead_of_a_pause_after_the_pass() -> None:
    bench = JoiningBench(sealed=True)
    pace, backlog = pace_for(bench), bench.catalog.growth.backlog
    for number in range(3):
        bench.commit(measurement(number))
    assert pace.gap_after(0.01) == pytest.approx(0.09)
    assert pace.pause_after(10.0, has_more=True) == OPTIONS.breath_seconds
    assert pace.pause_after(10.0, has_more=False) == pytest.approx(OPTIONS.interval_seconds, rel=0.01)
    assert pace.pass_seconds() == OPTIONS.slice_seconds
    assert pace.preparing_seconds == OPTIONS.ahead_seconds
    for _ in range(FULL // 2):
        backlog.stored()
    assert pace.gap_after(0.01) == pytest.approx(0.01, rel=0.01), "half of what may wait does"
    for _ in range(FEWEST_BEHIND):
        backlog.stored()
    assert pace.gap_after(0.01) == 0.0
    assert pace.pause_after(10.0, has_more=False) == OPTIONS.breath_seconds
    backlog.measure(0, 0.0, bench.clock.now)
    assert backlog.is_behind
    assert pace.gap_after(0.01) == pytest.approx(0.01 / 3), "rows go another way, and nothing more waits"
    assert pace.prepares_ahead


def test_where_writers_go_on_no_gap_follows_a_commit() -> None:
    pace = pace_for(JoiningBench())
    assert (pace.gap_after(0.01), pace.prepares_ahead) == (0.0, False)
    assert pace.preparing_seconds == OPTIONS.preparing_seconds
