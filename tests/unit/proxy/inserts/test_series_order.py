from __future__ import annotations

import random
from itertools import pairwise

from proxy.inserts.series_order import by_series
from tests.support.catalog_parts import measurement


def test_rows_of_a_series_are_together_and_in_the_order_of_time() -> None:
    chance = random.Random(1)
    parsed = [(index, measurement(chance.randrange(50), meta=chance.randrange(5))) for index in range(500)]
    ordered = by_series(parsed)
    assert sorted(index for index, _ in ordered) == list(range(500))
    assert all(parsed[index][1] is each for index, each in ordered)
    series = [each.meta for _, each in ordered]
    assert sum(former != latter for former, latter in pairwise(series)) == 4
    for meta in set(series):
        own = [(each.time_ms, index) for index, each in ordered if each.meta == meta]
        assert own == sorted(own), "rows of one time stay in the order of the command"
