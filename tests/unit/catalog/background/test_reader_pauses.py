from __future__ import annotations

from catalog.background.reader_pauses import ReaderPauses
from tests.support.catalog_parts import ManualClock


def test_a_pause_is_of_one_database_and_ends() -> None:
    clock = ManualClock()
    pauses = ReaderPauses(clock, 1.0)
    pauses.begin("a")
    assert (pauses.are_on("a"), pauses.are_on("b")) == (True, False)
    clock.now += 1.0
    pauses.begin("b")
    assert (pauses.are_on("a"), pauses.are_on("b")) == (False, True)
