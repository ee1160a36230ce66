"""Buckets equal to those that a server makes, for generated measurements (W3-W47)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from pymongo.database import Database

from tests.support.kernel_driver import KernelCollection, bucket_forms, rows_read, stored_rows
from tests.support.kernels import KERNELS
from tests.support.measurement_strategies import series
from tests.support.mongod import MongodProcess

OPTIONS = {
    "seconds": {"rounding_seconds": 60, "span_seconds": 3600},
    "minutes": {"rounding_seconds": 3600, "span_seconds": 86400},
    "hours": {"rounding_seconds": 86400, "span_seconds": 2592000},
}


@pytest.fixture(scope="module")
def database(mongod: MongodProcess) -> Iterator[Database[Any]]:
    """One database for all examples: making collections is what takes time."""
    name = f"generated_{ObjectId()}"
    database = mongod.shared_client[name]
    for granularity in OPTIONS:
        for owner in ("native", "kernel"):
            timeseries = {"timeField": "t", "metaField": "m", "granularity": granularity}
            database.create_collection(f"{owner}_{granularity}", timeseries=timeseries)
    yield database
    mongod.shared_client.drop_database(name)


@pytest.fixture(scope="session")
def same_buckets(mongod_version: tuple[int, ...]) -> bool:
    """Whether buckets, not only rows, must be equal.

    Before 6.0 a bucket takes values of any type, where the kernel closes it (V2); later ones summarise fields without a
    name as well, which nothing can ask for (W93).
    """
    return mongod_version == (6, 0, 5)


def _hold(
    database: Database[Any], kernel: Any, granularity: str, commands: list[list[bytes]], *, same_buckets: bool
) -> None:
    native, ours = f"native_{granularity}", f"kernel_{granularity}"
    for name in (native, ours):
        database["system.buckets." + name].delete_many({})  # the server then opens new buckets (W72)
    collection = KernelCollection(kernel, database["system.buckets." + ours], **OPTIONS[granularity])
    for documents in commands:
        reply = database.command({"insert": native, "documents": list(map(RawBSONDocument, documents))})
        assert "writeErrors" not in reply
        collection.insert(documents)
    if not same_buckets:
        assert rows_read(database, native) == rows_read(database, ours)
        return
    span_seconds = OPTIONS[granularity]["span_seconds"]
    assert bucket_forms(database, native, span_seconds=span_seconds) == bucket_forms(
        database, ours, span_seconds=span_seconds
    )
    assert not stored_rows(database, native) - stored_rows(database, ours)


@pytest.mark.parametrize("form", KERNELS)
@given(commands=series())
@pytest.mark.timeout(900)
def test_generated_measurements_make_the_servers_buckets(
    database: Database[Any], form: str, commands: list[list[bytes]], same_buckets: bool
) -> None:
    """W20-W47 over every type, with and without meta, as single inserts and as batches."""
    _hold(database, KERNELS[form], "seconds", commands, same_buckets=same_buckets)


@pytest.mark.parametrize("form", KERNELS)
@given(commands=series(reach_ms=40 * 86400 * 1000))
@pytest.mark.timeout(900)
def test_generated_measurements_in_coarse_collections(
    database: Database[Any], form: str, commands: list[list[bytes]], same_buckets: bool
) -> None:
    """W31: the same with the roundings and spans of ``minutes`` and ``hours``."""
    for granularity in ("minutes", "hours"):
        _hold(database, KERNELS[form], granularity, commands, same_buckets=same_buckets)
