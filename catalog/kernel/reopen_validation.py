"""Whether rows may be appended to a stored bucket as if this process had opened it (W50)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from catalog.bson import raw
from catalog.kernel.comparing import fields_once
from catalog.kernel.documents import stored_columns
from catalog.kernel.minmax import summary_between
from catalog.kernel.schema import merge, shape_of


class ReopenedBucket(NamedTuple):
    """The contents of a stored bucket. ``ends``: least and greatest value of each column, in the columns' order."""

    bucket_id: bytes
    meta: bytes
    start_ms: int
    rows: int
    ends: dict[bytes, tuple[bytes, bytes]]


def reopened_bucket(document: bytes, time_field: bytes, meta_field: bytes | None, span_ms: int) -> ReopenedBucket:
    """Validates and splits a stored bucket.

    It must have version 1 and not be closed; its ``_id`` must agree with its start (W12); rows must be numbered without
    gaps and be within the span and the summary; every column must have summaries whose ends agree in shape.

    :raises ValueError: the document is not a valid bucket to append to
    """
    columns = stored_columns(document)
    bucket = raw.fields_of(document)
    control = raw.fields_of(bucket[b"control"], 1)
    if control.get(b"closed", b"\x08\0") != b"\x08\0":
        raise ValueError("the bucket is closed")
    least, greatest = (fields_once(control.get(end, b"\0")) for end in (b"min", b"max"))
    identity, start = bucket.get(b"_id", b"\0"), least.get(time_field, b"\0")
    if identity[0] != raw.OBJECT_ID or start[0] != raw.DATE:
        raise ValueError("the bucket has no id or no start")
    start_ms: int = raw.unpack_int64(start, 1)[0]
    if identity[1:5] != (start_ms // 1000 & 0xFFFFFFFF).to_bytes(4, "big"):
        raise ValueError("the id does not tell the start")
    times = fields_once(columns.get(time_field, b"\0"))
    if not times or any(key != b"%d" % row for row, key in enumerate(times)):
        raise ValueError("rows are not numbered without holes")
    if not _times_fit(times.values(), start_ms, span_ms, greatest.get(time_field, b"\0")):
        raise ValueError("times outside of the bucket")
    _check_columns(columns, least, greatest, len(times))
    return ReopenedBucket(
        identity[1:],
        bucket.get(b"meta", b"") if meta_field is not None else b"",
        start_ms,
        len(times),
        {name: (least[name], greatest[name]) for name in columns},
    )


def _times_fit(times: Iterable[bytes], start_ms: int, span_ms: int, latest: bytes) -> bool:
    if latest[0] != raw.DATE:
        return False
    upper = min(raw.unpack_int64(latest, 1)[0], start_ms + span_ms - 1)
    return all(time[0] == raw.DATE and start_ms <= raw.unpack_int64(time, 1)[0] <= upper for time in times)


def _check_columns(
    columns: Mapping[bytes, bytes], least: Mapping[bytes, bytes], greatest: Mapping[bytes, bytes], rows: int
) -> None:
    """Columns and both summaries must name the same fields and agree in shape."""
    if not columns.keys() == least.keys() == greatest.keys():
        raise ValueError("columns and summaries differ")
    for name, stored in columns.items():
        _check_row_keys(fields_once(stored), rows)
        if merge(shape_of(least[name]), shape_of(greatest[name])) is None:
            raise ValueError("control.min and control.max differ in shape")
        summary_between(least[name], greatest[name])


def _check_row_keys(keys: Iterable[bytes], rows: int) -> None:
    """Row keys must ascend within the numbered rows (W5)."""
    previous = -1
    for key in keys:
        if not key.isdigit() or len(key) > 9 or key != b"%d" % int(key) or not previous < int(key) < rows:
            raise ValueError("row keys do not ascend")
        previous = int(key)
