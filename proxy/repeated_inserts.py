"""Inserts whose command document was seen before.

Drivers send the same body with every insert of a session, only the documents behind it differ. So the body of a
plain insert is understood once and recognised afterwards by its bytes; everything else about the message (flags,
framing, where the documents end) is checked each time. What is not recognised takes the ordinary way, which also
words the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from catalog.write_batch import CombineKey
from proxy.command import Command
from proxy.insert_command import InsertCommand
from proxy.wire.framing import document_end
from proxy.wire.message import LENGTH
from proxy.wire.op_msg import BODY_AT

REMEMBERED_LIMIT: Final = 8_192
_NO_FLAGS_AND_A_BODY: Final = bytes(5)
_SEQUENCE_HEAD: Final = b"documents\0"
_DOCUMENTS_AT: Final = 1 + 4 + len(_SEQUENCE_HEAD)


class RepeatedInsert:
    """What a body of an insert means."""

    __slots__ = ("_keys", "actions", "collection", "insert")

    def __init__(self, insert: InsertCommand, collection: VirtualCollection, actions: tuple[str, ...]) -> None:
        """``insert`` was sent with that body; its documents do not matter."""
        self.insert = insert
        self.collection = collection
        self.actions = actions
        self._keys: dict[str, CombineKey] = {}

    def key(self, identity: str) -> CombineKey:
        """With whom those who authenticated as ``identity`` share write batches."""
        key = self._keys.get(identity)
        if key is None:
            if len(self._keys) >= REMEMBERED_LIMIT:
                self._keys.clear()
            key = self._keys[identity] = CombineKey(self.insert.write_concern, identity)
        return key


class RepeatedInserts:
    """The bodies that are remembered."""

    def __init__(self, limit: int = REMEMBERED_LIMIT) -> None:
        self._known: dict[bytes, RepeatedInsert] = {}
        self._limit = limit

    def remember(
        self, command: Command, insert: InsertCommand, collection: VirtualCollection, actions: tuple[str, ...]
    ) -> None:
        """``command`` was a plain insert into ``collection``; retryable ones never repeat their body."""
        if not command.sequences or insert.statement_ids is not None or not insert.expects_reply:
            return
        if len(self._known) >= self._limit:
            self._known.clear()
        self._known[command.body] = RepeatedInsert(insert, collection, actions)

    def find(self, raw: bytes) -> tuple[RepeatedInsert, Sequence[bytes]] | None:
        """The meaning of an OP_MSG's body and its documents, when the body is known and the message is sound."""
        if raw[BODY_AT - 5 : BODY_AT] != _NO_FLAGS_AND_A_BODY or len(raw) < BODY_AT + 4:
            return None
        body_end = BODY_AT + LENGTH.unpack_from(raw, BODY_AT)[0]
        known = self._known.get(raw[BODY_AT:body_end])
        if known is None:
            return None
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
            return known, (raw[documents_at:],)
        documents = _split(raw, documents_at, end)
        return None if documents is None else (known, documents)


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
