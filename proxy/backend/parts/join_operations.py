"""Encodes the ``applyOps`` command with which a standalone joins parts.

The server executes it as a whole, or not at all if one of its conditions does not hold. The conditions are that the
parts are still what was read. If a proxy may have deleted single rows, each part is compared. Otherwise only the
server's own writes can change parts: these select by meta value, which all parts of a bucket share, and process them in
the order of some index. So it is enough that no part has another meta value and that each still exists; a deleted one
would otherwise be stored again.

The last document is kept and gets all rows; its meta value is not written. So a change of the meta value that no
condition detects, because the values are equal (1 and 1.0), is not undone.

https://www.mongodb.com/docs/v6.0/reference/command/applyOps/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from bson.binary import Binary
from bson.objectid import ObjectId

from catalog.bson.codec import encode
from catalog.bson.raw import (
    ARRAY,
    OBJECT,
    REGEX,
    UNDEFINED,
    document,
    element,
    fields_of,
    string_value,
    sub_array,
    sub_document,
)
from catalog.namespaces import VirtualCollection
from catalog.parts import ID_ELEMENT, PREFIX_BYTES, id_of

_CONDITIONS: Final = frozenset({UNDEFINED, REGEX})
"""BSON types with another meaning in a query: undefined, regular expressions."""

_STILL_CLOSED: Final = encode({"$v": 2, "diff": {"scontrol": {"u": {"closed": True}}}})
"""An update in the format of the oplog that does not change a closed bucket."""

_FORMAT: Final = element(b"$v", b"\x10\2\0\0\0")

_OPENED_OR_COMPRESSED: Final = (
    encode({"control.closed": {"$ne": True}}),
    encode({"control.version": {"$ne": 1}}),
)
_NONE_FOUND: Final = encode({"_id": {"$exists": False}})


@dataclass(frozen=True, slots=True)
class Replacement:
    """Documents as they were read, in the order of their parts, and what replaces them, with the last one's id."""

    stored: Sequence[bytes]
    joined: bytes


def apply_ops(collection: VirtualCollection, replacements: Sequence[Replacement], *, alone: bool) -> bytes:
    """The command. ``alone``: no process of the proxy deletes or updates rows. Raises ``ValueError`` as ``id_of``."""
    uuid = Binary(collection.uuid, 4) if collection.uuid else None
    place = _elements(encode({"ns": str(collection.buckets), "ui": uuid}))
    # Deletes differ only in the id, which is at the end, before two terminators.
    delete = document([element(b"op", string_value(b"d")), *place, sub_document(b"o", [ID_ELEMENT + bytes(12)])])[:-14]
    update, still_closed = [element(b"op", string_value(b"u")), *place], element(b"o", b"\x03" + _STILL_CLOSED)
    operations: list[bytes] = []
    conditions: list[bytes] = []
    for each in replacements:
        natively = _natively_unchanged(place[0], each.stored) if alone else None
        # An update that changes nothing fails if its document does not exist.
        *others, last = [ID_ELEMENT + id_of(part) for part in each.stored]
        exists = others if natively else others[:1]
        operations += [b"\x03" + document([*update, sub_document(b"o2", [part]), still_closed]) for part in exists]
        operations += [b"\x03%b%b\0\0" % (delete, part[len(ID_ELEMENT) :]) for part in others]
        operations.append(b"\x03" + document([*update, sub_document(b"o2", [last]), _contents_changed(each.joined)]))
        conditions += natively or _unchanged(place[0], each.stored)
    return document(
        [
            sub_array(b"applyOps", operations),
            sub_array(b"preCondition", [b"\x03" + each for each in conditions]),
            element(b"alwaysUpsert", b"\x08\0"),
            element(b"$db", string_value(b"admin")),
        ]
    )


def update_of_the_last(replacement: Replacement) -> bytes:
    """An update statement that stores all rows in the last of the documents; its meta value is not written.

    It is no pipeline, which would compare objects (H10).
    """
    changes = sub_document(b"u", [sub_document(b"$set", _contents(replacement.joined))])
    return document([sub_document(b"q", [ID_ELEMENT + id_of(replacement.stored[-1])]), changes])


def _contents_changed(joined: bytes) -> bytes:
    """As ``update_of_the_last``, in the format of the oplog."""
    return sub_document(b"o", [_FORMAT, sub_document(b"diff", [sub_document(b"u", _contents(joined))])])


def _contents(joined: bytes) -> list[bytes]:
    """The fields that a join changes in the document that stays."""
    fields = fields_of(joined)
    return [element(name, fields[name]) for name in (b"control", b"data")]


def _natively_unchanged(namespace: bytes, stored: Sequence[bytes]) -> list[bytes] | None:
    """Conditions that no document has another meta value, or was compressed or reopened; ``None`` if there are none.

    One for each segment of neighbouring ids.
    """
    meta = fields_of(stored[0]).get(b"meta")
    if meta is not None and (meta[0] == ARRAY or not _is_value(meta)):
        return None
    test = element(b"$exists", b"\x08\1") if meta is None else element(b"$ne", meta)
    other_meta = document([sub_document(b"meta", [test])])
    changed = [b"\x03" + each for each in (other_meta, *_OPENED_OR_COMPRESSED)]
    either = sub_array(b"$or", changed)
    conditions: list[bytes] = []
    for _, segment in groupby(map(id_of, stored), lambda each: each[:PREFIX_BYTES]):
        neighbours = list(segment)
        ids = {"$gte": ObjectId(neighbours[0]), "$lte": ObjectId(neighbours[-1])}
        query = sub_document(b"q", [*_elements(encode({"_id": ids})), either])
        conditions.append(document([namespace, query, element(b"res", b"\x03" + _NONE_FOUND)]))
    return conditions


def _unchanged(namespace: bytes, stored: Sequence[bytes]) -> list[bytes]:
    """Conditions that each document is what was read."""
    # A document, used as a condition, matches itself, except for values with a special meaning.
    is_plain = _is_value(fields_of(stored[0]).get(b"meta", b"\x0a"))
    return [
        document(
            [
                namespace,
                sub_document(b"q", [ID_ELEMENT + id_of(each)]),
                b"\x03res\0%b" % (each if is_plain else _equal_to(each)),
            ]
        )
        for each in stored
    ]


def _is_value(meta: bytes) -> bool:
    """Whether the value, used in a condition, matches itself."""
    return meta[0] not in _CONDITIONS and not (meta[0] == OBJECT and meta[6:7] == b"$")


def _equal_to(stored: bytes) -> bytes:
    """A condition that every value is unchanged."""
    return document([sub_document(name, [element(b"$eq", value)]) for name, value in fields_of(stored).items()])


def _elements(fields: bytes) -> list[bytes]:
    return [element(name, value) for name, value in fields_of(fields).items()]
