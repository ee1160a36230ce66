"""Compressed buckets are read by a server as what they were made of, and both forms write the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from catalog.bson import raw
from catalog.kernel.compression import compressed
from tests.support.bucket_strategies import damaged, stored_buckets
from tests.support.column_strategies import RAW, buckets
from tests.support.kernels import COMPILED
from tests.support.mongod import MongodProcess


@pytest.fixture(scope="module")
def database(mongod: MongodProcess) -> Iterator[Database[Any]]:
    with mongod.client() as client:
        database = client["compression"]
        client.drop_database("compression")
        database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
        yield database
        client.drop_database("compression")


def _sorted_rows(document: bytes) -> list[dict[bytes, bytes]]:
    data = raw.fields_of(raw.fields_of(document)[b"data"], 1)
    rows: list[dict[bytes, bytes]] = []
    for name, column in data.items():
        for key, value in raw.iter_elements(column, 1):
            if name == b"t":
                rows.append({b"m": b"\x10\1\0\0\0"})
            rows[int(key)][name] = value
    return sorted(rows, key=lambda row: raw.unpack_int64(row[b"t"], 1)[0])


@given(document=buckets())
def test_a_server_reads_what_was_compressed(database: Database[Any], document: bytes) -> None:
    """W6, W7, W140-W148."""
    smaller = compressed(document, b"t")
    if smaller is None:
        return
    assert len(smaller) < len(document)
    stored = database.get_collection("system.buckets.x")
    stored.delete_many({})
    stored.insert_one(RawBSONDocument(smaller))
    found = [raw.fields_of(row.raw) for row in database.get_collection("x", RAW).find({})]
    assert found == _sorted_rows(document)


def _both(document: bytes) -> None:
    outcomes: list[Any] = []
    for form in (compressed, compressed if COMPILED is None else COMPILED.compressed):
        try:
            outcomes.append(form(document, b"t"))
        except ValueError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


@settings(max_examples=max(1, settings.default.max_examples // 2))
@given(document=buckets())
def test_both_forms_compress_alike(document: bytes) -> None:
    _both(document)


@given(document=st.one_of(stored_buckets(), damaged(stored_buckets()), damaged(buckets())))
def test_damaged_buckets_are_refused_alike(document: bytes) -> None:
    _both(document)


@settings(max_examples=max(1, settings.default.max_examples // 8))
@given(st.lists(st.one_of(buckets(), damaged(buckets())), min_size=2, max_size=4))
def test_threads_compress_side_by_side(documents: list[bytes]) -> None:
    """The compiled form works without the interpreter's lock; what is damaged is refused there as anywhere."""
    inputs = documents * 4

    def outcome(document: bytes) -> bytes | str | None:
        try:
            return COMPILED.compressed(document, b"t") if COMPILED is not None else compressed(document, b"t")
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(outcome, inputs)) == [outcome(each) for each in inputs]
