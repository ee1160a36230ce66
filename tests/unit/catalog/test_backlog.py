"""When joins are behind, and when they have caught up."""

from __future__ import annotations

from catalog.backlog import BEHIND_SECONDS, CAUGHT_UP, FEWEST_BEHIND, Backlog


def with_parts(count: int) -> Backlog:
    backlog = Backlog()
    for _ in range(count):
        backlog.stored()
    return backlog


def test_a_few_parts_are_never_too_many() -> None:
    backlog = with_parts(FEWEST_BEHIND)
    backlog.measure(100, 100.0)
    assert not backlog.is_behind
    backlog.stored()
    backlog.measure(0, 0.0)
    assert backlog.is_behind


def test_joins_are_behind_until_a_quarter_is_left() -> None:
    per_second = 5_000
    limit = int(BEHIND_SECONDS * per_second)
    backlog = with_parts(limit + 1)
    backlog.measure(per_second, 1.0)
    assert backlog.is_behind
    backlog.removed(limit // 2, limit // 2)
    backlog.measure(per_second, 1.0)
    assert backlog.is_behind
    backlog.removed(0, backlog.fresh - int(CAUGHT_UP * limit) + 1)
    backlog.measure(per_second, 1.0)
    assert not backlog.is_behind


def test_the_rate_is_an_average_of_passes_that_had_something_to_join() -> None:
    backlog = with_parts(75_000)
    backlog.measure(1_000, 0.1)
    assert not backlog.is_behind, "at 10,000 a second, these take 7.5 seconds"
    backlog.measure(99, 1.0)
    backlog.measure(0, 0.0)
    assert not backlog.is_behind
    backlog.measure(1_000, 0.5)
    assert not backlog.is_behind, "one slow pass counts a fifth"
    for _ in range(5):
        backlog.measure(1_000, 0.5)
    assert backlog.is_behind
