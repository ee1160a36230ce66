"""Validates and splits a measurement once, so that the bucket need not parse its bytes again."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.bson import raw
from catalog.errors import CommandError

MAX_FIELD_LEVELS = 177
"""Levels of a field's value: servers store documents of 180, and a bucket adds ``data.<field>.<row>`` (W99)."""
MAX_META_LEVELS = 179
_BUCKET_OVERHEAD_BYTES = 1024
_BAD_VALUE, _OVERFLOW, _INVALID_BSON, _TOO_LARGE = 2, 15, 22, 10334


class Measurement:
    """A client's document, ready for a bucket.

    ``raw``: the document; ``time_ms``: the time field; ``meta``: the normalised meta as type byte and value
    bytes, ``b""`` without one (W33-W35); ``columns``: every field except the meta field, name → element value;
    ``payload_bytes``: type bytes and values of the columns.
    """

    __slots__ = ("columns", "meta", "payload_bytes", "raw", "time_ms")

    def __init__(self, raw: bytes, time_ms: int, meta: bytes, columns: Mapping[bytes, bytes]) -> None:
        self.raw = raw
        self.time_ms = time_ms
        self.meta = meta
        self.columns = columns
        self.payload_bytes = sum(map(len, columns.values()))


def normalised(value: bytes) -> bytes:
    """An element value with the fields of every object in it sorted by the bytes of their names (W33)."""
    if value[0] not in raw.NESTED_TYPES:
        return value
    elements = [(name, normalised(inner)) for name, inner in raw.iter_elements(value, 1)]
    if value[0] == raw.OBJECT:
        elements.sort(key=lambda pair: pair[0])
    return value[:1] + raw.document(raw.element(name, inner) for name, inner in elements)


def parse_measurement(document: bytes, time_field: bytes, meta_field: bytes | None) -> Measurement:
    """Validates a client's document completely and splits it.

    Of a repeated top-level name, the first is used (W36).

    :raises CommandError: 2 without a valid time (W96); 15 if nested deeper than a bucket can hold (W99);
        22 if the bytes are not BSON; 10334 if even a bucket of its own could not hold it (W98). The caller reports
        it for this document alone.
    """
    if not time_field:
        # A bucket with such a time field, written by an ordinary command, crashes mongod 6.0.5 (H6).
        raise CommandError(_BAD_VALUE, "a time field with an empty name is not supported")
    try:
        columns = raw.fields_of(document)
        meta = columns.pop(meta_field, b"") if meta_field is not None else b""
        _check_nesting(columns, meta)
    except raw.MalformedBSON as error:
        raise CommandError(_INVALID_BSON, f"invalid BSON in a measurement: {error}") from None
    time = columns.get(time_field)
    if time is None or time[0] != raw.DATE:
        name = time_field.decode("utf-8", "replace")
        raise CommandError(_BAD_VALUE, f"'{name}' must be present and contain a valid BSON UTC datetime value")
    if meta and meta[0] in raw.NESTED_TYPES:
        meta = normalised(meta)
    measurement = Measurement(document, raw.unpack_int64(time, 1)[0], meta, columns)
    if len(document) > raw.MAX_DOCUMENT_BYTES // 4:
        _check_size(measurement)
    return measurement


def _check_nesting(columns: Mapping[bytes, bytes], meta: bytes) -> None:
    """Walks nested values completely."""
    deep = [value for value in columns.values() if value[0] in _DEEP_TYPES]
    deepest = max((raw.nested_depth(value, value[0], 1, len(value)) for value in deep), default=0) if deep else 0
    meta_levels = raw.nested_depth(meta, meta[0], 1, len(meta)) if meta else 0
    if deepest > MAX_FIELD_LEVELS or meta_levels > MAX_META_LEVELS:
        raise CommandError(_OVERFLOW, "cannot insert document because it exceeds 180 levels of nesting")


_DEEP_TYPES = frozenset((raw.OBJECT, raw.ARRAY, raw.CODE_WITH_SCOPE))


def _check_size(measurement: Measurement) -> None:
    """A new bucket contains every value three times: in ``data``, ``control.min`` and ``control.max`` (W98)."""
    names = sum(map(len, measurement.columns))
    size = 3 * (measurement.payload_bytes + names + len(measurement.columns)) + 10 * len(measurement.columns)
    size += len(measurement.meta) + _BUCKET_OVERHEAD_BYTES
    if size > raw.MAX_DOCUMENT_BYTES:
        raise CommandError(
            _TOO_LARGE,
            f"BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and 16793600(16MB)",
        )
