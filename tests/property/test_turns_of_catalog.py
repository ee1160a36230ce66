"""No call of the catalog holds the event loop, however many series and buckets one collection has.

Processor time is measured, so that a busy machine fails no test.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from catalog.growth.growth import GrowthOptions
from tests.support.catalog_parts import HOUR_MS, CatalogBench, measurement
from tests.support.yardstick import least_seconds, seconds_of

SCALE = int(os.environ.get("TSPROXY_TEST_SCALE", "1"))
SERIES = 30_000 if SCALE == 1 else 100_000
LONGEST_SECONDS = 0.020
"""Interpreted; compiled it takes less."""
IN_PLACE = GrowthOptions()


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """The collector's own turns are not what is measured."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def turns(first: Callable[[], object], further: Callable[[], bool]) -> list[float]:
    """How long the first turn took, and each of the further ones."""
    taken = [seconds_of(first)]
    left = [True]
    while left[-1]:
        taken.append(seconds_of(lambda: left.append(further())))
    return taken


def bench_with(*, growth: GrowthOptions = IN_PLACE, reopening: bool = False) -> CatalogBench:
    return CatalogBench(growth=growth, reopening=reopening, memory_threshold_bytes=1 << 40)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["clear", "drop", "clear in parts", "drop in parts"])
def test_all_buckets_of_a_collection_are_cleared(how: str) -> None:
    assert least_seconds(lambda: longest_of_clearing(how), LONGEST_SECONDS) < LONGEST_SECONDS


def longest_of_clearing(how: str) -> float:
    growth = GrowthOptions(in_parts="parts" in how, batches_in_round=1, rows_in_place=1)
    bench = bench_with(growth=growth)
    for number in range(SERIES):
        bench.commit(measurement(meta=number))
        if growth.in_parts:
            bench.commit(measurement(1, meta=number))
    call = bench.catalog.clear if "clear" in how else bench.catalog.drop
    taken = turns(lambda: call(bench.virtual.namespace), bench.catalog.free_cleared)
    assert bench.open_buckets == 0
    if how == "drop in parts":
        assert (len(bench.catalog.growth.parted), bench.catalog.growth.unjoined) == (0, 0)
    return max(taken)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stored_until_ms", [-(1 << 63), None], ids=["found", "in vain"])
def test_many_series_wait_for_what_is_stored(stored_until_ms: int | None) -> None:
    assert least_seconds(lambda: longest_of_opening(stored_until_ms), LONGEST_SECONDS) < LONGEST_SECONDS


def longest_of_opening(stored_until_ms: int | None) -> float:
    bench = bench_with(reopening=True)
    for number in range(SERIES):
        assert bench.stage(measurement(meta=number)) == []
    (buckets,) = bench.catalog.take_openings()
    taken = turns(lambda: bench.catalog.opened(buckets, stored_until_ms), bench.catalog.resume)
    assert bench.open_buckets == SERIES
    return max(taken)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("meanwhile", ["nothing", "clear", "drop"])
def test_inactive_buckets_of_many_series_are_closed(meanwhile: str) -> None:
    """W50. What is cleared or dropped between two turns is not closed a second time."""
    assert least_seconds(lambda: longest_of_closing(meanwhile), LONGEST_SECONDS) < LONGEST_SECONDS


def longest_of_closing(meanwhile: str) -> float:
    bench = bench_with()
    for number in range(SERIES // 2):
        bench.commit(measurement(meta=number))
        bench.commit(measurement(HOUR_MS, meta=number))
    before: dict[bytes, int] = {}
    list(bench.catalog.close_inactive({}, before))
    assert len(before) == SERIES // 2
    steps = iter(bench.catalog.close_inactive(before, {}))
    taken = [seconds_of(lambda: next(steps))]
    if meanwhile != "nothing":
        getattr(bench.catalog, meanwhile)(bench.virtual.namespace)
        while bench.catalog.free_cleared():
            pass
    left = [None, None]
    while left[-1] is None:
        taken.append(seconds_of(lambda: left.append(next(steps, 0))))  # type: ignore[arg-type]
    assert bench.open_buckets == (SERIES // 2 if meanwhile == "nothing" else 0)
    return max(taken)
