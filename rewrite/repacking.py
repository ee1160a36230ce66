"""A bucket without some of its measurements, under the same id (U8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from catalog.background.replacing import Differs
from catalog.bson.raw import document, element, fields_of, iter_elements
from catalog.kernel import has_true_header, holds_rows
from catalog.kernel.documents import bucket_document
from catalog.kernel.minmax import greatest_of, least_of


def columns_of(row: bytes, left_out: Iterable[bytes]) -> bytes:
    """A measurement without these fields, byte for byte."""
    names = frozenset(left_out)
    return document(element(name, value) for name, value in iter_elements(row) if name not in names)


def survivors(rows: Sequence[bytes], removed: Iterable[bytes]) -> list[bytes] | None:
    """``rows`` without ``removed``, in order; ``None`` if ``rows`` does not contain all of them.

    Measurements that are equal to the byte match the same predicates, so any of them can be removed.
    """
    doomed = Counter(removed)
    kept = []
    for row in rows:
        if doomed[row]:
            doomed[row] -= 1
        else:
            kept.append(row)
    return None if doomed.total() else kept


def repacked(bucket: bytes, rows: Sequence[bytes], time_field: bytes) -> bytes:
    """The bucket document with ``rows`` (measurements without the meta field) instead of its own.

    Its version is 1, its rows are renumbered, and its summaries are those of ``rows``; only the start of its time is
    kept, because it is part of the id (W12). Raises ``ValueError`` if ``bucket`` is not a bucket, ``Differs`` if the
    result does not contain exactly these rows, or has other summaries than theirs.
    """
    stored = fields_of(bucket)
    try:
        start = fields_of(fields_of(stored[b"control"], 1)[b"min"], 1)[time_field]
    except KeyError as missing:
        raise ValueError(f"a bucket without {missing}") from None
    values: dict[bytes, list[bytes]] = {time_field: [start]}
    columns: dict[bytes, list[bytes]] = {time_field: []}
    for number, row in enumerate(rows):
        for name, value in fields_of(row).items():
            columns.setdefault(name, []).append(element(b"%d" % number, value))
            values.setdefault(name, []).append(value)
    # Buckets of 5.0 may contain values of different types (Q16).
    ends = [(name, least_of(column), greatest_of(column)) for name, column in values.items()]
    made = bucket_document(stored[b"_id"][1:], stored.get(b"meta", b""), ends, columns.items())
    if not holds_rows(made, rows, time_field):
        raise Differs("a bucket without the measurements that were deleted does not hold the others: it stays as it is")
    if not has_true_header(made, time_field):
        raise Differs("the summaries of the repacked bucket do not match its rows; keeping the stored one")
    return made
