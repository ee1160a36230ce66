"""Judged with clocks that the tests turn."""

from __future__ import annotations

import pytest

from proxy.observe.histograms import Held
from proxy.observe.loop_watch import BUSY_SECONDS, IDLE_SECONDS, LoopWatch


class Clocks:
    def __init__(self) -> None:
        self.now_seconds = 100.0
        self.computed_seconds = 10.0
        self.held = Held()
        self.watch = LoopWatch(self.held, lambda: self.now_seconds, lambda: self.computed_seconds)

    def pass_(self, seconds: float, *, computing: float) -> float:
        self.now_seconds += seconds
        self.computed_seconds += computing
        return self.watch.look()


def test_a_hold_counts_as_long_as_the_loop_computed() -> None:
    clocks = Clocks()
    clocks.pass_(0.5, computing=0.5)
    assert clocks.held.take_longest_seconds() == pytest.approx(0.5)


def test_a_machine_that_is_busy_with_others_holds_nothing() -> None:
    clocks = Clocks()
    clocks.pass_(0.5, computing=0.003)
    assert clocks.held.take_longest_seconds() == pytest.approx(0.003)


def test_it_looks_seldom_while_nothing_is_done() -> None:
    clocks = Clocks()
    assert clocks.pass_(1.0, computing=0.001) == IDLE_SECONDS
    assert clocks.pass_(1.0, computing=0.5) == BUSY_SECONDS
