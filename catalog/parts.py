"""Buckets that are written in parts, because a server inserts a small bucket much faster than it appends to one.

To append one row, a server rewrites the whole bucket. Therefore, when many buckets grow at once, the rows of a batch
are inserted as a *part*: a valid bucket with the same meta value and the same start as the bucket in memory. The parts
of a bucket are joined later, in one atomic step (``catalog.joining``). At every moment, the stored documents have every
row exactly once, and any reader of buckets can read them.

While a bucket grows, its latest parts become one *run*, together with the runs before them that have no more rows than
they. So runs have about twice the rows of the next, a bucket has few of them, and a row is rewritten a few times only.
In the end, all runs become one document.

The ids of a bucket and its parts share their first nine bytes (the start, and five that identify the bucket). The last
three are a counter, so the parts of a bucket are neighbours in the clustered collection, in the order of their commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catalog.errors import InvariantViolated
from catalog.kernel import BucketState, Limits, Measurement, join_documents, one_row_part
from catalog.merging import closed

PREFIX_BYTES = 9
LAST_PART = (1 << 24) - 1
LAST_LIKELY_PART = 1_000_000
"""Maximum number of rows in a bucket, and so of its parts."""

__all__ = [
    "LAST_LIKELY_PART",
    "LAST_PART",
    "PREFIX_BYTES",
    "Parts",
    "Pending",
    "Run",
    "bucket_of",
    "bucket_of_part",
    "closed",
    "join",
    "may_be_part",
    "part_document",
]


def bucket_of_part(part_id: bytes) -> bytes:
    """The id of the bucket that this may be a part of; the counter in its id is zero (``IdSource``)."""
    return part_id[:PREFIX_BYTES] + bytes(12 - PREFIX_BYTES)


def may_be_part(stored_id: bytes) -> bool:
    """Whether a proxy may have made this id: its last three bytes count from zero, those of a server do not."""
    return int.from_bytes(stored_id[PREFIX_BYTES:], "big") <= LAST_LIKELY_PART


_UNBOUNDED = Limits(max_count=1 << 30, max_size_bytes=1 << 30, min_count=0)


class Run(NamedTuple):
    """A stored document with the rows of several parts, or the one that the bucket had before its first part."""

    stored_id: bytes
    rows: int


class Pending(NamedTuple):
    """The documents that a join makes one: those after the first ``runs`` runs, up to ``last_id``.

    ``first_id``: none of them has a lower id; ``unsealed``: the ids of the runs among them; ``rows``: the number of
    their rows, unless other writers have changed them.
    """

    first_id: bytes
    last_id: bytes
    documents: int
    unsealed: Sequence[bytes]
    runs: int
    rows: int


class Parts:
    """The stored documents of one bucket that are not joined yet."""

    __slots__ = (
        "_next",
        "_prefix",
        "attempts",
        "full",
        "joining",
        "last_id",
        "not_before_seconds",
        "runs",
        "since_seconds",
        "stored",
        "touched_seconds",
    )

    def __init__(self, bucket_id: bytes, rows: int, touched_seconds: float) -> None:
        """``bucket_id``: the id of the first stored document, which has so many ``rows``."""
        self._prefix = bucket_id[:PREFIX_BYTES]
        self.runs = [Run(bucket_id, rows)]
        """The documents before the latest parts."""
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
        part_id = self._prefix + self._next.to_bytes(3, "big")
        self._next += 1
        return part_id

    @property
    def fresh(self) -> int:
        """The number of parts after the last run."""
        return self.stored - len(self.runs)

    def committed(self, part_id: bytes, now_seconds: float) -> None:
        """One more part is stored."""
        if not self.fresh:
            self.since_seconds = now_seconds
        self.last_id = part_id
        self.stored += 1
        self.touched_seconds = now_seconds

    def pending(self, total: int, *, everything: bool) -> Pending:
        """What to join next; ``total``: the bucket's committed rows; ``everything``: all runs, too."""
        kept = len(self.runs)
        rows = total - sum(run.rows for run in self.runs)
        while kept and (everything or self.runs[kept - 1].rows <= rows):
            kept -= 1
            rows += self.runs[kept].rows
        unsealed = [run.stored_id for run in self.runs[kept:]]
        first_id = self.runs[0].stored_id if not kept else _after(self.runs[kept - 1].stored_id)
        return Pending(first_id, self.last_id, self.stored - kept, unsealed, kept, rows)

    def joined(self, pending: Pending) -> None:
        """These documents are one now, with the last one's id, or will never be joined."""
        self.runs[pending.runs :] = [Run(pending.last_id, pending.rows)]
        self.stored -= pending.documents - 1
        self.since_seconds = self.touched_seconds
        self.attempts = 0


def _after(stored_id: bytes) -> bytes:
    """The lowest id that the next part of this bucket can have."""
    counter = int.from_bytes(stored_id[PREFIX_BYTES:], "big") + 1
    return stored_id[:PREFIX_BYTES] + counter.to_bytes(12 - PREFIX_BYTES, "big")


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
