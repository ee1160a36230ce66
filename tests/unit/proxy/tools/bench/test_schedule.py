from __future__ import annotations

from collections import Counter

import pytest

from proxy.tools.bench.schedule import BUCKET_ROWS, FILLING_BATCH, MOST_FILLING_ROWS, Turns, order_of


@pytest.mark.parametrize(("connections", "series"), [(1, 1), (3, 10), (10, 3), (4, 4), (7, 1), (1, 7)])
@pytest.mark.parametrize("fills", [True, False])
def test_every_row_has_one_connection(connections: int, series: int, fills: bool) -> None:
    turns = Turns(connections, series, fills=fills)
    places: Counter[tuple[int, int]] = Counter()
    for connection in range(connections):
        allotment = turns.allotment(connection)
        for batch in allotment.filling():
            assert 0 < len(batch) <= FILLING_BATCH
            assert len({each for each, _ in batch}) == 1
            places.update(batch)
        places.update(allotment.next() for _ in range(40))
    assert set(places.values()) == {1}
    assert {each for each, _ in places} == set(range(series))
    for each in range(series):
        ticks = sorted(tick for found, tick in places if found == each)
        if connections <= series:
            assert ticks == list(range(len(ticks))), "without gaps"


def test_series_begin_with_different_numbers_of_rows_half_a_bucket_on_average() -> None:
    turns = Turns(8, 500)
    rows = [turns.filling_rows(series) for series in range(500)]
    assert max(rows) < BUCKET_ROWS
    assert 450 < sum(rows) / len(rows) < 550
    assert len(set(rows)) > 300
    assert not any(Turns(8, 500, fills=False).filling_rows(series) for series in range(500))


def test_the_warm_up_is_bounded() -> None:
    turns = Turns(8, 100_000)
    assert sum(turns.filling_rows(series) for series in range(100_000)) <= MOST_FILLING_ROWS
    assert Turns(1, 10_000_000).filling_rows(5) == 0


def test_drift_affects_both_sides() -> None:
    assert "".join(each[0] for each in order_of(4, ("proxy", "direct"))) == "pddppddp"
