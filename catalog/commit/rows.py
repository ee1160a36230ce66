"""Digests of whole rows: every field of a measurement, bit for bit, in any order of the fields.

``_id`` is not unique in a time-series collection, so it does not show whether a measurement is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from catalog.bson import raw
from catalog.kernel import Measurement
from catalog.kernel.decoding import column_cells
from catalog.kernel.documents import stored_columns

DIGEST_BYTES = 16

MOST_PACKED_ROWS = 10_000
"""Limit for compressed buckets, in which few bytes may represent many rows."""

_VERSION_TWO = b"\x10\x02\0\0\0"
_COLUMN_SUBTYPE = 7

_UNDEFINED = b"\x06"
_NULL = b"\x0a"
_UNIQUE_TYPES = frozenset({raw.OBJECT_ID, raw.STRING, raw.BINARY, raw.OBJECT})


def row_digest(meta: bytes, columns: Mapping[bytes, bytes]) -> bytes:
    """The digest of a row with this meta element (``b""`` for none) and other fields (name → type byte + value)."""
    # An undefined meta value is a series of its own, but is stored as null (W35).
    digest = blake2b(_NULL if meta == _UNDEFINED else meta, digest_size=DIGEST_BYTES)
    for name, value in sorted(columns.items()):
        digest.update(b"%d %d\0%b%b" % (len(name), len(value), name, value))
    return digest.digest()


def digest_of(measurement: Measurement) -> bytes:
    """The digest of a measurement, as it is stored."""
    return row_digest(measurement.meta, measurement.columns)


def digest_without_meta(measurement: Measurement) -> bytes:
    """The digest of the other fields of a measurement, as they are stored."""
    return row_digest(b"", measurement.columns)


def digest_of_stored(row: bytes, meta_field: bytes | None) -> bytes:
    """The digest of a document as readers of the collection see it."""
    columns = raw.fields_of(row)
    meta = columns.pop(meta_field, b"") if meta_field is not None else b""
    return row_digest(meta, columns)


def is_packed(document: bytes) -> bool:
    """Whether a stored bucket is compressed (version 2)."""
    control = raw.fields_of(document).get(b"control", b"\0")
    return control[0] == raw.OBJECT and raw.fields_of(control, 1).get(b"version") == _VERSION_TWO


def rows_in(document: bytes, *, with_meta: bool = True) -> Counter[bytes]:
    """The digests of all rows of a stored bucket.

    :raises ValueError: the document is not a bucket, or is compressed and has more than ``MOST_PACKED_ROWS`` rows
    """
    if is_packed(document):
        return _rows_in_packed(document, with_meta=with_meta)
    rows: dict[bytes, dict[bytes, bytes]] = {}
    for name, column in stored_columns(document).items():
        if column[0] != raw.OBJECT:
            raise ValueError("a column that is no object")
        for key, value in raw.iter_elements(column, 1):
            rows.setdefault(key, {})[name] = value
    meta = raw.fields_of(document).get(b"meta", b"") if with_meta else b""
    return Counter(row_digest(meta, columns) for columns in rows.values())


def _rows_in_packed(document: bytes, *, with_meta: bool) -> Counter[bytes]:
    bucket = raw.fields_of(document)
    count = raw.fields_of(bucket[b"control"], 1).get(b"count", b"\0")
    data = bucket.get(b"data", b"\0")
    if count[0] != raw.INT32 or data[0] != raw.OBJECT:
        raise ValueError("not a bucket of version 2")
    number = int.from_bytes(count[1:], "little")
    if number > MOST_PACKED_ROWS:
        raise ValueError("more rows than buckets have")
    rows: list[dict[bytes, bytes]] = [{} for _ in range(number)]
    for name, column in raw.fields_of(data, 1).items():
        if column[0] != raw.BINARY or column[5] != _COLUMN_SUBTYPE:
            raise ValueError("a column that is not compressed")
        for row, value in zip(rows, column_cells(column[6:], number), strict=True):
            if value is not None:
                row[name] = value
    meta = bucket.get(b"meta", b"") if with_meta else b""
    return Counter(row_digest(meta, columns) for columns in rows)


def is_unique(measurement: Measurement) -> bool:
    """Whether no other measurement is taken to be equal in all fields.

    Drivers make a new ``ObjectId`` for each document, and an application that chooses strings, binary values or objects
    instead makes them to tell its measurements apart. Numbers may be those of a counter that each client has.
    """
    return measurement.columns.get(b"_id", b"\0")[0] in _UNIQUE_TYPES


def with_id(measurements: Sequence[Measurement]) -> list[int]:
    """The positions of the measurements that have an ``_id``."""
    return [position for position, each in enumerate(measurements) if b"_id" in each.columns]
