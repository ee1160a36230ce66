"""Buckets that are written in parts, because a server inserts a small bucket much faster than it appends to one.

To append one row, a server rewrites the whole bucket. Therefore, when many buckets grow at once, the rows of a batch
are inserted as a *part*: a valid bucket with the same meta value and the same start as the bucket in memory. The parts
of a bucket are joined later, in one atomic step (``catalog.background.joining``). At every moment, the stored documents
have every row exactly once, and any reader of buckets can read them.

An id has twelve bytes::

    start (4) | segment (2) | place (3) | counter (3)

``start`` is that of the bucket, as servers require. ``segment`` numbers the *segments* of a process
(``catalog.growth.segments``): its new parts lie together in the clustered collection, whatever bucket they belong to,
so a server writes to few pages. ``place`` identifies the bucket among those of the process. So in each segment, buckets
lie in the same order, each with its parts side by side, and neighbouring buckets are joined with few ranges of ids.
``counter`` numbers the parts of a bucket in a segment.

The parts of a segment become one *run* for each bucket. When some runs have about the same size, they become one, so a
row is rewritten a few times only, and a bucket has few documents. In the end, all of them become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from catalog.errors import InvariantViolated
from catalog.kernel import BucketState, Limits, Measurement, join_documents, one_row_part
from catalog.kernel.merging import closed

SEGMENT_AT: Final = 4
PLACE_AT: Final = 6
PREFIX_BYTES: Final = 9
"""What the ids of a bucket's parts in one segment have in common."""
PLACES: Final = 1 << 8 * (PREFIX_BYTES - PLACE_AT)
LAST_PART: Final = (1 << 24) - 1
LAST_LIKELY_PART: Final = 1_000_000
"""Maximum number of rows in a bucket, and so of its parts."""
PIECE_PARTS: Final = 40
"""The parts of a bucket in one segment are counted in pieces of this size, so that a join can take some of them."""
TOGETHER: Final = 4
"""This many documents of about the same size become one, unless a process chooses otherwise."""

__all__ = [
    "ID_ELEMENT",
    "LAST_LIKELY_PART",
    "LAST_PART",
    "PLACES",
    "PLACE_AT",
    "PREFIX_BYTES",
    "SEGMENT_AT",
    "IdRange",
    "Parts",
    "Pending",
    "Run",
    "bucket_key",
    "bucket_of",
    "closed",
    "id_of",
    "in_segment",
    "is_among",
    "join",
    "may_be_part",
    "part_document",
    "segment_of",
]


ID_ELEMENT: Final = b"\x07_id\0"
"""How the element ``_id`` begins, before the twelve bytes of an ObjectId."""


def bucket_key(stored_id: bytes) -> bytes:
    """What the ids of a bucket and of its parts have in common, in every segment: the start and the place."""
    return stored_id[:SEGMENT_AT] + stored_id[PLACE_AT:PREFIX_BYTES]


def id_of(stored: bytes) -> bytes:
    """The ``_id`` of a document, which servers store first; raises ``ValueError`` if it is not an ObjectId."""
    if not stored.startswith(ID_ELEMENT, 4):
        raise ValueError("a bucket whose _id is no ObjectId")
    return stored[9:21]


def in_segment(bucket_id: bytes, segment: bytes) -> bytes:
    """The prefix of the ids of this bucket's parts in a segment."""
    return bucket_id[:SEGMENT_AT] + segment + bucket_id[PLACE_AT:PREFIX_BYTES]


def segment_of(stored_id: bytes) -> bytes:
    """The segment of an id that a proxy made."""
    return stored_id[SEGMENT_AT:PLACE_AT]


def is_among(first_place: int, places: int, stored_id: bytes) -> bool:
    """Whether the place of this id is one of ``places`` from the first one on."""
    place = int.from_bytes(stored_id[PLACE_AT:PREFIX_BYTES], "big")
    return (place - first_place) % PLACES < places


def may_be_part(stored_id: bytes) -> bool:
    """Whether a proxy may have made this id: its last three bytes count from zero, those of a server do not."""
    return int.from_bytes(stored_id[PREFIX_BYTES:], "big") <= LAST_LIKELY_PART


_UNBOUNDED = Limits(max_count=1 << 30, max_size_bytes=1 << 30, min_count=0)


