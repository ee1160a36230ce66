"""What counts as a cost of inserts beside their time."""

from __future__ import annotations

import pytest

from catalog.growth.growth import JOIN_SECONDS, SEALED_JOIN_SECONDS, GrowthOptions
from catalog.namespaces import Namespace
from catalog.write_costs import WriteCosts
from tests.support.catalog_parts import HOUR_MS, START_MS, CatalogBench, measurement


def test_series_that_returns_to_its_bucket_counts_as_late() -> None:
    bench = CatalogBench(reopening=True, stored_until_ms=START_MS - 9 * HOUR_MS)
    costs = WriteCosts(bench.catalog)
    for time_ms in (0, 2 * HOUR_MS, HOUR_MS // 2):
        bench.commit(measurement(time_ms))
    assert bench.buckets.counters.numBucketsReopened == 1
    assert costs.late_measurements(bench.virtual.namespace) == 2, "it goes back, and returns"
    assert costs.late_measurements(Namespace("db", "never used")) == 0


@pytest.mark.parametrize(("sealed", "join_seconds"), [(False, JOIN_SECONDS), (True, SEALED_JOIN_SECONDS)])
def test_joins_of_all_parts_count_also_of_those_that_are_joined(join_seconds: float, *, sealed: bool) -> None:
    bench = CatalogBench(growth=GrowthOptions(in_parts=True, sealed=sealed, batches_in_round=1, rows_in_place=1))
    costs, namespace = WriteCosts(bench.catalog), bench.virtual.namespace
    bench.commit(measurement())
    assert costs.join_seconds(namespace) == 0
    for time_ms in (1, 2):
        bench.commit(measurement(time_ms))
    assert costs.has_unjoined
    for bucket in list(bench.catalog.growth.parted):
        assert bucket.parts is not None
        bench.catalog.growth.joined(bucket, bucket.parts, bucket.parts.pending(everything=True))
    assert not costs.has_unjoined
    assert costs.join_seconds(namespace) == pytest.approx(2 * join_seconds)
    assert costs.join_seconds(Namespace("db", "never used")) == 0
