"""What reads compressed columns to compare them: a server's own buckets, ours, damaged ones; both forms alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from bson import DatetimeMS, decode
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from catalog.bson import raw
from catalog.kernel.compression import compressed
from tests.support.bucket_strategies import damaged
from tests.support.column_strategies import (
    ABSENT,
    RAW,
    SERIES,
    SLOW_TO_GENERATE,
    buckets,
    columns,
    object_bucket,
    object_columns,
)
from tests.support.kernels import COMPILED, INTERPRETED
from tests.support.measurement_strategies import START_MS
from tests.support.mongod import MongodProcess
from tests.support.wide_documents import wide_bucket

pytestmark = SLOW_TO_GENERATE
FORMS = [INTERPRETED, COMPILED or INTERPRETED]
FEW = max(1, settings.default.max_examples // 5)
wide = st.integers(0, 2**32).map(lambda seed: wide_bucket(random.Random(seed)))
any_bucket = st.one_of(buckets(), object_columns().map(object_bucket), wide)


@pytest.fixture(scope="module")
def database(mongod: MongodProcess) -> Iterator[Database[Any]]:
    with mongod.client() as client:
        client.drop_database("decoding")
        client["decoding"].create_collection("native", timeseries={"timeField": "t", "metaField": "m"})
        yield client["decoding"]
        client.drop_database("decoding")


def _columns(packed: bytes) -> dict[bytes, bytes]:
    """The streams of a compressed bucket."""
    data = raw.fields_of(raw.fields_of(packed)[b"data"], 1)
    return {name: value[6:] for name, value in data.items()}


def _cells(stream: bytes, rows: int) -> Any:
    """What both forms make of a stream."""
    outcomes: list[Any] = []
    for form in FORMS:
        try:
            outcomes.append(form.column_cells(stream, rows))
        except ValueError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


@st.composite
def _natives(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of one series: a column of objects, two of scalars."""
    values = draw(object_columns())
    rows = len(values)
    cells = {"o": {str(row): value for row, value in enumerate(values) if value is not ABSENT}}
    cells |= {"a": draw(columns(rows)), "b": draw(columns(rows))}
    return [
        {"t": DatetimeMS(START_MS + 1000 * row)} | {name: c[str(row)] for name, c in cells.items() if str(row) in c}
        for row in range(rows)
    ]


@settings(max_examples=FEW)
@given(batch=st.lists(_natives(), min_size=2, max_size=4))
def test_what_a_server_compressed_is_read_as_the_server_reads_it(
    database: Database[Any], batch: list[list[dict[str, Any]]]
) -> None:
    """W140-W147: neither the encoder nor the reader is ours."""
    if database.client.server_info()["versionArray"][:2] < [6, 0]:
        # 5.0 compresses nothing (W9).
        return
    series = [next(SERIES) for _ in batch]
    for meta, rows in zip(series, batch, strict=True):
        database["native"].insert_many([{**row, "m": meta, "padding": "x" * 50} for row in rows])
    database["native"].insert_many([{"t": DatetimeMS(START_MS - 10**8), "m": meta} for meta in series])
    buckets = database.get_collection("system.buckets.native", RAW)
    unpack = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}
    for stored in buckets.find({"meta": {"$in": series}, "control.version": 2}):
        identity = decode(stored.raw)["_id"]
        found = buckets.aggregate([{"$match": {"_id": identity}}, {"$_internalUnpackBucket": unpack}])
        rows = [raw.fields_of(bytes(row.raw)) for row in found]
        for name, stream in _columns(bytes(stored.raw)).items():
            assert _cells(stream, len(rows)) == [row.get(name) for row in rows]


@settings(max_examples=FEW)
@given(document=wide)
def test_a_server_and_both_forms_read_wide_objects_alike(database: Database[Any], document: bytes) -> None:
    packed = (COMPILED or INTERPRETED).compressed(document, b"t")
    if packed is None:
        return
    stored = database.get_collection("ours", RAW)
    stored.delete_many({})
    stored.insert_one(RawBSONDocument(packed))
    unpack = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}
    rows = [raw.fields_of(bytes(row.raw)) for row in stored.aggregate([{"$_internalUnpackBucket": unpack}])]
    for name, stream in _columns(packed).items():
        assert _cells(stream, len(rows)) == [row.get(name) for row in rows]


@settings(max_examples=FEW)
@given(document=any_bucket)
def test_what_is_compressed_compares_equal(document: bytes) -> None:
    packed = (COMPILED or INTERPRETED).compressed(document, b"t")
    if packed is not None:
        assert [form.same_rows(document, packed, b"t") for form in FORMS] == [True, True]


@settings(max_examples=FEW)
@given(document=any_bucket, seed=st.integers(0, 2**32))
def test_no_damage_goes_unnoticed(document: bytes, seed: int) -> None:
    """Of a compressed bucket one byte is changed, and both forms notice, or the values are the same nevertheless."""
    packed = (COMPILED or INTERPRETED).compressed(document, b"t")
    if packed is None:
        return
    chance, broken = random.Random(seed), bytearray(packed)
    broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
    answers = [form.same_rows(document, bytes(broken), b"t") for form in FORMS]
    assert answers[0] == answers[1]
    if answers[0]:
        rows = len(raw.fields_of(raw.fields_of(raw.fields_of(document)[b"data"], 1)[b"t"], 1))
        columns = zip(_columns(packed).values(), _columns(bytes(broken)).values(), strict=True)
        assert all(_cells(one, rows) == _cells(other, rows) for one, other in columns)


@settings(max_examples=FEW)
@given(document=any_bucket.map(lambda each: compressed(each, b"t") or each), data=st.data())
def test_damaged_columns_are_read_alike(document: bytes, data: st.DataObject) -> None:
    if decode(document)["control"]["version"] == 2:
        stream = data.draw(st.sampled_from(list(_columns(document).values())))
        _cells(data.draw(damaged(st.just(stream))), data.draw(st.sampled_from([2, 30, 500, 5000])))


@settings(max_examples=FEW)
@given(one=any_bucket, broken=damaged(any_bucket))
def test_damaged_buckets_are_compared_alike(one: bytes, broken: bytes) -> None:
    packed = compressed(one, b"t") or one
    for pair in ((broken, packed), (one, broken), (broken, broken)):
        assert len({form.same_rows(*pair, b"t") for form in FORMS}) == 1
        assert len({form.holds_parts(pair[0], [pair[1]], b"t") for form in FORMS}) == 1
        assert len({form.holds_rows(pair[0], [pair[1]], b"t") for form in FORMS}) == 1
        assert len({form.has_true_header(pair[0], b"t") for form in FORMS}) == 1
