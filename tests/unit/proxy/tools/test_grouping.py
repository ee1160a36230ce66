"""Rows are sent by series and time, each series in one lane, and every row once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
from hypothesis import given
from hypothesis import strategies as st

from proxy.tools.grouping import Sendable, batches, lanes, sendable
from proxy.tools.rows import BadRow, Row

MADE = bytes(range(12))


def made(document: dict[str, Any]) -> Sendable | BadRow:
    return sendable(Row(bson.encode(document), 3, 9), lambda entry: MADE, 3, b"t", b"m")


def at(milliseconds: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


def test_a_row_without_id_gets_one() -> None:
    row = made({"t": at(0), "m": 1})
    assert isinstance(row, Sendable)
    assert bson.decode(row.document)["_id"] == bson.ObjectId(MADE)
    assert row.id == b"\x07" + MADE
    own = made({"t": at(0), "m": {"b": 1, "a": 2}, "_id": "x"})
    assert isinstance(own, Sendable)
    assert own.id == b"\x02" + b"\x02\0\0\0x\0"
    same = made({"_id": bson.ObjectId(MADE), "t": at(0), "m": {"a": 2, "b": 1}})
    assert isinstance(same, Sendable)
    assert (same.id, same.meta) == (row.id, own.meta)


def test_what_is_no_measurement_is_a_bad_row() -> None:
    row = made({"m": 1, "t": "now"})
    assert isinstance(row, BadRow)
    assert (row.where, row.end) == (3, 9)
    assert "must be present and contain a valid BSON UTC datetime" in row.reason
    assert '"now"' in row.text
    damaged = sendable(Row(b"\x09\0\0\0\x02abc\0", 1, 1), lambda entry: MADE, 1, b"t", None)
    assert isinstance(damaged, BadRow)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=60), st.integers(1, 5), st.integers(1, 9))
def test_every_row_once_by_series_and_time(rows: list[tuple[int, int]], count: int, most: int) -> None:
    whole = [made({"_id": n, "t": at(time), "m": meta}) for n, (meta, time) in enumerate(rows)]
    found = lanes([row for row in whole if isinstance(row, Sendable)], count)
    assert len(found) <= count
    seen: set[bytes] = set()
    for lane in found:
        series = list(dict.fromkeys(row.meta for row in lane))
        assert not seen & set(series)
        seen |= set(series)
        assert [row.meta for row in lane] == [meta for meta in series for row in lane if row.meta == meta]
        for meta in series:
            times = [row.time_ms for row in lane if row.meta == meta]
            assert times == sorted(times)
        pieces = list(batches(lane, most))
        assert [row for piece in pieces for row in piece] == lane
        assert all(0 < len(piece) <= most for piece in pieces)
    assert sorted(row.id for lane in found for row in lane) == sorted(
        row.id for row in whole if isinstance(row, Sendable)
    )
