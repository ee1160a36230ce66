"""When rows are scattered over buckets: measured for a while, believed for longer and longer."""

from __future__ import annotations

import pytest

from catalog.growth.scatter import FIRST_HOLD_SECONDS, LONGEST_HOLD_SECONDS, WINDOW_SECONDS, Scatter

ROUND_SECONDS = 0.01


def load(scatter: Scatter, since: float, batches: int = 30, rows: int = 30, every: float = ROUND_SECONDS) -> float:
    """Rounds for a bit longer than a window; returns the time after them."""
    now = since
    while now < since + WINDOW_SECONDS + 2 * every:
        scatter.committed(batches, rows, now)
        now += every
    return now


def test_many_batches_of_a_row_are_scattered() -> None:
    scatter = Scatter(0.0)
    assert not scatter.holds(0.0)
    now = load(scatter, 0.0)
    assert scatter.holds(now)
    assert not scatter.holds(now + FIRST_HOLD_SECONDS)


@pytest.mark.parametrize(
    ("batches", "rows", "every"),
    [(30, 120, ROUND_SECONDS), (4, 4, ROUND_SECONDS), (10, 10, 0.1)],
    ids=["rows share buckets", "few batches in a round", "few batches"],
)
def test_other_loads_are_not(batches: int, rows: int, every: float) -> None:
    scatter = Scatter(0.0)
    now = load(scatter, 0.0, batches, rows, every)
    assert not scatter.holds(now)


def test_rounds_that_come_after_a_long_silence_are_measured_anew() -> None:
    scatter = Scatter(0.0)
    scatter.committed(30, 30, 0.0)
    scatter.committed(30, 30, 100.0)
    assert not scatter.holds(100.0)
    assert scatter.holds(load(scatter, 100.0))


def test_the_longer_it_stays_so_the_rarer_it_is_measured() -> None:
    scatter, now, pauses = Scatter(0.0), 0.0, []
    for _ in range(6):
        now = load(scatter, now)
        pauses.append(next(pause for pause in range(200) if not scatter.holds(now + pause)))
        now += pauses[-1]
    assert pauses == [5, 10, 20, 40, 60, 60]
    assert pauses[-1] == LONGEST_HOLD_SECONDS
    while now < 250:
        now = load(scatter, now, rows=300)
        assert not scatter.holds(now)
    now = load(scatter, now)
    assert not scatter.holds(now + FIRST_HOLD_SECONDS)
