"""Generated columns and the buckets around them: of scalars, as devices write them, and of objects and arrays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, ObjectId, Timestamp, encode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import strategies as st

from tests.support.measurement_strategies import START_MS, any_value
from tests.support.wanted import SCALE

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
SLOW_TO_GENERATE = [
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
    pytest.mark.timeout(120 + 60 * SCALE),
]
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


ABSENT: Any = object()
SERIES = itertools.count()
NAMES = ("a", "b", "c", "d", "e", "a longer name", "a name that is even longer")

_steady = st.sampled_from(
    [
        lambda row: row,
        lambda row: row % 3,
        lambda row: row * row / 100,
        lambda row: DatetimeMS(START_MS + 1000 * row + row // 9),
        lambda row: ["ok", "warning", "more than sixteen characters"][row * row % 3],
        lambda row: ObjectId((START_MS // 1000 + row).to_bytes(4, "big") + b"abcde" + row.to_bytes(3, "big")),
        lambda row: row % 7 == 0,
        lambda row: 5,
    ]
)
_wild = st.lists(any_value, min_size=1, max_size=3).map(lambda values: lambda row: values[row % len(values)])


def _leaves(*, wild: bool) -> st.SearchStrategy[Any]:
    return st.one_of(_steady, _steady, _wild) if wild else _steady


def _shapes(depth: int, *, wild: bool) -> st.SearchStrategy[Any]:
    """A leaf as a function of the row; a branch as fields: name, shape, and in which rows it is missing."""
    leaf = _leaves(wild=wild)
    if depth == 0:
        return leaf
    inner = st.one_of(leaf, leaf, _shapes(depth - 1, wild=wild))
    missing = st.sampled_from([0, 0, 0, 2, 3, 7, -4, -20])
    fields = st.lists(
        st.tuples(st.sampled_from(NAMES), inner, missing), min_size=0, max_size=4, unique_by=lambda field: field[0]
    )
    return st.tuples(st.sampled_from(["object", "object", "array", "turning"]), fields)


def _value(shape: Any, row: int) -> Any:
    if callable(shape):
        return shape(row)
    kind, fields = shape
    there = [
        (name, _value(inner, row))
        for name, inner, missing in fields
        if not (missing > 0 and row % missing == 1) and not (missing < 0 and row < -missing)
    ]
    if kind == "array":
        return [value for _, value in there]
    return dict(reversed(there) if kind == "turning" and row % 11 == 10 else there)


@st.composite
def object_columns(draw: st.DrawFn, *, wild: bool = True) -> list[Any]:
    """The values of a column, of one shape and perhaps then of another."""
    values: list[Any] = []
    for _ in range(draw(st.integers(1, 2 if wild else 1))):
        shape = draw(_shapes(2, wild=wild).filter(lambda shape: not callable(shape)))
        absent = draw(st.sampled_from([0, 0, 0, 2, 5]))
        for row in range(draw(st.sampled_from([2, 4, 9, 30, 70]))):
            values.append(ABSENT if absent and row % absent == 1 else _value(shape, row))
    return values


_PLAIN = (0, 1.5, "", True, "text", "text" * 3, 2.0**63, None)
_ENDINGS = ("", "", "long name " * 2, "n" * 25, "n" * 50)


def _any_shape(chance: random.Random, depth: int) -> Any:
    fields = [
        _any_shape(chance, depth - 1) if depth and chance.random() < 0.5 else chance.choice(_PLAIN)
        for _ in range(chance.randrange(4) or 1)
    ]
    if chance.random() < 0.5:
        return fields
    return {chance.choice("abcdef") + chance.choice(_ENDINGS): value for value in fields}


def _changed(chance: random.Random, value: Any) -> Any:
    """Like ``value``, with fields left out, changed and of another type."""
    if not isinstance(value, dict | list) or chance.random() < 0.3:
        return chance.choice(_PLAIN) if chance.random() < 0.5 else _any_shape(chance, 1)

    def inner(old: Any) -> Any:
        return _changed(chance, old) if chance.random() < 0.4 else old

    if isinstance(value, list):
        return [inner(old) for old in value if chance.random() < 0.8]
    return {name: inner(old) for name, old in value.items() if chance.random() < 0.8}


def few_shapes(seed: int, columns: int = 12) -> list[list[Any]]:
    """Short columns in which the same few objects and arrays, and rows without value, follow each other at random."""
    chance = random.Random(seed)
    one = _any_shape(chance, 3)
    values = [one, _changed(chance, one), _changed(chance, one), ABSENT, ABSENT, chance.choice((ABSENT, *_PLAIN))]
    return [[chance.choice(values) for _ in range(chance.randrange(3, 9))] for _ in range(columns)]


def object_bucket(values: Sequence[Any]) -> bytes:
    times = {str(row): DatetimeMS(START_MS + 1000 * row) for row in range(len(values))}
    cells = {str(row): value for row, value in enumerate(values) if value is not ABSENT}
    padding = {str(row): "x" * 200 for row in range(len(values))}
    ends = {"t": DatetimeMS(START_MS)}
    return encode(
        {
            "_id": ObjectId((START_MS // 1000).to_bytes(4, "big") + b"abcdefgh"),
            "control": {"version": 1, "min": ends, "max": {"t": DatetimeMS(START_MS + 3_000_000)}},
            "meta": 1,
            "data": {"t": times, "padding": padding, **({"o": cells} if cells else {})},
        }
    )
