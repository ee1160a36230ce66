from __future__ import annotations

import pytest

from proxy.observe.allowance import Allowance


def test_what_is_allowed_at_once_and_in_the_long_run() -> None:
    allowance = Allowance(2.0, 5.0, 100.0)
    assert [allowance.take(100.0) for _ in range(6)] == [True] * 5 + [False]
    assert not allowance.take(100.4)
    assert allowance.take(100.5)
    assert sum(allowance.take(100.5 + tick / 10) for tick in range(1, 101)) == 20
    assert sum(allowance.take(1_000.0) for _ in range(10)) == 5


def test_how_long_until_it_is_allowed() -> None:
    allowance = Allowance(2.0, 4.0, 0.0)
    assert allowance.seconds_until(0.0, 4.0) == 0.0
    assert allowance.take(0.0, 3.0)
    assert allowance.seconds_until(0.0, 3.0) == pytest.approx(1.0)
    assert not allowance.take(0.99, 3.0)
    assert allowance.take(1.01, 3.0)


def test_more_than_fit_are_owed() -> None:
    allowance = Allowance(10.0, 10.0, 0.0)
    assert allowance.take(0.0, 30.0)
    assert allowance.seconds_until(0.0) == pytest.approx(2.1)
    assert not allowance.take(2.0)
    assert allowance.take(2.2)


def test_when_it_is_full() -> None:
    allowance = Allowance(10.0, 10.0, 0.0)
    assert allowance.is_full(0.0)
    allowance.take(0.0, 5.0)
    assert not allowance.is_full(0.4)
    assert allowance.is_full(0.5)
