from __future__ import annotations

import random

import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteError,
    WTimeoutError,
)

from proxy.tools.bench.tally import Latencies, Ratio, Tally, class_of, is_unknown, median, ratio_of


def test_percentiles_are_exact_to_two_percent() -> None:
    latencies, chance = Latencies(), random.Random(5)
    values = [chance.lognormvariate(-6, 1) for _ in range(10_000)]
    for value in values:
        latencies.add(value)
    ordered = sorted(values)
    for percent in (50, 95, 99):
        found = latencies.percentile_ms(percent)
        assert found is not None
        assert ordered[percent * 100 - 1] * 1000 <= found * 1.0001
        assert found <= ordered[percent * 100 - 1] * 1000 * 1.03
    assert len(latencies.counts) < 1_000


def test_nothing_has_no_percentile() -> None:
    latencies = Latencies()
    assert latencies.percentile_ms(50) is None
    latencies.add(0.0)
    assert latencies.percentile_ms(99) == pytest.approx(0.001, rel=0.05)


def tally(seconds: float, rows: int, share: float) -> Tally:
    found = Tally(seconds=seconds, rows=rows, check=rows * 3, unknown_rows=1, commands=2, reads=4, cpu_seconds=1.0)
    found.errors["AutoReconnect"] += 1
    found.busiest_share = share
    found.inserting.add(0.001)
    return found


def test_processes_of_a_round_run_at_once_and_rounds_one_after_the_other() -> None:
    both, after = Tally(), Tally()
    for each in (tally(2.0, 100, 0.5), tally(2.5, 200, 0.9)):
        both.add(each)
        after.follow(each)
    assert (both.seconds, both.rate) == (2.5, 120)
    assert (after.seconds, after.rows) == (4.5, 300)
    for whole in (both, after):
        assert (whole.rows, whole.check, whole.unknown_rows, whole.commands, whole.reads) == (300, 900, 2, 4, 8)
        assert (whole.errors["AutoReconnect"], whole.inserting.counts.total(), whole.cpu_seconds) == (2, 2, 2.0)
        assert (whole.busiest_share, whole.is_limited_by_client) == (0.9, True)
    assert Tally().rate == 0


@pytest.mark.parametrize(
    ("error", "name", "unknown"),
    [
        (OperationFailure("no", 13, {"codeName": "Unauthorized"}), "Unauthorized (13)", False),
        (OperationFailure("no", 54321), "error 54321", False),
        (WriteError("no", 121, {}), "error 121", False),
        (BulkWriteError({"writeErrors": [{"code": 2, "index": 0}]}), "write error 2", False),
        (AutoReconnect("gone"), "AutoReconnect", True),
        (NetworkTimeout("late"), "NetworkTimeout", True),
        (ServerSelectionTimeoutError("none"), "ServerSelectionTimeoutError", False),
        (WTimeoutError("late", 64), "error 64", True),
        (PyMongoError("strange"), "PyMongoError", False),
    ],
)
def test_errors_have_classes(error: PyMongoError, name: str, unknown: bool) -> None:
    assert class_of(error) == name
    assert is_unknown(error) is unknown


def test_the_ratio_has_a_spread() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0]) == 2.5
    assert ratio_of([2.0, 6.0, 3.0], [1.0, 2.0, 2.0]) == Ratio(2.0, 1.5, 3.0)
    assert ratio_of([1.0], [0.0]) is None
    assert ratio_of([], []) is None
