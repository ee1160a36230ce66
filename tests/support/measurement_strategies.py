"""Measurements for property tests: documents that tend to share buckets, and some that do not."""

from __future__ import annotations

import datetime as dt
from typing import Any

from bson import (
    Binary,
    Code,
    DatetimeMS,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    encode,
)
from hypothesis import strategies as st

START_MS = int(dt.datetime(2024, 5, 1, tzinfo=dt.UTC).timestamp() * 1000)
NAMES = ("a", "b", "temp", "_id", "é", "0", "7", "control", "a$b", "long name " * 3)
ODD_NAMES = ("a.b", "", "$x", "$", "$[]", ".", "$[a]")

small = st.integers(-5, 5)
numbers = st.one_of(
    small,
    small.map(float),
    small.map(Int64),
    st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 0.1, 2.0**53, 2.0**63, -(2.0**63)]),
    st.sampled_from([Int64(2**53 + 1), Int64(2**63 - 1), Int64(-(2**63)), 2**31 - 1]),
    st.sampled_from(["0", "-0", "0.1", "1.00", "NaN", "Infinity", "-Infinity", "1E+400", "9007199254740993"]).map(
        Decimal128
    ),
)
_oids = st.sampled_from([ObjectId("00" * 12), ObjectId("ff" * 12), ObjectId("0123456789abcdef01234567")])
_dates = st.integers(-(10**12), 10**13).map(DatetimeMS)
SCALARS: tuple[st.SearchStrategy[Any], ...] = (
    numbers,
    numbers,
    st.text("abBé\0 ", max_size=6),
    st.booleans(),
    st.none(),
    _oids,
    _dates,
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 3)),
    st.builds(Binary, st.binary(max_size=4), st.sampled_from([0, 4, 5, 128])),
    st.builds(Regex, st.sampled_from(["a", "b", ""]), st.sampled_from(["", "i"])),
    st.builds(Code, st.text("ab", max_size=2)),
    st.builds(Code, st.text("ab", max_size=2), st.dictionaries(st.sampled_from("xy"), numbers, max_size=2)),
    st.just(MinKey()),
    st.just(MaxKey()),
)


def _values(depth: int) -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """Strategies whose values tend to be compatible with one another (W47)."""
    scalar = st.sampled_from(SCALARS)
    if depth == 0:
        return scalar
    inner = _values(depth - 1)
    names = st.sampled_from((*NAMES[:4], *ODD_NAMES[:3]))
    objects = st.dictionaries(names, inner, max_size=3).map(lambda fields: st.fixed_dictionaries({}, optional=fields))
    arrays = st.tuples(inner, inner).flatmap(
        lambda two: st.just(st.one_of(st.just([]), st.tuples(two[0]).map(list), st.tuples(*two).map(list)))
    )
    return st.one_of(scalar, scalar, scalar, objects, arrays)


any_value = _values(2).flatmap(lambda strategy: strategy)
meta_values = st.one_of(
    st.just("absent"),
    st.sampled_from(["x", "y", 1, 1.0, Int64(1), None, True, MinKey(), MaxKey(), float("nan"), Regex("a")]),
    st.sampled_from(
        [{}, [], {"b": 1, "a": {"d": 1, "c": [{"z": 1, "y": 2}]}}, {"a": {"c": [{"y": 2, "z": 1}], "d": 1}, "b": 1}]
    ),
    st.sampled_from([[1, 2], [2, 1], {"$x": 1}, {"a.b": {"": 2}}, Decimal128("1"), Timestamp(1, 1), ["x"]]),
)


@st.composite
def series(draw: st.DrawFn, *, first_ms: int = START_MS, reach_ms: int = 4 * 3600 * 1000) -> list[list[bytes]]:
    """Encoded measurements with time field ``t`` and meta field ``m``, by command."""
    names = draw(st.lists(st.sampled_from(NAMES * 2 + ODD_NAMES), min_size=1, max_size=5, unique=True))
    fields = {name: draw(_values(2)) for name in names}
    metas = draw(st.lists(meta_values, min_size=1, max_size=2))
    calm = draw(st.booleans())
    times = st.integers(0, 3000 * 1000) if calm else st.integers(-1000, reach_ms)

    @st.composite
    def document(draw: st.DrawFn) -> bytes:
        chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
        time = DatetimeMS(first_ms + draw(times))
        content: list[tuple[str, Any]] = [(name, draw(fields[name])) for name in chosen]
        if draw(st.integers(0, 19)) == 0:
            content.append((draw(st.sampled_from(names)), draw(any_value)))
        content.insert(draw(st.integers(0, len(content))), ("t", time))
        meta = draw(st.sampled_from(metas))
        if meta != "absent":
            content.insert(draw(st.integers(0, len(content))), ("m", meta))
        return encode(dict(content))

    commands = st.lists(document(), min_size=1, max_size=draw(st.sampled_from([1, 1, 4, 8])))
    return draw(st.lists(commands, min_size=1, max_size=6))
