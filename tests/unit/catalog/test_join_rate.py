"""The rate of joins is an average of passes that say something."""

from __future__ import annotations

import pytest

from catalog.join_rate import JoinRate


def test_the_first_pass_counts_whole_and_later_ones_a_fifth() -> None:
    rate = JoinRate()
    assert rate.measure(1_000, 0.1) == 10_000
    assert rate.measure(1_000, 0.2) == pytest.approx(9_000)


@pytest.mark.parametrize(("documents", "seconds"), [(99, 1.0), (0, 0.0), (1_000, 0.0)])
def test_passes_that_say_nothing_do_not_count(documents: int, seconds: float) -> None:
    rate = JoinRate()
    rate.measure(1_000, 0.1)
    assert rate.measure(documents, seconds) == 10_000