@dataclass(init=False, slots=True)
class IdRange:
    """About ``documents`` documents of one bucket whose ids are neighbours.

    Many are made, so the constructor is compiled (``catalog.ports``).
    """

    first_id: bytes
    last_id: bytes
    documents: int

    def __init__(self, first_id: bytes, last_id: bytes, documents: int) -> None:
        self.first_id = first_id
        self.last_id = last_id
        self.documents = documents

    def up_to(self, last_id: bytes) -> IdRange:
        """A range with one more document, which has this id."""
        return IdRange(self.first_id, last_id, self.documents + 1)


class Run(NamedTuple):
    """A stored document with the rows of several parts, or the one that the bucket had before its first part.

    ``is_closed``: it is closed where parts are, as a part that was alone in its segment, or because it will be joined
    again.
    """

    stored_id: bytes
    rows: int
    is_closed: bool = False


class Fresh:
    """A piece of the parts of one bucket in one segment that are not joined yet."""

    __slots__ = ("documents", "first_id", "last_id", "rows")

    def __init__(self, part_id: bytes, rows: int) -> None:
        self.first_id = part_id
        self.last_id = part_id
        self.documents = 1
        self.rows = rows


class Taken:
    """What a join takes of the parts of a segment; later ones stay."""

    __slots__ = ("documents", "fresh", "last_id", "rows")

    def __init__(self, fresh: Fresh) -> None:
        self.fresh = fresh
        self.last_id = fresh.last_id
        self.documents = fresh.documents
        self.rows = fresh.rows


class Pending(NamedTuple):
    """The documents that a join makes one: all after the first ``runs`` runs, but for parts that come later.

    ``ranges``: their ids, in the order of the rows; ``unsealed``: the ids of those that are not closed where parts are;
    ``rows``: the number of their rows, unless other writers have changed them; ``is_last``: what becomes of them is the
    whole bucket.
    """

    ranges: Sequence[IdRange]
    documents: int
    unsealed: Sequence[bytes]
    runs: int
    rows: int
    taken: Sequence[Taken]
    is_last: bool

    @property
    def last_id(self) -> bytes:
        """The id of the last of the documents."""
        return self.ranges[-1].last_id

    @property
    def parts(self) -> int:
        """The number of parts among the documents."""
        return sum(each.documents for each in self.taken)


