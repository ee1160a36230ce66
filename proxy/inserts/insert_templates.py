"""Inserts whose command document was seen before.

Drivers send the same body with every insert of a session, but for the transaction number of retryable writes and the
cluster time; only the documents behind it differ. So the body of a plain insert is understood once and recognised
afterwards by its other bytes; everything else about the message (flags,
framing, where the documents end) is checked each time. What is not recognised takes the ordinary way, which also
words the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catalog.bounded import BoundedCache
from catalog.bson.raw import INT64
from catalog.errors import CommandError
from catalog.identity import Identity
from catalog.namespaces import VirtualCollection
from catalog.write_batch import CombineKey
from proxy.inserts.insert_command import InsertCommand, with_documents
from proxy.request.command import Command
from proxy.wire.framing import DOCUMENT, document_end
from proxy.wire.message import LENGTH
from proxy.wire.op_msg import BODY_AT

REMEMBERED_BYTES: Final = 16 << 20
"""For all of them together; about 8,000 as drivers send them."""
LONGEST_BYTES: Final = 4 * 1024
"""A longer body gains nothing from being recognised."""
_NO_FLAGS_AND_A_BODY: Final = bytes(5)
_SEQUENCE_HEAD: Final = b"documents\0"
_DOCUMENTS_AT: Final = 1 + 4 + len(_SEQUENCE_HEAD)
_STATEMENT_IDS: Final = frozenset({b"stmtId", b"stmtIds"})


Range = tuple[int, int]
"""Where something starts and ends in a body."""


class InsertTemplate:
    """What a body of an insert means."""

    __slots__ = ("_key", "_statement_ids", "actions", "collection", "insert", "txn_number")

    def __init__(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        actions: tuple[str, ...],
        txn_number: Range | None = None,
        *,
        numbers_statements: bool = False,
    ) -> None:
        """``insert`` was sent with that body; its documents and its transaction number are not kept.

        ``txn_number``: where that number is, if there is one. ``numbers_statements``: the body has ids of its own for
        the statements, so it is not to be recognised.
        """
        # Without the documents that came with it: they may be as large as any.
        self.insert = with_documents(insert, (), insert.txn_number)
        self._statement_ids = insert.statement_ids if numbers_statements else None
        self.collection = collection
        self.actions = actions
        self.txn_number = txn_number
        self._key: CombineKey | None = None

    @property
    def numbers_statements(self) -> bool:
        """Whether the client gave its statements numbers of its own."""
        return self._statement_ids is not None

    def command(self, documents: Sequence[bytes], txn_number: int | None) -> InsertCommand:
        """The insert of these documents, under this transaction number if it is retryable."""
        insert = with_documents(self.insert, documents, txn_number)
        if self._statement_ids is not None:
            insert.statement_ids = self._statement_ids
        return insert

    def key(self, identity: Identity) -> CombineKey:
        """With whom those who authenticated as ``identity`` share write batches."""
        key = self._key
        if key is None or key.identity != identity:
            # A body names the session, so hardly ever two users send the same.
            key = self._key = CombineKey(self.insert.write_concern, identity)
        return key


Found = tuple[InsertTemplate, Sequence[bytes], int | None]
"""What a message means, its documents, and its transaction number if it is retryable."""


class InsertTemplates:
    """The bodies that are remembered."""

    def __init__(self, limit_bytes: int = REMEMBERED_BYTES) -> None:
        self._known: BoundedCache[bytes, InsertTemplate] = BoundedCache(limit_bytes, _weight)
        self._changing: dict[int, tuple[Range, ...]] = {}
        """By the length of a body what differs from insert to insert, in the order of the bytes."""

    def remember(
        self, command: Command, insert: InsertCommand, collection: VirtualCollection, actions: tuple[str, ...]
    ) -> None:
        """``command`` was a plain insert into ``collection``."""
        if not command.sequences or not insert.expects_reply or not _STATEMENT_IDS.isdisjoint(command.fields):
            return
        if len(command.body) > LONGEST_BYTES:
            return
        body, txn_number = command.body, None
        ranges: list[Range] = []
        if insert.txn_number is not None:
            kind, start, end = command.fields[b"txnNumber"]
            if kind != INT64:
                return
            txn_number = (start, end)
            ranges.append(txn_number)
        if b"$clusterTime" in command.fields:
            kind, start, end = command.fields[b"$clusterTime"]
            if kind != DOCUMENT:
                return
            # Its length stays, so that what follows is where it was.
            ranges.append((start + 4, end))
        if ranges:
            ranges.sort()
            # No more than there are lengths.
            self._changing[len(body)] = tuple(ranges)
            body = _without(body, ranges)
        self._known.put(body, InsertTemplate(insert, collection, actions, txn_number))

    def _of_body(self, body: bytes) -> InsertTemplate | None:
        known = self._known.get(body)
        if known is None:
            changing = self._changing.get(len(body))
            if changing is not None:
                known = self._known.get(_without(body, changing))
        return known

    def find(self, raw: bytes) -> Found | None:
        """The meaning of an OP_MSG's body and its documents, when the body is known and the message is sound."""
        if raw[BODY_AT - 5 : BODY_AT] != _NO_FLAGS_AND_A_BODY or len(raw) < BODY_AT + 4:
            return None
        body_end = BODY_AT + LENGTH.unpack_from(raw, BODY_AT)[0]
        body = raw[BODY_AT:body_end]
        known = self._of_body(body)
        if known is None:
            return None
        number: int | None = None
        if known.txn_number is not None:
            start, end = known.txn_number
            number = int.from_bytes(body[start:end], "little", signed=True)
        documents_at = body_end + _DOCUMENTS_AT
        end = len(raw)
        if (
            documents_at + 5 > end
            or raw[body_end] != 1
            or LENGTH.unpack_from(raw, body_end + 1)[0] != end - body_end - 1
            or raw[body_end + 5 : documents_at] != _SEQUENCE_HEAD
        ):
            return None
        if LENGTH.unpack_from(raw, documents_at)[0] == end - documents_at and raw[-1] == 0:
            return known, (raw[documents_at:],), number
        documents = _split(raw, documents_at, end)
        return None if documents is None else (known, documents, number)


def _weight(body: bytes, template: InsertTemplate) -> int:
    """The template has the session and the write concern of the body once more; its objects cost the rest."""
    return 2 * len(body) + 1_200


def _without(body: bytes, ranges: Sequence[Range]) -> bytes:
    kept, position = [], 0
    for start, end in ranges:
        kept.append(body[position:start])
        position = end
    kept.append(body[position:])
    return b"".join(kept)


def _split(raw: bytes, position: int, end: int) -> list[bytes] | None:
    documents: list[bytes] = []
    try:
        while position < end:
            document_stop = document_end(raw, position, end)
            documents.append(raw[position:document_stop])
            position = document_stop
    except CommandError:
        return None
    return documents
