"""Inserts that wait until something else is known or done; they count as pending meanwhile.

Some wait until other processes were asked about them. Others end the open transaction of their session: a server does
that when the session begins a retryable write with a newer number, but it does not see the inserts that the proxy
executes itself. So it is told to, over the client's own connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from catalog.commit.committer import Committer
from catalog.commit.statements import TRANSACTION_TOO_OLD, StatementLog
from catalog.errors import BackendUnavailable, CommandError
from proxy.inserts.held_insert import Pending
from proxy.inserts.insert_port import InsertPort
from proxy.request.attempt import NotTranslatable, Refused
from proxy.request.exchange import Exchange

if TYPE_CHECKING:
    from proxy.inserts.insert_templates import InsertTemplate

INCOMPLETE_HISTORY: Final = 217
_OF_TRANSACTION: Final = "Cannot retry a retryable write that has been converted into a transaction"


class Staged(InsertPort, Protocol):
    """What stages inserts (``proxy.inserts.ingest``)."""

    pending: Pending
    statements: StatementLog
    committer: Committer

    def submit_unasked(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
        *,
        is_asked: bool = False,
    ) -> None:
        """As ``submit``. ``is_asked``: others have just told what they know; if not, they are asked in its turn."""
        ...


class AskedInsert:
    """An insert that waits; it counts as pending."""

    __slots__ = ("_documents", "_exchange", "_ingest", "_session", "_size_bytes", "_template", "_txn_number")

    def __init__(
        self,
        ingest: Staged,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int,
    ) -> None:
        self._ingest = ingest
        self._exchange = exchange
        self._template = template
        self._documents = documents
        self._session = session
        self._txn_number = txn_number
        self._size_bytes = sum(map(len, documents))
        ingest.pending.take(self._size_bytes, len(documents))

    def go_on(self, error: CommandError | None) -> None:
        """See ``GoOn``: the insert is relayed, staged, or refused."""
        ingest, exchange, template, documents = self._ingest, self._exchange, self._template, self._documents
        ingest.pending.take(-self._size_bytes, -len(documents))
        if error is not None:
            exchange.end(Refused(error))
            return
        size_bytes, session, number = self._size_bytes, self._session, self._txn_number
        latest = ingest.statements.latest((session, exchange.session.identity))
        if latest is not None and latest.number == number and latest.is_native:
            # Another process has relayed it, whatever this one does with such inserts.
            count = len(documents)
            ingest.relay_unseen(template.collection, documents)
        else:
            count = ingest.documents_to_relay(exchange, template, documents, 0, size_bytes, session, number)
        if count:
            ingest.relay_begins(exchange, template, count, size_bytes)
            exchange.end(NotTranslatable(template.collection))
        else:
            ingest.submit_unasked(exchange, template, documents, session, number, is_asked=True)

    def meet(self, number: int) -> None:
        """The session has an open transaction with this number."""
        if self._txn_number > number:
            self._ingest.committer.spawn(self._end(number))
            return
        if self._txn_number == number:
            error = CommandError(INCOMPLETE_HISTORY, _OF_TRANSACTION)
        else:
            error = CommandError(
                TRANSACTION_TOO_OLD,
                f"Retryable write with txnNumber {self._txn_number} is prohibited on session because a newer "
                f"transaction with txnNumber {number} has already started on this session.",
            )
        self.go_on(error)

    async def _end(self, number: int) -> None:
        """Have the backend end the transaction, then begin the insert again."""
        ingest, exchange, session, client = self._ingest, self._exchange, self._session, self._exchange.session
        body: dict[str, Any] = {
            "abortTransaction": 1,
            "lsid": RawBSONDocument(session),
            "txnNumber": Int64(number),
            "autocommit": False,
        }
        try:
            with exchange.times().at_backend():
                await client.upstream.run("admin", body)
        except BackendUnavailable:
            # A transaction does not outlive its primary for long, and the insert need not wait for that.
            pass
        finally:
            client.open_transactions.ended((session, client.identity), number)
            ingest.pending.take(-self._size_bytes, -len(self._documents))
            ingest.submit(exchange, self._template, self._documents, session, self._txn_number)
