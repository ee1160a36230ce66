"""Stores buckets whose meta value is an empty timestamp, ``Timestamp(0, 0)``, which a server would change (W37).

A server replaces such a value by the current time if it is a top-level field of a document that an ``insert``, or an
``update`` by a whole document, stores. The meta value is such a field of a bucket, so each bucket of a series would get
a different one. An update by a pipeline stores the value unchanged, and with ``upsert`` it inserts new documents, too.

https://www.mongodb.com/docs/v6.0/reference/bson-types/#timestamps
"""

from __future__ import annotations

from typing import Final

from catalog.bson.raw import TIMESTAMP, document, element, sub_document

EMPTY_TIMESTAMP: Final = bytes((TIMESTAMP,)) + bytes(8)
"""The element value of an empty timestamp."""

_META: Final = element(b"meta", EMPTY_TIMESTAMP)
_ID: Final = b"\x07_id\0"
_CONTROL: Final = b"\x03control\0"
_CONTROL_AT: Final = 4 + len(_ID) + 12
_CONTROL_SIZE_AT: Final = _CONTROL_AT + len(_CONTROL)
_NOT_THERE: Final = sub_document(b"control", (element(b"$exists", b"\x08\0"),))
_UPSERT: Final = element(b"upsert", b"\x08\1")


def has_empty_timestamp(bucket: bytes) -> bool:
    """Whether the meta value of this new bucket, encoded by the proxy, is an empty timestamp."""
    size = int.from_bytes(bucket[_CONTROL_SIZE_AT : _CONTROL_SIZE_AT + 4], "little")
    return bucket.startswith(_META, _CONTROL_SIZE_AT + size)


def inserting_statement(bucket: bytes) -> bytes:
    """An update statement that inserts this new bucket unchanged; as with an insert, error 11000 if the id is taken.

    Every stored bucket has ``control``, so the query never matches, and the statement always inserts.
    """
    stage = sub_document(b"0", (sub_document(b"$replaceWith", (element(b"$literal", b"\x03" + bucket),)),))
    query = sub_document(b"q", (bucket[4:_CONTROL_AT], _NOT_THERE))
    return document((query, b"\x04u\0" + document((stage,)), _UPSERT))
