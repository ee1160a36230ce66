"""Compressed buckets are read by a server as what they were made of, and both forms write the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, ObjectId, Timestamp, encode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from catalog.bson import raw
from catalog.compression import compressed
from tests.property.test_kernel_forms import damaged, stored_buckets
from tests.support.kernels import COMPILED
from tests.support.measurement_strategies import START_MS, any_value
from tests.support.mongod import MongodProcess

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
BUCKET_ID = ObjectId((START_MS // 1000).to_bytes(4, "big") + b"abcdefgh")


def _object_id(second: int, counter: int) -> ObjectId:
    return ObjectId(second.to_bytes(4, "big") + b"abcde" + counter.to_bytes(3, "big"))


_SERIES: tuple[Any, ...] = (
    lambda a, b, i: a + b * i,
    lambda a, b, i: Int64((a * 2**40 + b * i**5 + 2**63) % 2**64 - 2**63),
    lambda a, b, i: (a + b * i) / 100,
    lambda a, b, i: float(a) / (b * i + 1 or 1),
    lambda a, b, i: [0.5, -0.0, 1e300, 2.0**53, float("nan"), 7.25][(a + i // (abs(b) + 1)) % 6],
    lambda a, b, i: DatetimeMS(START_MS + a + b * i + i // 50),
    lambda a, b, i: Timestamp(1000 + i, (a * i) % 97),
    lambda a, b, i: _object_id(START_MS // 1000 + i // 9, a % 999 + i),
    lambda a, b, i: ["ok", "", "warning", "x" * 16, "y" * 17, "\0a", "ok!"][(a + i * b) % 7],
    lambda a, b, i: Code("ab"[: i % 3]),
    lambda a, b, i: Binary(bytes([a % 256, i % 3]), [0, 4][(i * b // 40) % 2]),
    lambda a, b, i: Decimal128(f"{a + b * i}.5"),
    lambda a, b, i: i % (abs(b) + 2) == 0,
    lambda a, b, i: {"x": a + i // 70, "y": [b]},
)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> dict[str, Any]:
    """The cells of one column: stretches of series, of one value, and of nothing."""
    cells: dict[str, Any] = {}
    at = 0
    while at < rows:
        length = draw(st.sampled_from([1, 1, 2, 5, 30, 61, 130, 400, rows]))
        make = draw(st.sampled_from((*_SERIES, *_SERIES, None, "same", "same")))
        a, b = draw(st.integers(-500, 500)), draw(st.sampled_from([0, 0, 1, -3, 1000, 10**7]))
        value = draw(any_value) if make == "same" else None
        for row in range(at, min(rows, at + length)):
            if make is not None:
                cells[str(row)] = value if make == "same" else make(a, b, row - at)
        at += length
    return cells


@st.composite
def buckets(draw: st.DrawFn) -> bytes:
    rows = draw(st.sampled_from([2, 3, 17, 130, 500, 1000, 2500]))
    step = draw(st.sampled_from([0, 1, 1000, 1000, 60_000, -1000]))
    jitter = draw(st.sampled_from([1, 1, 2, 977]))
    times = {str(row): DatetimeMS(START_MS + (step * row + row * row % jitter) % 3_000_000) for row in range(rows)}
    fields = draw(st.lists(columns(rows), min_size=1, max_size=4))
    data = {"t": times, **{f"f{index}": cells for index, cells in enumerate(fields) if cells}}
    ends = {"t": DatetimeMS(START_MS)}, {"t": DatetimeMS(START_MS + 3_000_000)}
    control = {"version": 1, "min": ends[0], "max": ends[1]}
    return encode({"_id": BUCKET_ID, "control": control, "meta": 1, "data": data})


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
