"""Encodes the ``applyOps`` command with which a standalone joins parts.

The server executes it as a whole, or not at all if one of its conditions does not hold or one of its updates finds no
document. A server needs as long to plan a condition as to compare many documents, so each range of ids that was read
has one, which compares all parts in it.

The parts must be there still, and be what was read. If a proxy may have deleted single rows, each part is compared as a
whole. Otherwise only the server's own writes can change parts: these change meta values, or delete whole parts, in the
order of some index. So each part is asked for with an update that changes nothing, and its meta value is compared; a
deleted part would otherwise be stored again.

The last document is kept and gets all rows; its meta value is not written. So a change of the meta value that no
condition detects, because the values are equal (1 and 1.0), is not undone.

https://www.mongodb.com/docs/v6.0/reference/command/applyOps/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bson.binary import Binary

from catalog.bson.codec import encode
from catalog.bson.raw import document, element, fields_of, string_value, sub_array, sub_document
from catalog.namespaces import VirtualCollection
from catalog.parts import ID_ELEMENT, id_of
from proxy.backend.parts.readings import RangeDocuments

_STILL_CLOSED: Final = encode({"$v": 2, "diff": {"scontrol": {"u": {"closed": True}}}})
"""An update in the format of the oplog that does not change a closed bucket."""

_FORMAT: Final = element(b"$v", b"\x10\2\0\0\0")

_STATE: Final = b"\x03" + encode({"closed": "$control.closed", "version": "$control.version", "meta": "$meta"})
"""An expression: what the server's own writes change in a part."""
_CLOSED: Final = encode({"closed": True, "version": 1})[4:-1]
_WHOLE: Final = string_value(b"$$ROOT")
_AT: Final = string_value(b"$$at")
_ZERO: Final = b"\x10" + bytes(4)
_NONE_FOUND: Final = encode({"_id": {"$exists": False}})


@dataclass(frozen=True, slots=True)
class Replacement:
    """Documents as they were read, in the order of their parts, and what replaces them, with the last one's id."""

    stored: Sequence[bytes]
    joined: bytes


def apply_ops(
    collection: VirtualCollection,
    readings: Iterable[RangeDocuments],
    replacements: Sequence[Replacement],
    *,
    alone: bool,
) -> bytes:
    """The command. ``readings``: in which ranges the documents were read.

    ``alone``: no process of the proxy deletes or updates rows. Raises ``ValueError`` as ``id_of``.
    """
    uuid = Binary(collection.uuid, 4) if collection.uuid else None
    place = _elements(encode({"ns": str(collection.buckets), "ui": uuid}))
    # Deletes differ only in the id, which is at the end, before two terminators.
    delete = document([element(b"op", string_value(b"d")), *place, sub_document(b"o", [ID_ELEMENT + bytes(12)])])[:-14]
    update, still_closed = [element(b"op", string_value(b"u")), *place], element(b"o", b"\x03" + _STILL_CLOSED)
    actual = _STATE if alone else _WHOLE
    expected: dict[bytes, bytes] = {}
    operations: list[bytes] = []
    for each in replacements:
        ids = [id_of(part) for part in each.stored]
        # The parts of a bucket have one meta value, and so one state.
        expected.update(dict.fromkeys(ids, _state(each.stored[0])) if alone else zip(ids, each.stored, strict=True))
        *others, last = [ID_ELEMENT + identity for identity in ids]
        # An update that changes nothing fails if its document does not exist.
        operations += [b"\x03" + document([*update, sub_document(b"o2", [part]), still_closed]) for part in others]
        operations += [b"\x03%b%b\0\0" % (delete, part[len(ID_ELEMENT) :]) for part in others]
        operations.append(b"\x03" + document([*update, sub_document(b"o2", [last]), _contents_changed(each.joined)]))
    conditions = (_unchanged(place[0], reading, actual, expected) for reading in readings)
    return document(
        [
            sub_array(b"applyOps", operations),
            sub_array(b"preCondition", [b"\x03" + each for each in conditions if each]),
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


def _state(part: bytes) -> bytes:
    """The value that ``_STATE`` has for a part that is unchanged."""
    meta = fields_of(part).get(b"meta")
    return document([_CLOSED, element(b"meta", meta) if meta else b""])


def _unchanged(
    namespace: bytes, reading: RangeDocuments, actual: bytes, expected: Mapping[bytes, bytes]
) -> bytes | None:
    """A condition that the documents in this range are as expected; ``None`` if nothing is expected of them.

    ``actual``: the expression that is compared; ``expected``: its values by the ids of documents. Others may be between
    them.
    """
    ids = [identity for identity in map(id_of, reading) if identity in expected]
    if not ids:
        return None
    # Literals, so meta values that look like expressions are values. Of the others, the position is -1.
    position = _operator(b"$indexOfArray", _literal([b"\x07" + each for each in ids]), string_value(b"$_id"))
    value = _operator(b"$arrayElemAt", _literal([b"\x03" + expected[each] for each in ids]), _AT)
    differs = _operator(b"$and", _operator(b"$gte", _AT, _ZERO), _operator(b"$ne", actual, value))
    search = sub_document(b"$let", [sub_document(b"vars", [element(b"at", position)]), element(b"in", differs)])
    bounds = sub_document(b"_id", [b"\x07$gte\0" + ids[0], b"\x07$lte\0" + ids[-1]])
    query = sub_document(b"q", [bounds, sub_document(b"$expr", [search])])
    return document([namespace, query, element(b"res", b"\x03" + _NONE_FOUND)])


def _operator(name: bytes, *operands: bytes) -> bytes:
    """The element value of an expression."""
    return b"\x03" + document([sub_array(name, operands)])


def _literal(values: Iterable[bytes]) -> bytes:
    return b"\x03" + document([sub_array(b"$literal", values)])


def _elements(fields: bytes) -> list[bytes]:
    return [element(name, value) for name, value in fields_of(fields).items()]
