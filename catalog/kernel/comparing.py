"""Checks that a new form of a bucket contains the same measurements as the stored form, before it replaces that.

The Python form of these functions of ``catalog.kernel``. Values are compared bit for bit. The module shares no
code with those that make the new form (``catalog.kernel.compression``, ``catalog.kernel.merging``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.bson import raw
from catalog.kernel.decoding import column_cells

_VERSION_ONE = b"\x10\x01\0\0\0"
_VERSION_TWO = b"\x10\x02\0\0\0"
_COLUMN_SUBTYPE = 7


def same_rows(plain: bytes, packed: bytes, time_field: bytes) -> bool:
    """Whether the bucket ``packed`` of version 2 is ``plain`` of version 1, with its rows sorted by time (W6).

    Every row once, every value bit for bit, columns in the order of the format; everything else unchanged.
    """
    try:
        bucket, other = list(raw.iter_elements(plain)), dict(raw.iter_elements(packed))
        if [name for name, _ in bucket] != [name for name, _ in raw.iter_elements(packed)]:
            return False
        data = dict(bucket)[b"data"]
        order = _sorted(_times(fields_once(data)[time_field]))
        return all(
            _same_data(value, other[name], order, time_field)
            if name == b"data"
            else _same_control(value, other[name], len(order))
            if name == b"control"
            else value == other[name]
            for name, value in bucket
        )
    except (ValueError, KeyError, IndexError):
        return False


def fields_once(value: bytes) -> dict[bytes, bytes]:
    """The fields of an object; raises ``ValueError`` for anything else, and for a repeated name."""
    if value[0] != raw.OBJECT:
        raise ValueError("no object")
    elements = list(raw.iter_elements(value, 1))
    fields = dict(elements)
    if len(fields) != len(elements):
        raise ValueError("a name that is there twice")
    return fields


def cells_of(column: bytes) -> dict[int, bytes]:
    """The values of a column by their rows, which must ascend."""
    rows: dict[int, bytes] = {}
    latest = -1
    for key, value in fields_once(column).items():
        row = int(key) if key.isdigit() and len(key) <= 9 else -1
        if b"%d" % row != key or row <= latest:
            raise ValueError("rows that do not ascend")
        latest = row
        rows[row] = value
    return rows


def _times(column: bytes) -> list[int]:
    rows = cells_of(column)
    if list(rows) != list(range(len(rows))) or any(value[0] != raw.DATE for value in rows.values()):
        raise ValueError("rows without a time")
    return [int.from_bytes(value[1:], "little", signed=True) for value in rows.values()]


def _sorted(times: Sequence[int]) -> list[int]:
    """The rows in the order of the compressed form: by time, and rows of equal time in their old order."""
    if not times:
        raise ValueError("no rows")
    return [row for _, row in sorted((time, row) for row, time in enumerate(times))]


def _same_data(plain: bytes, packed: bytes, order: Sequence[int], time_field: bytes) -> bool:
    columns, streams = fields_once(plain), fields_once(packed)
    if list(streams) != [time_field, *(name for name in columns if name != time_field)]:
        return False
    for name, stream in streams.items():
        if stream[0] != raw.BINARY or stream[5] != _COLUMN_SUBTYPE:
            return False
        rows = cells_of(columns[name])
        if any(row >= len(order) for row in rows):
            return False
        if column_cells(stream[6:], len(order)) != [rows.get(row) for row in order]:
            return False
    return True


def _same_control(plain: bytes, packed: bytes, rows: int) -> bool:
    expected = {name: value for name, value in fields_once(plain).items() if name != b"count"}
    if expected[b"version"] != _VERSION_ONE:
        return False
    expected |= {b"version": _VERSION_TWO, b"count": b"\x10" + raw.pack_int32(rows)}
    return list(fields_once(packed).items()) == list(expected.items())


class _Whole:
    """A version 1 bucket that is read once, from its first row to its last."""

    def __init__(self, document: bytes, time_field: bytes) -> None:
        self._time_field = time_field
        self.meta, self.start, data = _opened(document, time_field)
        self._columns = {name: iter([*cells_of(column).items(), (-1, b"")]) for name, column in data.items()}
        self._next = {name: next(column) for name, column in self._columns.items()}
        self._rows = 0

    def part(self, document: bytes) -> bool:
        """Whether the rows of this part are the next ones."""
        meta, start, data = _opened(document, self._time_field)
        if (meta, start) != (self.meta, self.start):
            return False
        rows = len(cells_of(data[self._time_field]))
        for name, column in data.items():
            cells = cells_of(column)
            if any(row >= rows for row in cells) or (name == self._time_field and list(cells) != list(range(rows))):
                return False
            if not all(self._is_next(name, self._rows + row, value) for row, value in cells.items()):
                return False
            if name not in self._columns:
                return False
        self._rows += rows
        return True

    def row(self, document: bytes) -> bool:
        """Whether this measurement is the next row."""
        fields = fields_once(b"\x03" + document)
        if not all(self._is_next(name, self._rows, value) for name, value in fields.items()):
            return False
        self._rows += 1
        return self._time_field in fields

    def _is_next(self, name: bytes, row: int, value: bytes) -> bool:
        if self._next.get(name) != (row, value):
            return False
        self._next[name] = next(self._columns[name])
        return True

    def ended(self) -> bool:
        """Whether all rows were read."""
        return all(row == -1 for row, _ in self._next.values())


def _opened(document: bytes, time_field: bytes) -> tuple[bytes, bytes, Mapping[bytes, bytes]]:
    """Meta value, start and columns of a version 1 bucket; an undefined meta value is stored as null (W35)."""
    bucket = raw.fields_of(document)
    control = raw.fields_of(bucket[b"control"], 1)
    if control[b"version"] != _VERSION_ONE:
        raise ValueError("not a bucket of version 1")
    meta = bucket.get(b"meta", b"")
    meta = b"\x0a" if meta == b"\x06" else meta
    return meta, raw.fields_of(control[b"min"], 1)[time_field], fields_once(bucket[b"data"])


def holds_parts(bucket: bytes, parts: Sequence[bytes], time_field: bytes) -> bool:
    """Whether a version 1 bucket contains each row of these parts exactly once, in their order, and nothing else."""
    try:
        whole = _Whole(bucket, time_field)
        return all(whole.part(part) for part in parts) and whole.ended()
    except (ValueError, KeyError):
        return False


def holds_rows(bucket: bytes, rows: Sequence[bytes], time_field: bytes) -> bool:
    """Whether a version 1 bucket contains exactly these measurements (without meta values), in this order."""
    try:
        whole = _Whole(bucket, time_field)
        return all(whole.row(row) for row in rows) and whole.ended()
    except (ValueError, KeyError):
        return False
