"""When look-ups of stored buckets are too slow to be made for small inserts."""

from __future__ import annotations

import pytest

from catalog.growth.lookup_cost import FIRST_HOLD_SECONDS, LookupCost


def after(queries: int, seconds: float, pause_seconds: float) -> tuple[LookupCost, float]:
    """So many queries of this duration, with pauses between them; and the time of the last one's end."""
    cost, now_seconds = LookupCost(), 1_000.0
    for _ in range(queries):
        cost.queried(now_seconds, now_seconds + seconds)
        now_seconds += seconds + pause_seconds
    return cost, now_seconds - pause_seconds


@pytest.mark.parametrize(("seconds", "pause_seconds"), [(0.05, 0.0), (0.02, 0.015), (3.0, 0.0)])
def test_queries_that_are_always_in_progress_are_slow(seconds: float, pause_seconds: float) -> None:
    cost, now_seconds = after(int(4 / seconds), seconds, pause_seconds)
    assert cost.is_high(now_seconds)
    assert not cost.is_high(now_seconds + FIRST_HOLD_SECONDS)


@pytest.mark.parametrize(
    ("queries", "seconds", "pause_seconds"),
    [(1_000, 0.005, 0.0), (100, 0.05, 0.06), (10, 0.1, 0.0), (100, 0.5, 10.0)],
    ids=["quick ones, which an index answers", "pauses", "not for long", "one now and then"],
)
def test_others_are_not(queries: int, seconds: float, pause_seconds: float) -> None:
    cost, now_seconds = after(queries, seconds, pause_seconds)
    assert not cost.is_high(now_seconds)
