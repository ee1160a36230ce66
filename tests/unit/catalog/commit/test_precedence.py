"""Large inserts give way to others for a moment."""

from __future__ import annotations

import pytest

from catalog.commit.precedence import BULK, GIVES_WAY_SECONDS, GIVING_WAY, Precedence
from catalog.commit.round import RoundLimits
from tests.support.catalog_parts import ManualClock

LIMITS = RoundLimits(statements=7)


@pytest.mark.parametrize(("after_seconds", "gives_way"), [(0.0, True), (GIVES_WAY_SECONDS, False)])
def test_large_inserts_give_way_to_others_for_a_moment(after_seconds: float, *, gives_way: bool) -> None:
    clock = ManualClock()
    precedence = Precedence(clock)
    precedence.began(is_bulk=False)
    clock.now += after_seconds
    assert precedence.rounds(4, is_bulk=True) == (1 if gives_way else 4)
    assert precedence.limits(LIMITS, is_bulk=True) == (GIVING_WAY if gives_way else BULK)
    assert (precedence.rounds(4, is_bulk=False), precedence.limits(LIMITS, is_bulk=False)) == (4, LIMITS)


def test_large_inserts_do_not_give_way_to_each_other() -> None:
    precedence = Precedence(ManualClock())
    precedence.began(is_bulk=True)
    assert precedence.rounds(4, is_bulk=True) == 4
    assert precedence.limits(LIMITS, is_bulk=True) == BULK
