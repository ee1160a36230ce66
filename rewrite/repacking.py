"""A bucket without some of its measurements, under the same id (U8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from catalog.bson.raw import document, element, fields_of, iter_elements
from catalog.documents import bucket_document
from catalog.kernel import holds_rows
from catalog.minmax import greatest_of, least_of
from catalog.replacing import Differs


def columns_of(row: bytes, left_out: Iterable[bytes]) -> bytes:
    """A measurement without these fields, byte for byte."""
    names = frozenset(left_out)
    return document(element(name, value) for name, value in iter_elements(row) if name not in names)


def survivors(rows: Sequence[bytes], removed: Iterable[bytes]) -> list[bytes] | None:
    """``rows`` without ``removed``, in order; ``None`` when ``rows`` does not hold them all.

    Measurements that are equal to the byte are the same to any predicate, so it does not matter which goes.
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
    """The bucket document that holds ``rows`` (measurements without the meta field) in place of its own.

    It is of version 1, its rows are numbered anew, its summaries are those of ``rows``; only the start of its
    time stays, since its id tells it (W12). Raises ``ValueError`` when ``bucket`` is no bucket, ``Differs`` when what
    was made does not hold these rows and no others.
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
    # Buckets of 5.0 hold values of any kind beside each other (Q16).
    ends = [(name, least_of(column), greatest_of(column)) for name, column in values.items()]
    made = bucket_document(stored[b"_id"][1:], stored.get(b"meta", b""), ends, columns.items())
    if not holds_rows(made, rows, time_field):
        raise Differs("a bucket without the measurements that were deleted does not hold the others: it stays as it is")
    return made
