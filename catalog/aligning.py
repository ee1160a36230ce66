"""Gives stored buckets of one series the same start, so that their rows can be in one bucket."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.bson import raw

_DATE_BYTES = 8


def aligned(documents: Sequence[bytes], time_field: bytes, span_ms: int) -> list[bytes]:
    """The buckets with the earliest of their starts; nothing else of them is changed.

    :raises ValueError: they have no start or end, or do not fit into a bucket of ``span_ms``
    """
    starts_at = [_date_at(document, b"min", time_field) for document in documents]
    starts = [_date(document, at) for document, at in zip(documents, starts_at, strict=True)]
    start_ms = min(starts)
    if all(each == start_ms for each in starts):
        return list(documents)
    if any(_date(each, _date_at(each, b"max", time_field)) >= start_ms + span_ms for each in documents):
        raise ValueError("buckets that do not fit into one")
    start = raw.pack_int64(start_ms)
    return [each[:at] + start + each[at + _DATE_BYTES :] for each, at in zip(documents, starts_at, strict=True)]


def _date_at(document: bytes, end: bytes, time_field: bytes) -> int:
    """Where the date ``control.<end>.<time field>`` is."""
    at, stop = 0, len(document)
    for name, kind in ((b"control", raw.OBJECT), (end, raw.OBJECT), (time_field, raw.DATE)):
        at, stop = _value_at(document, at, stop, name, kind)
    return at


def _value_at(document: bytes, at: int, stop: int, name: bytes, kind: int) -> tuple[int, int]:
    """Start and end of the value of a field of the object at this place."""
    for kind_at, each, value, value_stop in raw.iter_positions(document, at, stop):
        if each == name and document[kind_at] == kind:
            return value, value_stop
    raise ValueError("a bucket without a start or an end")


def _date(document: bytes, at: int) -> int:
    value: int = raw.unpack_int64(document, at)[0]
    return value
