"""Buckets that are written in parts (a way of writing that servers apply much faster than appending).

To append one row to a bucket costs a server the rewriting of that bucket; to insert a small new bucket costs a
small part of that, whatever has been written before. So, where many buckets grow at once, the rows of a batch
leave as a *part*: a valid bucket of its own, with the same meta and the same start as the bucket in memory. Parts
are joined into one bucket document later, in one atomic step (``catalog.joining``); at every moment the stored
documents hold every row exactly once, and any reader of buckets can read them.

The ids of a bucket and its parts share their first nine bytes (start and the bucket's own five) and differ in the
last three, a counter; so the parts of a bucket lie side by side in the clustered collection, in the order in which
they were committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.bson import raw
from catalog.errors import InvariantViolated
from catalog.kernel import BucketState, Limits, Measurement, parse_measurement

PREFIX_BYTES = 9
LAST_PART = (1 << 24) - 1

_UNBOUNDED = Limits(max_count=1 << 30, max_size_bytes=1 << 30, min_count=0)
_CLOSED = b"\x08closed\x00\x01"
_CONTROL_AT = 4 + len(b"\x07_id\0") + 12
_CONTROL = b"\x03control\0"


class Parts:
    """The parts of one bucket that are stored and not joined yet."""

    __slots__ = ("_next", "first_id", "joining", "last_id", "sealed", "stored", "touched_seconds")

    def __init__(self, bucket_id: bytes, touched_seconds: float) -> None:
        """``bucket_id``: of the document that was stored first."""
        self.first_id = bucket_id
        self.last_id = bucket_id
        self.stored = 1
        self.touched_seconds = touched_seconds
        self.joining = False
        self.sealed = False
        """Whether ``first_id`` is closed for others already; the document that was stored first is not."""
        self._next = int.from_bytes(bucket_id[PREFIX_BYTES:], "big") + 1

    def next_id(self) -> bytes:
        """The id of the next part; raises ``InvariantViolated`` when there is none left."""
        if self._next > LAST_PART:
            raise InvariantViolated("a bucket in too many parts")
        part_id = self.first_id[:PREFIX_BYTES] + self._next.to_bytes(3, "big")
        self._next += 1
        return part_id

    def committed(self, part_id: bytes, now_seconds: float) -> None:
        """One more part is stored."""
        self.last_id = part_id
        self.stored += 1
        self.touched_seconds = now_seconds

    def joined(self, last_id: bytes, count: int) -> None:
        """Up to ``last_id`` the parts are one document now, which has that id; ``count`` went into it."""
        self.first_id = last_id
        self.stored -= count - 1
        self.sealed = True


def bucket_of(
    bucket_id: bytes,
    time_field: bytes,
    meta_field: bytes | None,
    meta: bytes,
    start_ms: int,
    measurements: Sequence[Measurement],
) -> bytes:
    """A bucket document of exactly these rows."""
    state = BucketState(bucket_id, time_field, meta_field, meta, start_ms, 1 << 62, _UNBOUNDED)
    for measurement in measurements:
        if state.try_stage(measurement):
            raise InvariantViolated("rows of one bucket that do not fit into one bucket")
    return state.prepare(measurements)


def closed(document: bytes) -> bytes:
    """A bucket document of ours with ``control.closed``: nobody appends to it any more, everybody reads it."""
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


def rows_of(document: bytes, time_field: bytes, meta_field: bytes | None) -> list[Measurement]:
    """The measurements of a stored bucket of version 1, in row order.

    :raises ValueError: this is no bucket of version 1, or one whose rows are not numbered without holes
    """
    bucket = raw.fields_of(document)
    control = raw.fields_of(bucket[b"control"], 1)
    if control.get(b"version") != b"\x10\x01\0\0\0":
        raise ValueError("not a bucket of version 1")
    meta = bucket.get(b"meta", b"")
    columns = raw.fields_of(bucket[b"data"], 1)
    rows: list[list[bytes]] = []
    for row, (key, value) in enumerate(raw.iter_elements(columns.pop(time_field), 1)):
        if key != b"%d" % row:
            raise ValueError("rows are not numbered without holes")
        rows.append([raw.element(time_field, value)])
    for name, column in columns.items():
        for key, value in raw.iter_elements(column, 1):
            rows[int(key)].append(raw.element(name, value))
    head = [raw.element(meta_field, meta)] if meta and meta_field is not None else []
    return [parse_measurement(raw.document((*head, *row)), time_field, meta_field) for row in rows]


def join(documents: Sequence[bytes], joined_id: bytes, time_field: bytes, meta_field: bytes | None) -> bytes:
    """One bucket of all rows of these stored parts, in their order.

    :raises ValueError: they are not parts of one bucket
    """
    measurements: list[Measurement] = []
    for document in documents:
        measurements += rows_of(document, time_field, meta_field)
    metas = {measurement.meta for measurement in measurements}
    starts = {start_of(document, time_field) for document in documents}
    if len(metas) != 1 or len(starts) != 1:
        raise ValueError("parts of different buckets")
    return bucket_of(joined_id, time_field, meta_field, metas.pop(), starts.pop(), measurements)


def start_of(document: bytes, time_field: bytes) -> int:
    """The start of a stored bucket in ms: the least time of its summary, which is rounded (W20).

    :raises ValueError: it has none
    """
    control = raw.fields_of(raw.fields_of(document)[b"control"], 1)
    start = raw.fields_of(control.get(b"min", b"\x03\x05\0\0\0\0"), 1).get(time_field, b"")
    if start[:1] != b"\x09":
        raise ValueError("a bucket without a start")
    return int(raw.unpack_int64(start, 1)[0])
