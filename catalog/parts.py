"""Buckets that are written in parts, because a server inserts a small bucket much faster than it appends to one.

To append one row, a server rewrites the whole bucket. Therefore, when many buckets grow at once, the rows of a batch
are inserted as a *part*: a valid bucket with the same meta value and the same start as the bucket in memory. The parts
of a bucket are joined into one document later, in one atomic step (``catalog.joining``). At every moment, the stored
documents have every row exactly once, and any reader of buckets can read them.

The ids of a bucket and its parts share their first nine bytes (the start, and five that identify the bucket). The last
three are a counter, so the parts of a bucket are neighbours in the clustered collection, in the order of their commits.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.errors import InvariantViolated
from catalog.kernel import BucketState, Limits, Measurement, join_documents, one_row_part
from catalog.merging import closed

PREFIX_BYTES = 9
LAST_PART = (1 << 24) - 1

__all__ = ["LAST_PART", "PREFIX_BYTES", "Parts", "bucket_of", "bucket_of_part", "closed", "join", "part_document"]


def bucket_of_part(part_id: bytes) -> bytes:
    """The id of the bucket that this may be a part of; the counter in its id is zero (``IdSource``)."""
    return part_id[:PREFIX_BYTES] + bytes(12 - PREFIX_BYTES)


_UNBOUNDED = Limits(max_count=1 << 30, max_size_bytes=1 << 30, min_count=0)


class Parts:
    """The stored documents of one bucket that are not joined yet."""

    __slots__ = (
        "_next",
        "attempts",
        "first_id",
        "full",
        "joining",
        "last_id",
        "not_before_seconds",
        "since_seconds",
        "stored",
        "touched_seconds",
    )

    def __init__(self, bucket_id: bytes, touched_seconds: float) -> None:
        """``bucket_id``: the id of the first stored document."""
        self.first_id = bucket_id
        self.last_id = bucket_id
        self.stored = 1
        self.touched_seconds = touched_seconds
        self.since_seconds = touched_seconds
        """When the first unjoined part was stored."""
        self.joining = False
        self.full = False
        """Whether the bucket accepts no more rows and all of them are stored."""
        self.attempts = 0
        """Number of failed joins since the last successful one."""
        self.not_before_seconds = 0.0
        """The earliest time of the next join."""
        self._next = int.from_bytes(bucket_id[PREFIX_BYTES:], "big") + 1

    def next_id(self) -> bytes:
        """The id of the next part; raises ``InvariantViolated`` if the ids are used up."""
        if self._next > LAST_PART:
            raise InvariantViolated("a bucket in too many parts")
        part_id = self.first_id[:PREFIX_BYTES] + self._next.to_bytes(3, "big")
        self._next += 1
        return part_id

    def committed(self, part_id: bytes, now_seconds: float) -> None:
        """One more part is stored."""
        if self.stored == 1:
            self.since_seconds = now_seconds
        self.last_id = part_id
        self.stored += 1
        self.touched_seconds = now_seconds

    def joined(self, last_id: bytes, count: int) -> None:
        """The ``count`` parts up to ``last_id`` are one document now, with that id."""
        self.first_id = last_id
        self.stored -= count - 1
        self.since_seconds = self.touched_seconds
        self.attempts = 0


def bucket_of(
    bucket_id: bytes,
    time_field: bytes,
    meta_field: bytes | None,
    meta: bytes,
    start_ms: int,
    measurements: Sequence[Measurement],
) -> bytes:
    """A bucket document with exactly these rows."""
    state = BucketState(bucket_id, time_field, meta_field, meta, start_ms, 1 << 62, _UNBOUNDED)
    for measurement in measurements:
        if state.try_stage(measurement):
            raise InvariantViolated("rows of one bucket that do not fit into one bucket")
    return state.prepare(measurements)


def part_document(
    part_id: bytes,
    time_field: bytes,
    meta_field: bytes | None,
    meta: bytes,
    start_ms: int,
    measurements: Sequence[Measurement],
    *,
    sealed: bool,
) -> bytes:
    """A part with these rows; ``sealed``: with ``control.closed``."""
    if len(measurements) == 1:
        return one_row_part(part_id, time_field, start_ms, measurements[0], sealed)
    document = bucket_of(part_id, time_field, meta_field, meta, start_ms, measurements)
    return closed(document) if sealed else document


def join(
    documents: Sequence[bytes],
    joined_id: bytes,
    time_field: bytes,
    meta_field: bytes | None,
    max_rows: int = _UNBOUNDED.max_count,
) -> bytes:
    """One bucket with all rows of these stored parts, in their order.

    :raises ValueError: they are not parts of one bucket, or have more than ``max_rows`` rows, because of other writers
    """
    document, rows = join_documents(documents, joined_id, time_field, meta_field)
    if rows > max_rows:
        raise ValueError("parts with more rows than a bucket may have")
    return document
