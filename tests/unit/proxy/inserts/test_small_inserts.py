"""Small inserts are coalesced while their rows are scattered over buckets that cannot grow in parts."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp

from catalog.growth.growth import GrowthOptions
from catalog.growth.scatter import FIRST_HOLD_SECONDS
from proxy.inserts.small_inserts import SmallInserts
from proxy.inserts.staging import Staging
from tests.support.catalog_parts import ACKNOWLEDGED, CatalogBench, measurement

PARTS = GrowthOptions(in_parts=True)


def scattered(bench: CatalogBench, rounds: int = 60, series: int = 20) -> None:
    """More than half a second of rounds with a row for each of these series."""
    for number in range(rounds):
        batches = bench.stage(*(measurement(number, meta=meta) for meta in range(series)))
        for batch in batches:
            batch.claim()
            assert bench.catalog.prepare(batch) is not None
        bench.catalog.finish(batches, ACKNOWLEDGED)
        bench.clock.now += 0.01


def small(bench: CatalogBench, *, may_insert: bool = True) -> SmallInserts:
    return SmallInserts(bench.catalog, Staging(None), lambda namespace: may_insert)  # type: ignore[arg-type]


def document(**fields: Any) -> bytes:
    return bson.encode({"t": bson.DatetimeMS(1_700_000_000_000), "m": 1, **fields})


def test_scattered_rows_are_coalesced_for_a_while() -> None:
    bench = CatalogBench()
    inserts = small(bench)
    assert not inserts.takes(bench.virtual, document())
    scattered(bench)
    assert inserts.takes(bench.virtual, document())
    bench.clock.now += FIRST_HOLD_SECONDS
    assert not inserts.takes(bench.virtual, document())


def test_where_parts_are_possible_nothing_is() -> None:
    bench = CatalogBench(growth=PARTS)
    scattered(bench)
    assert not small(bench).takes(bench.virtual, document())


def test_beside_other_proxies_they_are() -> None:
    """Also at once if there was none before: the catalog grows in place meanwhile."""
    bench = CatalogBench(growth=PARTS)
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=True)
    scattered(bench)
    assert small(bench).takes(bench.virtual, document())
    bench.catalog.growth.obstacles.beside_other_proxies(are_there=False)
    assert not small(bench).takes(bench.virtual, document())


def test_an_account_that_may_not_insert_leaves_them_to_the_catalog() -> None:
    bench = CatalogBench()
    scattered(bench)
    assert not small(bench, may_insert=False).takes(bench.virtual, document())


@pytest.mark.parametrize(
    "fields",
    [{"t": bson.DatetimeMS(-1)}, {"t": "no time"}, {"m": Timestamp(0, 0)}],
    ids=["a distant time", "an invalid time", "an empty timestamp as meta"],
)
def test_documents_that_a_server_would_treat_otherwise_are_not(fields: dict[str, Any]) -> None:
    """Q12, W36; an unordered insert fills in empty timestamps."""
    bench = CatalogBench()
    scattered(bench)
    assert not small(bench).takes(bench.virtual, document(**fields))


def test_a_dropped_collection_is_forgotten() -> None:
    bench = CatalogBench()
    scattered(bench)
    bench.catalog.drop(bench.virtual.namespace)
    assert not small(bench).takes(bench.virtual, document())
