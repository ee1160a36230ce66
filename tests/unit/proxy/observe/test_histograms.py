"""Counts by size, and what can be told from them."""

from __future__ import annotations

import pytest

from proxy.observe.histograms import Held, Histogram, quantile


def test_histogram_counts_each_observation_once_and_bounds_include() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.5):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 5.5


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0), 0.5, None),
        ((4, 0, 0), 0.5, 0.5),
        ((1, 3, 0), 0.5, 1.0 + 1 / 3),
        ((0, 4, 0), 1.0, 2.0),
        ((0, 0, 7), 0.99, 2.0),
        ((99, 0, 1), 0.99, 1.0),
    ],
)
def test_quantiles_are_interpolated_within_a_bound(
    counts: tuple[int, ...], share: float, expected: float | None
) -> None:
    assert quantile((1.0, 2.0), counts, share) == expected


def test_the_longest_delay_is_taken_once() -> None:
    held = Held()
    held.observe(0.2)
    held.observe(0.1)
    assert (held.take_longest_seconds(), held.take_longest_seconds()) == (0.2, 0.0)
