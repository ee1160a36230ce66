"""Whole rows as values that compare: every field of a measurement, bit for bit, whatever the order of the fields.

``_id`` is not unique in a time-series collection, so it alone says nothing about what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from catalog.bson import raw
from catalog.documents import stored_columns
from catalog.kernel import Measurement

DIGEST_BYTES = 16

_UNDEFINED = b"\x06"
_NULL = b"\x0a"


def row_digest(meta: bytes, columns: Mapping[bytes, bytes]) -> bytes:
    """Of a row with this meta element (``b""`` without one) and these other fields, name → type byte + value."""
    # Undefined is a series of its own, but stored as null (W33).
    digest = blake2b(_NULL if meta == _UNDEFINED else meta, digest_size=DIGEST_BYTES)
    for name, value in sorted(columns.items()):
        digest.update(b"%d %d\0%b%b" % (len(name), len(value), name, value))
    return digest.digest()


def digest_of(measurement: Measurement) -> bytes:
    """Of a measurement, as it would be stored."""
    return row_digest(measurement.meta, measurement.columns)


def digest_of_stored(row: bytes, meta_field: bytes | None) -> bytes:
    """Of a document as readers of the collection see it."""
    columns = raw.fields_of(row)
    meta = columns.pop(meta_field, b"") if meta_field is not None else b""
    return row_digest(meta, columns)


def rows_in(document: bytes) -> Counter[bytes]:
    """The digests of all rows of a stored bucket.

    :raises ValueError: it is no bucket of version 1
    """
    rows: dict[bytes, dict[bytes, bytes]] = {}
    for name, column in stored_columns(document).items():
        if column[0] != raw.OBJECT:
            raise ValueError("a column that is no object")
        for key, value in raw.iter_elements(column, 1):
            rows.setdefault(key, {})[name] = value
    meta = raw.fields_of(document).get(b"meta", b"")
    return Counter(row_digest(meta, columns) for columns in rows.values())


def is_unique(measurement: Measurement) -> bool:
    """Whether no other statement makes an equal row: drivers make an ``ObjectId`` for each document."""
    return measurement.columns.get(b"_id", b"\0")[0] == raw.OBJECT_ID


def with_id(measurements: Sequence[Measurement]) -> list[int]:
    """The positions of those that have an ``_id`` at all."""
    return [position for position, each in enumerate(measurements) if b"_id" in each.columns]
