"""When look-ups of stored buckets are too slow to be made."""

from __future__ import annotations

import pytest

from catalog.growth.lookup_cost import ALLOWANCE_SECONDS, REFILL, LookupCost


def after(queries: int, seconds: float, pause_seconds: float, series: int = 1) -> tuple[LookupCost, float]:
    """So many queries of this duration, with pauses between them; and the time of the last one's end."""
    cost, now_seconds = LookupCost(), 1_000.0
    for _ in range(queries):
        cost.queried(series, now_seconds, now_seconds + seconds)
        now_seconds += seconds + pause_seconds
    return cost, now_seconds - pause_seconds


@pytest.mark.parametrize(
    ("queries", "seconds", "pause_seconds", "series"),
    [(25, 0.012, 0.0, 1), (100, 0.012, 0.3, 1), (1, 3.0, 0.0, 1), (5, 0.1, 0.0, 1_000)],
    ids=["one after the other", "again and again", "one", "of many series each"],
)
def test_queries_that_take_longer_than_their_inserts_use_the_allowance_up(
    queries: int, seconds: float, pause_seconds: float, series: int
) -> None:
    cost, now_seconds = after(queries, seconds, pause_seconds, series)
    assert cost.is_high(now_seconds)


@pytest.mark.parametrize(
    ("queries", "seconds", "pause_seconds", "series"),
    [(10_000, 0.0005, 0.0, 1), (10_000, 0.02, 0.0, 1_000), (8, 0.012, 0.0, 1), (100, 0.012, 0.6, 1)],
    ids=["quick ones, which an index answers", "quick ones for their series", "a few", "one now and then"],
)
def test_others_do_not(queries: int, seconds: float, pause_seconds: float, series: int) -> None:
    cost, now_seconds = after(queries, seconds, pause_seconds, series)
    assert not cost.is_high(now_seconds)


def test_one_very_slow_query_prevents_others_no_longer_than_many() -> None:
    cost, now_seconds = after(1, 60.0, 0.0)
    assert cost.is_high(now_seconds + 0.9 * ALLOWANCE_SECONDS / REFILL)
    assert not cost.is_high(now_seconds + 1.1 * ALLOWANCE_SECONDS / REFILL)
