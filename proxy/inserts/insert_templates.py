"""Templates of inserts: the parsed body, without the values that change from insert to insert.

Drivers send the same body with every insert, except for the session, the transaction number of retryable writes and the
cluster time; only the documents after it differ. So the body of a plain insert is parsed once and recognised afterwards
(``proxy.request.recognition``). The bounds of the documents are checked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catalog.buckets.write_batch import CombineKey
from catalog.errors import CommandError
from catalog.identity import Identity
from catalog.namespaces import VirtualCollection
from proxy.inserts.insert_command import InsertCommand, with_documents
from proxy.inserts.insert_port import InsertPort
from proxy.request.command import Command
from proxy.request.exchange import Exchange
from proxy.request.recognition import SESSION_BEFORE, SESSION_BEHIND, Form, Recognised, Shortcut
from proxy.wire.framing import document_end
from proxy.wire.message import length_at
from proxy.wire.op_msg import MOST_DOCUMENTS

_WEIGHT_BYTES: Final = 1_200
_SEQUENCE_HEAD: Final = b"documents\0"
_DOCUMENTS_AT: Final = 1 + 4 + len(_SEQUENCE_HEAD)


class InsertTemplate(Shortcut):
    """The parsed body of an insert."""

    __slots__ = ("_ingest", "_is_retryable", "_key", "_statement_ids", "collection", "insert")

    def __init__(
        self,
        ingest: InsertPort,
        insert: InsertCommand,
        collection: VirtualCollection,
        *,
        numbers_statements: bool = False,
    ) -> None:
        """``insert`` was sent with that body; its documents, its session and its transaction number are not kept.

        ``numbers_statements``: the body has ``stmtIds``, so it must not be recognised.
        """
        super().__init__(_WEIGHT_BYTES + len(insert.write_concern))
        self._ingest = ingest
        self._is_retryable = insert.txn_number is not None
        self._statement_ids = insert.statement_ids if numbers_statements else None
        # Without its documents, which may be large.
        self.insert = with_documents(insert, ())
        self.collection = collection
        self._key: CombineKey | None = None

    @property
    def numbers_statements(self) -> bool:
        """Whether the client has sent ``stmtIds``."""
        return self._statement_ids is not None

    def repeats(self, command: Command) -> bool:
        """Whether inserts with the same body as ``command``, whose template this is, differ only in their documents."""
        # The time in a read concern differs each time.
        return bool(command.sequences) and self._statement_ids is None and b"readConcern" not in command.fields

    def command(self, documents: Sequence[bytes], session: bytes, txn_number: int | None) -> InsertCommand:
        """The insert of these documents, in this session and under this transaction number if it is retryable."""
        insert = with_documents(self.insert, documents, session, txn_number)
        if self._statement_ids is not None:
            insert.statement_ids = self._statement_ids
        return insert

    def key(self, identity: Identity) -> CombineKey:
        """The key that decides with which writers this identity shares write batches."""
        key = self._key
        if key is None or key.identity != identity:
            # Most applications have one user.
            key = self._key = CombineKey(self.insert.write_concern, identity)
        return key

    def start(self, exchange: Exchange, known: Recognised, form: Form, end: int) -> bool:
        """See ``Shortcut``: only the documents may follow the body."""
        raw, ingest = exchange.message.raw, self._ingest
        documents_at = documents_begin(raw, end)
        if not documents_at:
            return False
        session, txn_number = b"", None
        if self._is_retryable:
            at = form.session_at
            session = raw[at - SESSION_BEFORE : at + SESSION_BEHIND]
            at = form.number_at
            txn_number = int.from_bytes(raw[at : at + 8], "little", signed=True)
        size_bytes = len(raw) - documents_at
        count = ingest.documents_to_relay(exchange, self, (raw,), documents_at, size_bytes, session, txn_number)
        if count:
            return self._relay(exchange, known, count, size_bytes)
        documents = documents_behind(raw, documents_at)
        if documents is None:
            return False
        known.begin(exchange)
        ingest.submit(exchange, self, documents, session, txn_number)
        return True

    def _relay(self, exchange: Exchange, known: Recognised, count: int, size_bytes: int) -> bool:
        """Relay the insert; false, with nothing done, if that needs more than the open connection."""
        if not known.can_send(exchange):
            return False
        known.begin(exchange)
        exchange.sent()
        self._ingest.relay_begins(exchange, self, count, size_bytes)
        known.pass_on(exchange, exchange.message.raw, exchange)
        return True


def documents_begin(raw: bytes, end: int) -> int:
    """Where the documents of a message begin whose body ends at ``end``; 0 if anything else follows the body."""
    documents_at = end + _DOCUMENTS_AT
    size = len(raw)
    if (
        documents_at + 5 > size
        or raw[end] != 1
        or length_at(raw, end + 1) != size - end - 1
        or raw[end + 5 : documents_at] != _SEQUENCE_HEAD
    ):
        return 0
    return documents_at


def documents_behind(raw: bytes, documents_at: int) -> Sequence[bytes] | None:
    """The documents of a message from there to its end; ``None`` if they are no documents, or too many."""
    size = len(raw)
    if length_at(raw, documents_at) == size - documents_at and raw[-1] == 0:
        return (raw[documents_at:],)
    return _split(raw, documents_at, size)


def _split(raw: bytes, position: int, end: int) -> list[bytes] | None:
    documents: list[bytes] = []
    try:
        while position < end:
            document_stop = document_end(raw, position, end)
            documents.append(raw[position:document_stop])
            if len(documents) > MOST_DOCUMENTS:
                return None
            position = document_stop
    except CommandError:
        return None
    return documents