class Parts:
    """The stored documents of one bucket that are not joined yet."""

    __slots__ = (
        "_fresh",
        "_next",
        "_prefix",
        "attempts",
        "full",
        "joining",
        "not_before_seconds",
        "runs",
        "stored",
        "touched_seconds",
    )

    def __init__(self, bucket_id: bytes, rows: int, touched_seconds: float) -> None:
        """``bucket_id``: the id of the first stored document, which has this number of ``rows``."""
        self._prefix = bucket_id[:PREFIX_BYTES]
        self._next = int.from_bytes(bucket_id[PREFIX_BYTES:], "big") + 1
        self._fresh: list[Fresh] = []
        """Some pieces for each segment."""
        self.runs = [Run(bucket_id, rows)]
        """The documents before the latest parts."""
        self.stored = 1
        self.touched_seconds = touched_seconds
        self.joining = False
        self.full = False
        """Whether the bucket accepts no more rows and all of them are stored."""
        self.attempts = 0
        """Number of failed joins since the last successful one."""
        self.not_before_seconds = 0.0
        """The earliest time of the next join."""

    def next_id(self, prefix: bytes) -> bytes:
        """The id of the next part, in the segment of ``prefix``.

        :raises InvariantViolated: the ids are used up
        """
        if prefix != self._prefix:
            self._prefix, self._next = prefix, 0
        if self._next > LAST_PART:
            raise InvariantViolated("a bucket in too many parts")
        part_id = prefix + self._next.to_bytes(12 - PREFIX_BYTES, "big")
        self._next += 1
        return part_id

    @property
    def fresh(self) -> int:
        """The number of parts after the last run."""
        return self.stored - len(self.runs)

    @property
    def last_id(self) -> bytes:
        """The id of the last document."""
        return self._fresh[-1].last_id if self._fresh else self.runs[-1].stored_id

    @property
    def prefixes(self) -> Sequence[bytes]:
        """The first bytes of the ids of all documents, without repetition."""
        ids = [*(run.stored_id for run in self.runs), *(fresh.last_id for fresh in self._fresh)]
        return list(dict.fromkeys(each[:PREFIX_BYTES] for each in ids))

    def has_of_other_segments(self, current: bytes) -> bool:
        """Whether there are parts of a segment that gets no more of them."""
        return bool(self._fresh) and segment_of(self._fresh[0].first_id) != current

    def committed(self, part_id: bytes, rows: int, now_seconds: float) -> None:
        """One more part is stored."""
        latest = self._fresh[-1] if self._fresh else None
        prefix = part_id[:PREFIX_BYTES]
        if latest and latest.documents < PIECE_PARTS and latest.first_id[:PREFIX_BYTES] == prefix:
            latest.last_id = part_id
            latest.documents += 1
            latest.rows += rows
        else:
            self._fresh.append(Fresh(part_id, rows))
        self.stored += 1
        self.touched_seconds = now_seconds

    def pending(
        self, *, everything: bool, without: bytes = b"", together: int = TOGETHER, most_parts: int = LAST_PART
    ) -> Pending:
        """What to join next, without the parts of the segment ``without``; ``everything``: all runs, too.

        ``together``: how many runs of about the same size become one; ``most_parts``: with more parts, the first of
        them become a run.
        """
        taken: list[Taken] = []
        documents = 0
        for each in self._fresh:
            if not everything and segment_of(each.first_id) == without:
                continue
            if taken and documents + each.documents > most_parts:
                everything = False
                break
            taken.append(Taken(each))
            documents += each.documents
        rows = sum(each.rows for each in taken)
        kept = 0 if everything else self._kept(rows, together)
        runs = self.runs[kept:]
        ranges = [IdRange(run.stored_id, run.stored_id, 1) for run in runs]
        ranges += _ranges(taken)
        rows += sum(run.rows for run in runs)
        unsealed = [run.stored_id for run in runs if not run.is_closed]
        return Pending(ranges, len(runs) + documents, unsealed, kept, rows, taken, is_last=everything)

    def _kept(self, rows: int, together: int) -> int:
        """How many runs stay as they are when parts with ``rows`` become one: the others have about their size."""
        kept = len(self.runs)
        while True:
            alike = 0
            while alike < kept and self.runs[kept - 1 - alike].rows <= 2 * rows:
                alike += 1
            if 1 + alike < together:
                return kept
            rows += sum(run.rows for run in self.runs[kept - alike : kept])
            kept -= alike

    def joined(self, pending: Pending, joined_id: bytes | None = None) -> None:
        """These documents are one now, with this id, by default the last one's, or will never be joined."""
        is_closed = not pending.is_last or pending.documents == pending.parts == 1
        self.runs[pending.runs :] = [Run(joined_id or pending.last_id, pending.rows, is_closed)]
        for each in pending.taken:
            fresh = each.fresh
            fresh.documents -= each.documents
            fresh.rows -= each.rows
            fresh.first_id = _after(each.last_id)
        self._fresh = [each for each in self._fresh if each.documents]
        self.stored -= pending.documents - 1
        self.attempts = 0

    def absorbed(self, rows: int) -> None:
        """The one document has this many rows now."""
        self.runs = [Run(self.last_id, rows)]


def _ranges(taken: Sequence[Taken]) -> list[IdRange]:
    """The ids of these parts; pieces of one segment are one range."""
    ranges: list[IdRange] = []
    for each in taken:
        first_id, documents = each.fresh.first_id, each.documents
        if ranges and ranges[-1].last_id[:PREFIX_BYTES] == first_id[:PREFIX_BYTES]:
            previous = ranges.pop()
            first_id, documents = previous.first_id, previous.documents + documents
        ranges.append(IdRange(first_id, each.last_id, documents))
    return ranges


def _after(stored_id: bytes) -> bytes:
    """The lowest id that the next part of this bucket in this segment can have."""
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
    """One bucket with this id and all rows of these stored parts, in their order.

    :raises ValueError: they are not parts of one bucket, or have more than ``max_rows`` rows, because of other writers
    """
    document, rows = join_documents(documents, joined_id, time_field, meta_field)
    if rows > max_rows:
        raise ValueError("parts with more rows than a bucket may have")
    return document
