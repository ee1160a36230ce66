"""Arranges rows so that a server and a proxy write few and large buckets: by series, and by time in each.

Rows whose series alternate cost a write of a bucket each; a series at a time, many rows share one. All rows of a series
go to one lane, so that two connections never write to the same bucket at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from catalog.bson.raw import iter_elements, pack_int32
from catalog.errors import CommandError
from catalog.kernel import parse_measurement
from proxy.tools.files import shown_document
from proxy.tools.rows import BadRow, Row

BATCH_BYTES: Final = 12 << 20
_ID: Final = b"_id"
_TIME: Final = attrgetter("time_ms")
_OBJECT_ID: Final = b"\x07"


class Sendable(NamedTuple):
    """A row that is ready to be sent. ``entry``: its number in the import; ``id``: the value of ``_id``."""

    document: bytes
    id: bytes
    time_ms: int
    meta: bytes
    row: Row


def sendable(
    row: Row, make_id: Callable[[int], bytes], entry: int, time_field: bytes, meta_field: bytes | None
) -> Sendable | BadRow:
    """The row with an ``_id``, or why it is no measurement.

    ``make_id`` makes that of a row that has none, from its number in the import.
    """
    document, own_id = row.document, b""
    try:
        own_id = _id_of(document)
        if not own_id:
            made_id = make_id(entry)
            own_id = _OBJECT_ID + made_id
            element = own_id[:1] + _ID + b"\0" + made_id
            document = pack_int32(len(document) + len(element)) + element + document[4:]
        measurement = parse_measurement(document, time_field, meta_field)
    except (CommandError, ValueError) as error:
        reason = error.message if isinstance(error, CommandError) else str(error)
        return BadRow(row.where, row.end, reason, shown_document(row.document), row.skip)
    return Sendable(document, own_id, measurement.time_ms, measurement.meta, row)


def _id_of(document: bytes) -> bytes:
    """Type byte and value of ``_id``, which usually comes first; ``b""`` if there is none."""
    if document[4:9] == b"\x07_id\0":
        return document[4:5] + document[9:21]
    for name, value in iter_elements(document):
        if name == _ID:
            return value
    return b""


def lanes(rows: Iterable[Sendable], count: int) -> list[list[Sendable]]:
    """The rows by series and time, divided among at most ``count`` lanes of similar size."""
    series: dict[bytes, list[Sendable]] = {}
    for row in rows:
        series.setdefault(row.meta, []).append(row)
    made: list[list[Sendable]] = [[] for _ in range(max(1, min(count, len(series))))]
    for group in sorted(series.values(), key=len, reverse=True):
        group.sort(key=_TIME)
        min(made, key=len).extend(group)
    return [lane for lane in made if lane]


def batches(lane: Sequence[Sendable], most_rows: int) -> Iterator[Sequence[Sendable]]:
    """The rows of a lane in pieces that a server accepts in one command."""
    start = size_bytes = 0
    for position, row in enumerate(lane):
        if position > start and (position - start >= most_rows or size_bytes + len(row.document) > BATCH_BYTES):
            yield lane[start:position]
            start, size_bytes = position, 0
        size_bytes += len(row.document)
    if start < len(lane):
        yield lane[start:]
