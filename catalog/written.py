"""Whether stored rows are those of a write batch whose outcome is not known (W127)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from catalog.kernel import applied_rows
from catalog.merging import is_closed
from catalog.rows import digest_of, is_packed, is_unique, rows_in
from catalog.write_batch import WriteBatch


def is_written(document: bytes | None, batch: WriteBatch) -> bool | None:
    """Whether the stored bucket holds the rows of a batch; ``None`` when it cannot tell.

    Rows are where the batch put them. A direct write that takes rows away may have moved them; it closes the
    bucket, and then equal rows are sought in all of it. So they are for a part, which another process that sweeps
    may have joined with those before it.
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
        rows = rows_in(document)
    except ValueError:
        return None
    if not batch.base:
        # Nobody else makes a document under this id: it is there because the batch was written.
        return any(digest_of(measurement) in rows for measurement in batch.measurements)
    return _are_ours(batch, rows)


def is_written_elsewhere(documents: Sequence[bytes], batch: WriteBatch) -> bool | None:
    """As ``is_written``, in the documents that share the beginning of their ids with the bucket.

    Another process may have joined the document with them after the rows were written.
    """
    rows: Counter[bytes] = Counter()
    try:
        for document in documents:
            rows += rows_in(document)
    except ValueError:
        return None
    return _are_ours(batch, rows)


def _are_ours(batch: WriteBatch, rows: Counter[bytes]) -> bool | None:
    """Whether these are rows of the batch, and not equal ones that were in the bucket before; ``None``: either."""
    ours = [(digest_of(measurement), measurement) for measurement in batch.measurements]
    found = [measurement for digest, measurement in ours if digest in rows]
    if not found:
        return False
    if any(is_unique(measurement) for measurement in found):
        return True
    wanted = Counter(digest for digest, _ in ours)
    enough = rows.total() >= batch.bucket.state.committed_rows + len(ours)
    return True if enough and wanted <= rows else None
