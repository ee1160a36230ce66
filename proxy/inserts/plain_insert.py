"""Inserts of one measurement, and inserts that were parsed.

The parsed body of an insert is a template (``proxy.inserts.insert_templates``). An insert of one measurement with a
known body needs only two objects: its exchange, and the writer that the catalog settles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from catalog.buckets.write_batch import DoubtfulWriter
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from catalog.ports import Acknowledgement
from proxy.inserts.insert_command import InsertCommand, documents_of, parse_insert, takes_inserts
from proxy.inserts.insert_port import InsertPort
from proxy.inserts.insert_reply import InsertReply, plain_reply, stored_reply
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.paced_replies import PacedReplies
from proxy.request.command import Command
from proxy.request.exchange import Exchange


class _Latest:
    """The latest reply to one measurement and its acknowledgement, which the inserts of a round share."""

    acknowledgement: Acknowledgement | None = None
    reply = b""


_latest: Final = _Latest()
_STATEMENT_IDS: Final = frozenset({b"stmtId", b"stmtIds"})


def _reply_to_one(acknowledgement: Acknowledgement | None) -> bytes:
    if acknowledgement is None:
        return plain_reply(1)
    if _latest.acknowledgement is not acknowledgement:
        _latest.reply = plain_reply(1) if acknowledgement.is_plain else stored_reply(1, acknowledgement)
        _latest.acknowledgement = acknowledgement
    return _latest.reply


class Settles(Protocol):
    """Counts pending measurements (``proxy.inserts.ingest``)."""

    replies: PacedReplies

    def settled_one(self, size_bytes: int) -> None:
        """A single document of this size is settled."""
        ...


class PlainInsert:
    """One pending insert of one measurement; implements ``Writer``."""

    __slots__ = ("_exchange", "_ingest", "_size_bytes", "_template")

    def __init__(self, ingest: Settles, exchange: Exchange, template: InsertTemplate, size_bytes: int) -> None:
        """``size_bytes``: size of the document."""
        self._ingest = ingest
        self._exchange = exchange
        self._template = template
        self._size_bytes = size_bytes

    @property
    def is_bulk(self) -> bool:
        """Whether it belongs to a large insert, which is never so."""
        return False

    def expect(self) -> None:
        """See ``InsertReply``; there is nothing to count."""

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """See ``Writer``: sends the reply."""
        self._ingest.settled_one(self._size_bytes)
        if error is not None:
            self._submitted(error)
        elif acknowledgement is not None and acknowledgement.confirmation is not None:
            acknowledgement.confirmation.when_known(self._confirmed, self.is_abandoned)
        else:
            self.reply(_reply_to_one(acknowledgement), acknowledgement)

    def _confirmed(self, outcome: Acknowledgement | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self._submitted(outcome)
        else:
            self.reply(_reply_to_one(outcome), outcome)

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """See ``Writer``: the client gets ``error``, which says that the outcome is unknown."""
        self.settle(indexes, error, None)
        return None

    def origins(self) -> Sequence[object]:
        return (self._exchange,)

    def reply(self, document: bytes | None, acknowledgement: Acknowledgement | None) -> None:
        """Reply with a raw document."""
        self._ingest.replies.reply(self._exchange, document, acknowledgement)

    def is_abandoned(self) -> bool:
        """Whether the client has disconnected."""
        return self._exchange.session.upstream.is_closed

    def _submitted(self, error: CommandError) -> None:
        insert_reply = InsertReply(self._template.insert, self.reply)
        insert_reply.expect()
        insert_reply.settle((0,), error, None)
        insert_reply.staged()


class Inserts:
    """Starts inserts that were parsed."""

    def __init__(self, ingest: InsertPort) -> None:
        self._ingest = ingest

    def submit(
        self, exchange: Exchange, command: Command, collection: VirtualCollection
    ) -> tuple[InsertTemplate | None, bool]:
        """Start a parsed insert of a client that has the rights for it; its template, and whether it is started.

        If not, the insert is not for the catalog, and must be relayed. There is no template for unusual inserts.
        """
        insert: InsertCommand | None = None
        if takes_inserts(collection):
            insert = parse_insert(command, retryable_writes=self._ingest.retryable_writes)
        if insert is None:
            if relayed := documents_of(command):
                self._ingest.relay_unseen(collection, list(relayed))
            return None, False
        numbered = not _STATEMENT_IDS.isdisjoint(command.fields)
        template = InsertTemplate(self._ingest, insert, collection, numbers_statements=numbered)
        documents, session, number, ingest = insert.documents, insert.session, insert.txn_number, self._ingest
        count = ingest.documents_to_relay(exchange, template, documents, 0, insert.size_bytes, session, number)
        if count:
            ingest.relay_begins(exchange, template, count, insert.size_bytes)
            return template, False
        ingest.submit(exchange, template, documents, session, number)
        return template, True
