"""Finds out from stored rows whether a write batch with an unknown outcome was written (W127)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from catalog.bson import raw
from catalog.buckets.write_batch import WriteBatch
from catalog.commit.rows import digest_without_meta, is_packed, is_unique, rows_in
from catalog.kernel import applied_rows
from catalog.kernel.merging import is_closed

LARGEST_FAMILY_BYTES = 1024 * 1024
"""Of larger families, only the documents with the meta value of the batch are read."""


def is_written(document: bytes | None, batch: WriteBatch, *, is_alone: bool) -> bool | None:
    """Whether the stored bucket has the rows of a batch; ``None`` if that cannot be determined.

    ``is_alone``: no other process can have executed some of the statements, so that one row tells for all.

    Rows have the numbers that the batch gave them. A direct write that deletes rows may have renumbered them; it closes
    the bucket, so that equal rows are then searched in all of it. The same applies to a part, which another process may
    have joined with the parts before it. The meta value is not compared: the id says whose rows the document has, and a
    client may have changed the meta value meanwhile.
    """
    if document is None:
        return False
    time_field = batch.bucket.series.collection.time_field
    try:
        # A compressed bucket is closed, and its rows are in another order.
        if not is_packed(document):
            if applied_rows(document, time_field, batch.base, batch.measurements):
                return True
            if batch.stored_id == batch.bucket.state.bucket_id and not is_closed(document):
                return False
        rows = rows_in(document, with_meta=False)
    except ValueError:
        return None
    if not batch.base:
        # No other writer makes a document with this id, so it is stored because the batch was written.
        return any(digest_without_meta(measurement) in rows for measurement in batch.measurements)
    if (ours := _found(batch, rows, is_alone=is_alone)) is not None:
        return ours
    wanted = Counter(map(digest_without_meta, batch.measurements))
    # With more rows, another process may have added an equal one.
    is_all = rows.total() == batch.bucket.state.committed_rows + len(batch.measurements)
    return True if is_all and wanted <= rows else None


def is_written_elsewhere(documents: Sequence[bytes], batch: WriteBatch, *, is_alone: bool) -> bool | None:
    """As ``is_written``, in the bucket and its parts.

    Another process may have joined the batch's document with these after the rows were written, or with buckets of
    another process that have equal rows (``catalog.background.gathering``).
    """
    rows: Counter[bytes] = Counter()
    try:
        if sum(map(len, documents)) > LARGEST_FAMILY_BYTES:
            # Buckets of a server may have ids that look like those of parts, and those of a minute are very many.
            meta = batch.bucket.series.meta
            documents = [each for each in documents if raw.fields_of(each).get(b"meta", b"") == meta]
        for document in documents:
            rows += rows_in(document, with_meta=False)
    except ValueError:
        return None
    return _found(batch, rows, is_alone=is_alone)


def _found(batch: WriteBatch, rows: Counter[bytes], *, is_alone: bool) -> bool | None:
    """Whether rows of the batch are there; ``None`` if equal rows of others may be.

    Some may have been deleted since. But if another process has executed some of the statements, the others may be
    missing; then only all of them tell that they are stored, by whomever.
    """
    found = [measurement for measurement in batch.measurements if digest_without_meta(measurement) in rows]
    if not found:
        return False
    if is_alone:
        return True if any(map(is_unique, found)) else None
    return True if len(found) == len(batch.measurements) and all(map(is_unique, found)) else None
