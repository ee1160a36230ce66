"""Parses ``insert`` commands, and decides which inserts the catalog takes (W90-W106)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.bson.raw import BOOL, INT32, INT64
from catalog.namespaces import VirtualCollection
from proxy.request.command import Command
from proxy.request.field_types import is_plain, plain_write_concern
from proxy.wire.framing import ARRAY, array_documents
from proxy.wire.op_msg import MOST_DOCUMENTS, OpMsg, no_rest

MOST_STATEMENT_IDS_BYTES: Final = 2 * 1024 * 1024
"""Maximum size of ``stmtIds``; enough for the maximum number of documents."""


TAKEN_FIELDS = frozenset(
    {
        b"insert",
        b"documents",
        b"ordered",
        b"$db",
        b"lsid",
        b"txnNumber",
        b"stmtId",
        b"stmtIds",
        b"writeConcern",
        b"readConcern",
        b"comment",
        b"bypassDocumentValidation",
        b"maxTimeMS",
        b"$clusterTime",
        b"$readPreference",
        b"apiVersion",
        b"apiStrict",
        b"apiDeprecationErrors",
    }
)
"""Fields that an insert for the catalog may have; an insert with any other is relayed."""

_IDS: Final = 1 << 32
"""Number of possible statement ids."""
_AFTER: Final = b"\x11afterClusterTime\0"
_API_DETAILS: Final = frozenset({b"apiStrict", b"apiDeprecationErrors"})
_CHECKED_ELSEWHERE: Final = frozenset({b"documents", b"apiStrict"})


@dataclass(slots=True)
class InsertCommand:
    """A parsed ``insert``. It is never changed, and not frozen only because frozen objects are slower to make.

    ``documents`` are raw. ``write_concern`` is the raw document, ``b""`` for the server's default; unacknowledged
    writes are acknowledged by the backend all the same. ``session``, the raw ``lsid``, is ``b""``, ``txn_number`` and
    ``statement_ids`` are ``None`` unless the write is retryable. ``size_bytes`` is that of all documents.
    """

    documents: Sequence[bytes]
    ordered: bool
    write_concern: bytes
    session: bytes
    txn_number: int | None
    statement_ids: Sequence[int] | None
    expects_reply: bool
    size_bytes: int


def with_documents(
    insert: InsertCommand, documents: Sequence[bytes], session: bytes = b"", txn_number: int | None = None
) -> InsertCommand:
    """The same command with other documents; if it is retryable, in this session and with this transaction number."""
    return InsertCommand(
        documents,
        insert.ordered,
        insert.write_concern,
        session,
        txn_number,
        None if txn_number is None else range(len(documents)),
        insert.expects_reply,
        len(documents[0]) if len(documents) == 1 else sum(map(len, documents)),
    )


def takes_inserts(collection: VirtualCollection) -> bool:
    """Whether inserts into this collection go through the catalog.

    With a collation, ``control.min`` and ``control.max`` would have to compare strings as the server's ICU does (W21).
    With an empty name of the time field, buckets that clients write are invalid (H6). Such inserts are relayed.
    """
    return collection.collation is None and collection.options.time_field != ""


def parse_insert(command: Command, *, retryable_writes: bool) -> InsertCommand | None:
    """The parsed insert; ``None`` if the command is not a plain valid insert.

    ``retryable_writes``: the backend keeps transaction numbers (a replica set or mongos).
    """
    fields = command.fields
    if not fields.keys() <= TAKEN_FIELDS or not _is_plain(command):
        return None
    if b"readConcern" in fields and not (retryable_writes and _is_causal(command.raw(b"readConcern"))):
        return None
    documents = documents_of(command)
    if not documents or len(documents) > MOST_DOCUMENTS:
        return None
    element = fields.get(b"ordered")
    ordered = element is None or command.body[element[1]] == 1
    txn_number, statement_ids = None, None
    if command.has_txn_number or b"stmtId" in fields or b"stmtIds" in fields:
        if not retryable_writes or b"lsid" not in fields:
            return None
        txn_number = _integer(command, b"txnNumber")
        statement_ids = _statement_ids(command, len(documents))
        if txn_number is None or statement_ids is None:
            return None
    write_concern = b""
    if b"writeConcern" in fields:
        effective = plain_write_concern(command.raw(b"writeConcern"))
        if effective is None:
            return None
        write_concern = effective
    return InsertCommand(
        documents,
        ordered,
        write_concern,
        b"" if txn_number is None else command.raw(b"lsid"),
        txn_number,
        statement_ids,
        command.expects_reply,
        sum(map(len, documents)),
    )


def _is_plain(command: Command) -> bool:
    """Whether every field has the correct type; the backend reports errors of others."""
    body, fields = command.body, command.fields
    if not _API_DETAILS.isdisjoint(fields) and b"apiVersion" not in fields:
        return False
    strict = fields.get(b"apiStrict")
    if strict is not None and strict[0] != BOOL:
        return False
    # The documents themselves are checked one by one. Strict clients may do nothing less with an insert.
    return all(
        is_plain(name, body[start - len(name) - 2 : start - len(name) - 1] + body[start:end])
        for name, (_, start, end) in fields.items()
        if name not in _CHECKED_ELSEWHERE
    )


def _is_causal(read_concern: bytes) -> bool:
    """Whether a read concern is only the time of the session's latest operation.

    PyMongo sends this time with inserts of explicit sessions, too. The primary, which has told it, writes later.
    """
    if not read_concern.startswith(_AFTER, 4) or len(read_concern) != 4 + len(_AFTER) + 8 + 1:
        return False
    # The backend refuses an empty time.
    return any(read_concern[-9:])


def documents_of(command: Command) -> Sequence[bytes] | None:
    """The raw documents of an insert; ``None`` if it is not valid."""
    sequences = command.sequences
    if len(sequences) == 1 and sequences[0][0] == "documents" and b"documents" not in command.fields:
        return sequences[0][1]
    element = command.fields.get(b"documents")
    if sequences or element is None or element[0] != ARRAY:
        return None
    parts = command.message.parts
    if isinstance(parts, OpMsg):
        return parts.array
    return array_documents(command.body, element[1], element[2], no_rest)


def _integer(command: Command, name: bytes) -> int | None:
    kind, start, end = command.fields.get(name, (0, 0, 0))
    if kind not in (INT32, INT64):
        return None
    return int.from_bytes(command.body[start:end], "little", signed=True)


def _consecutive(first: int, count: int) -> Sequence[int]:
    """Statement ids from ``first`` on; the smallest follows the largest, as with servers."""
    if first + count <= _IDS // 2:
        return range(first, first + count)
    return [(each + _IDS // 2) % _IDS - _IDS // 2 for each in range(first, first + count)]


def _statement_ids(command: Command, count: int) -> Sequence[int] | None:
    fields = command.fields
    if b"stmtIds" not in fields:
        first = _integer(command, b"stmtId") if b"stmtId" in fields else 0
        return None if first is None else _consecutive(first, count)
    if b"stmtId" in fields:
        return None
    given = command.get("stmtIds", MOST_STATEMENT_IDS_BYTES)
    if not isinstance(given, list) or len(given) != count or not all(type(each) is int for each in given):
        return None
    return given
