"""Gives stored buckets of one series the same start, so that their rows can be in one bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catalog.bson import raw

_DATE_BYTES: Final = 8
_EMPTY_BYTES: Final = 5


def aligned(documents: Sequence[bytes], time_field: bytes, span_ms: int) -> list[bytes]:
    """The buckets with the start of the last one; nothing else of them is changed.

    :raises ValueError: they have no start or end, the last one is not the earliest, or they do not fit into a bucket of
        ``span_ms``
    """
    starts_at = [_date_at(document, b"min", time_field) for document in documents]
    starts = [_date(document, at) for document, at in zip(documents, starts_at, strict=True)]
    start_ms = starts[-1]
    if all(each == start_ms for each in starts):
        return list(documents)
    if min(starts) < start_ms:
        raise ValueError("buckets of which another one starts first")
    if any(_date(each, _date_at(each, b"max", time_field)) >= start_ms + span_ms for each in documents):
        raise ValueError("buckets that do not fit into one")
    start = raw.pack_int64(start_ms)
    return [each[:at] + start + each[at + _DATE_BYTES :] for each, at in zip(documents, starts_at, strict=True)]


def rows_of(document: bytes, time_field: bytes) -> int:
    """The number of rows of a version 1 bucket whose rows are numbered without gaps; others are not joined.

    :raises ValueError: there is no such number
    """
    at, _ = _inside(document, ((b"data", raw.OBJECT), (time_field, raw.OBJECT)))
    left: int = raw.unpack_int32(document, at)[0] - _EMPTY_BYTES
    rows, digits = 0, 1
    while left:
        row_bytes = 1 + digits + 1 + _DATE_BYTES
        count = min(10**digits - rows, left // row_bytes)
        if count <= 0:
            raise ValueError("time column of wrong length")
        rows += count
        left -= count * row_bytes
        digits += 1
    return rows


def _date_at(document: bytes, end: bytes, time_field: bytes) -> int:
    """Where the date ``control.<end>.<time field>`` is."""
    return _inside(document, ((b"control", raw.OBJECT), (end, raw.OBJECT), (time_field, raw.DATE)))[0]


def _inside(document: bytes, path: Sequence[tuple[bytes, int]]) -> tuple[int, int]:
    """Start and end of the value at the end of this path of names and types."""
    at, stop = 0, len(document)
    for name, kind in path:
        at, stop = _value_at(document, at, stop, name, kind)
    return at, stop


def _value_at(document: bytes, at: int, stop: int, name: bytes, kind: int) -> tuple[int, int]:
    for kind_at, each, value, value_stop in raw.iter_positions(document, at, stop):
        if each == name and document[kind_at] == kind:
            return value, value_stop
    raise ValueError("a bucket without a start, an end or times")


def _date(document: bytes, at: int) -> int:
    value: int = raw.unpack_int64(document, at)[0]
    return value
