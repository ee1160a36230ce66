"""Converts a closed bucket to the compressed form (W6), which has about a tenth of the size."""

from __future__ import annotations

from catalog.bson import raw
from catalog.kernel.column import encode_column

_VERSION_ONE = b"\x10\x01\0\0\0"
_VERSION_TWO = b"\x10\x02\0\0\0"
_COLUMN_SUBTYPE = b"\x07"


def compressed(document: bytes, time_field: bytes) -> bytes | None:
    """A version 1 bucket document in version 2, with its rows sorted by time (W7).

    ``None`` if the result would not be smaller, the bucket has only one row, or it contains values that cannot be
    compressed (W9).

    :raises ValueError: the document is not a version 1 bucket whose rows are numbered without gaps
    """
    bucket = raw.fields_of(document)
    control, data = _inner(bucket, b"control"), _inner(bucket, b"data")
    if control.get(b"version") != _VERSION_ONE:
        raise ValueError("not a bucket of version 1")
    times = _times(data.pop(time_field, b"\0"))
    if len(times) < 2:
        return None
    order = sorted(range(len(times)), key=lambda row: raw.unpack_int64(times[row], 1)[0])
    position = [0] * len(times)
    for at, row in enumerate(order):
        position[row] = at
    columns: list[bytes] = []
    by_name: dict[bytes, list[bytes | None]] = {time_field: [times[row] for row in order]}
    by_name |= {name: _cells(column, position) for name, column in data.items()}
    for name, cells in by_name.items():
        stream = encode_column(cells)
        if stream is None:
            return None
        columns.append(b"\x05" + name + b"\0" + raw.pack_int32(len(stream)) + _COLUMN_SUBTYPE + stream)
    control[b"version"] = _VERSION_TWO
    control.pop(b"count", None)
    control[b"count"] = b"\x10" + raw.pack_int32(len(times))
    bucket[b"control"] = b"\x03" + raw.document(raw.element(*field) for field in control.items())
    bucket[b"data"] = b"\x03" + raw.document(columns)
    smaller = raw.document(raw.element(*field) for field in bucket.items())
    return smaller if len(smaller) < len(document) else None


def _inner(fields: dict[bytes, bytes], name: bytes) -> dict[bytes, bytes]:
    value = fields.get(name, b"\0")
    if value[0] != raw.OBJECT:
        raise ValueError("a bucket without control or data")
    return raw.fields_of(value, 1)


def _times(column: bytes) -> list[bytes]:
    if column[0] != raw.OBJECT:
        raise ValueError("a bucket without times")
    times: list[bytes] = []
    for key, value in raw.iter_elements(column, 1):
        if key != b"%d" % len(times) or value[0] != raw.DATE:
            raise ValueError("rows are not numbered without holes")
        times.append(value)
    return times


def _cells(column: bytes, position: list[int]) -> list[bytes | None]:
    """The values of a column in the order of the sorted rows."""
    if column[0] != raw.OBJECT:
        raise ValueError("a column that is no object")
    cells: list[bytes | None] = [None] * len(position)
    previous = -1
    for key, value in raw.iter_elements(column, 1):
        if not key.isdigit() or len(key) > 9 or (key[0] == 0x30 and len(key) > 1):
            raise ValueError("bad row key")
        row = int(key)
        if not previous < row < len(position):
            raise ValueError("row keys do not ascend")
        previous = row
        cells[position[row]] = value
    return cells
