"""Encodes a part with one row, and joins the bytes of several parts into one bucket.

The Python form of these functions of ``catalog.kernel``; ``catalog.parts`` says why there are parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from catalog.bson import raw
from catalog.bson.order import CANONICAL
from catalog.errors import InvariantViolated
from catalog.kernel import documents
from catalog.kernel.measurement import Measurement
from catalog.kernel.minmax import ArraySummary, ObjectSummary, ScalarSummary, Summary, summary_between, summary_of

_VERSION_ONE = b"\x10\x01\0\0\0"
_CLOSED = b"\x08closed\x00\x01"
_NOT_CLOSED = b"\x08\0"
_CONTROL_AT = 4 + len(b"\x07_id\0") + 12
_CONTROL = b"\x03control\0"


def closed(document: bytes) -> bytes:
    """Adds ``control.closed`` to a bucket document of the proxy: no writer appends to it, every reader reads it."""
    at = _CONTROL_AT + len(_CONTROL)
    if document[_CONTROL_AT:at] != _CONTROL:
        raise InvariantViolated("a bucket document that is not ours")
    size = int.from_bytes(document[at : at + 4], "little")
    end = at + size - 1
    grown = len(document) + len(_CLOSED)
    return b"".join(
        (
            grown.to_bytes(4, "little"),
            document[4:at],
            (size + len(_CLOSED)).to_bytes(4, "little"),
            document[at + 4 : end],
            _CLOSED,
            document[end:],
        )
    )


def is_closed(document: bytes) -> bool:
    """Whether a stored bucket has ``control.closed``."""
    at = _CONTROL_AT + len(_CONTROL)
    if document[_CONTROL_AT:at] == _CONTROL:
        end = at + int.from_bytes(document[at : at + 4], "little") - 1
        if document[end - len(_CLOSED) : end] == _CLOSED:
            return True
    return raw.fields_of(raw.fields_of(document)[b"control"], 1).get(b"closed", _NOT_CLOSED) != _NOT_CLOSED


def one_row_part(part_id: bytes, time_field: bytes, start_ms: int, measurement: Measurement, sealed: bool) -> bytes:
    """A bucket document with this one row; ``sealed``: with ``control.closed``.

    A field with the empty name has no summary in a bucket without a meta value, as on 6.0.5 (W27).
    """
    columns = dict(measurement.columns)
    time = columns.pop(time_field, b"\0")
    if time[0] != raw.DATE or measurement.time_ms < start_ms:
        raise InvariantViolated("a row that does not fit into its bucket")
    ends = [(time_field, b"\x09" + raw.pack_int64(start_ms), time)]
    for name, value in columns.items():
        if name or measurement.meta:
            ends.append((name, *summary_of(value).ends()) if value[0] in raw.NESTED_TYPES else (name, value, value))
    cells = [(name, [raw.element(b"0", value)]) for name, value in ((time_field, time), *columns.items())]
    document = documents.bucket_document(part_id, measurement.meta, ends, cells)
    return closed(document) if sealed else document


class _Column:
    """One field of the joined bucket. ``summary`` is ``None`` for a name without one (W27)."""

    __slots__ = ("rows", "summary")

    def __init__(self, summary: Summary | None) -> None:
        self.rows: list[bytes] = []
        self.summary = summary


def join_documents(
    stored: Sequence[bytes], joined_id: bytes, time_field: bytes, meta_field: bytes | None
) -> tuple[bytes, int]:
    """One version 1 bucket with all rows of these stored buckets, in their order; and its number of rows.

    Summaries are folded, so the result equals a bucket that was written in one piece.

    :raises ValueError: they are not version 1 buckets with the same meta value and start whose rows are numbered
        without gaps, or their fields do not agree in shape (W47)
    """
    if len(joined_id) != 12:
        raise ValueError("a bucket id has twelve bytes")
    first: tuple[bytes, bytes] | None = None
    columns: dict[bytes, _Column] = {}
    rows = 0
    for document in stored:
        bucket = raw.fields_of(document)
        control = _inner(bucket, b"control")
        if control.get(b"version") != _VERSION_ONE:
            raise ValueError("not a bucket of version 1")
        least, greatest, data = _inner(control, b"min"), _inner(control, b"max"), _inner(bucket, b"data")
        meta, start = bucket.get(b"meta", b""), least.get(time_field, b"\0")
        if start[0] != raw.DATE or (meta and meta_field is None):
            raise ValueError("a bucket without a start, or with a meta value that cannot be")
        if first is None:
            first = (meta, start)
        if first != (meta, start):
            raise ValueError("parts of different buckets")
        times = _times(data.get(time_field, b"\0"), raw.unpack_int64(start, 1)[0])
        for name, stored_rows in sorted(data.items(), key=lambda item: item[0] != time_field):
            column = columns.get(name)
            if not name and not meta:
                column = columns.setdefault(name, _Column(None))
            else:
                ends = least.get(name), greatest.get(name)
                if column is None:
                    column = columns[name] = _Column(_between(*ends))
                else:
                    _fold(column.summary, *ends)
            column.rows += _renumbered(stored_rows, rows, times)
        rows += times
    if first is None:
        raise ValueError("no parts")
    ends_of = [(name, *column.summary.ends()) for name, column in columns.items() if column.summary is not None]
    cells = [(name, column.rows) for name, column in columns.items()]
    return documents.bucket_document(joined_id, first[0], ends_of, cells), rows


def _inner(fields: Mapping[bytes, bytes], name: bytes) -> dict[bytes, bytes]:
    value = fields.get(name, b"\0")
    if value[0] != raw.OBJECT:
        raise ValueError("a bucket without control, summary or data")
    return raw.fields_of(value, 1)


def _times(column: bytes, start_ms: int) -> int:
    """The number of rows in the time column, which must be dates from the start on, numbered without gaps."""
    if column[0] != raw.OBJECT:
        raise ValueError("a bucket without times")
    rows = 0
    for key, value in raw.iter_elements(column, 1):
        if key != b"%d" % rows:
            raise ValueError("rows are not numbered without holes")
        if value[0] != raw.DATE or raw.unpack_int64(value, 1)[0] < start_ms:
            raise ValueError("a row without a time of its bucket")
        rows += 1
    return rows


def _renumbered(column: bytes, base: int, rows: int) -> Iterator[bytes]:
    """The encoded cells of a column with ``base`` added to their rows."""
    if column[0] != raw.OBJECT:
        raise ValueError("a column that is no object")
    previous = -1
    for key, value in raw.iter_elements(column, 1):
        if not key.isdigit() or len(key) > 9 or (key[0] == 0x30 and len(key) > 1):
            raise ValueError("bad row key")
        row = int(key)
        if not previous < row < rows:
            raise ValueError("row keys do not ascend")
        previous = row
        yield b"%c%d\0%b" % (value[0], base + row, value[1:])


def _checked(value: bytes | None) -> bytes:
    """One end of a summary, after validation at every depth."""
    if value is None:
        raise ValueError("a column without a summary")
    raw.nested_depth(value, value[0], 1, len(value))
    return value


def _between(least: bytes | None, greatest: bytes | None) -> Summary:
    return summary_between(_checked(least), _checked(greatest))


def _fold(summary: Summary | None, least: bytes | None, greatest: bytes | None) -> None:
    lower, upper = _checked(least), _checked(greatest)
    if summary is None or not takes(summary, lower) or not takes(summary, upper):
        raise ValueError("parts whose fields differ in shape")
    summary.fold(lower)
    if upper != lower:
        summary.fold(upper)


def takes(summary: Summary, value: bytes) -> bool:
    """Whether a value has, at every path of the summary, the same kind of value (W47)."""
    kind = value[0]
    match summary:
        case ScalarSummary():
            return kind not in raw.NESTED_TYPES and CANONICAL[kind] == CANONICAL[summary.least[0]]
        case ObjectSummary():
            if kind != raw.OBJECT:
                return False
            fields = summary.fields
            return all(
                name not in fields or takes(fields[name], inner) for name, inner in raw.fields_of(value, 1).items()
            )
        case ArraySummary():
            if kind != raw.ARRAY:
                return False
            inners = (inner for _, inner in raw.iter_elements(value, 1))
            return all(takes(item, inner) for item, inner in zip(summary.items, inners, strict=False))
