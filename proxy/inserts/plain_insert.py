"""Inserts whose command document was seen before: the way of nearly every insert.

Drivers send the same body with every insert of a session, only the documents behind it differ; what the body means
is remembered (``proxy.inserts.insert_templates``). An insert of one measurement then needs one object on its whole way:
it is the writer that the catalog tells, and writes its own reply.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from catalog.write_batch import DoubtfulWriter
from proxy.inserts.insert_port import Ingest
from proxy.inserts.insert_reply import InsertReply, plain_reply, stored_reply
from proxy.inserts.insert_templates import InsertTemplate
from proxy.request.exchange import Client, Exchange, Meter
from proxy.request.ports import Gate, Namespaces
from proxy.request.session import Session
from proxy.wire import op_msg
from proxy.wire.message import Message
from proxy.wire.request_ids import next_request_id


class _Latest:
    """The reply to one measurement by the acknowledgement it belongs to: those of a round come one after another."""

    acknowledgement: Acknowledgement | None = None
    reply = b""


_latest: Final = _Latest()


def _reply_to_one(acknowledgement: Acknowledgement | None) -> bytes:
    if acknowledgement is None:
        return plain_reply(1)
    if _latest.acknowledgement is not acknowledgement:
        _latest.reply = stored_reply(1, acknowledgement)
        _latest.acknowledgement = acknowledgement
    return _latest.reply


class PlainInsert:
    """One insert of one measurement on its way; a ``Writer``."""

    __slots__ = (
        "_client",
        "_ingest",
        "_is_abandoned",
        "_meter",
        "_repeated",
        "_request_id",
        "_size_bytes",
        "_started_seconds",
    )

    def __init__(
        self,
        ingest: Ingest,
        client: Client,
        request_id: int,
        repeated: InsertTemplate,
        size_bytes: int,
        meter: Meter,
    ) -> None:
        """``request_id`` is the client's, ``size_bytes`` that of the document."""
        self._ingest = ingest
        self._size_bytes = size_bytes
        self._client = client
        self._request_id = request_id
        self._repeated = repeated
        self._meter = meter
        self._is_abandoned = False
        self._started_seconds = time.perf_counter()

    @property
    def is_bulk(self) -> bool:
        """See ``ReplyingWriter``."""
        return False

    def expect(self) -> None:
        """See ``ReplyingWriter``; nothing has to be counted."""

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """See ``Writer``: the answer is known."""
        self._ingest.settled_one(self._size_bytes)
        if error is not None:
            self._submitted(error)
        elif acknowledgement is not None and acknowledgement.confirmation is not None:
            acknowledgement.confirmation.when_known(self._confirmed, self.is_abandoned)
        else:
            self.reply(_reply_to_one(acknowledgement))

    def _confirmed(self, outcome: Acknowledgement | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self._submitted(outcome)
        else:
            self.reply(_reply_to_one(outcome))

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """See ``Writer``: this client is told that the outcome is unknown."""
        self.settle(indexes, error, None)
        return None

    def reply(self, document: bytes | None) -> None:
        """Answer with a raw document."""
        if document is not None:
            self._client.write(op_msg.build(next_request_id(), self._request_id, document))
        self._finish()

    def abandon(self) -> None:
        """The client is gone; the measurement goes its way."""
        self._is_abandoned = True

    def is_abandoned(self) -> bool:
        """Whether the client is gone."""
        return self._is_abandoned

    def _submitted(self, error: CommandError) -> None:
        submission = InsertReply(self._repeated.insert, self.reply)
        submission.expect()
        submission.settle((0,), error, None)
        submission.staged()

    def _finish(self) -> None:
        self._meter.done(time.perf_counter() - self._started_seconds)
        self._client.finish()


class PlainInserts:
    """Starts inserts that are recognised."""

    def __init__(self, ingest: Ingest, namespaces: Namespaces, gate: Gate, meter: Meter) -> None:
        self._ingest = ingest
        self._find = ingest.repeated
        self._lookup = namespaces.lookup
        self._gate = gate
        self._meter = meter

    def start(self, session: Session, message: Message, client: Client) -> PlainInsert | Exchange | None:
        """Begin to carry out an insert; ``None`` when it is not recognised, or may not be carried out unasked."""
        found = self._find(message.raw)
        if found is None:
            return None
        repeated, documents, txn_number = found
        collection = repeated.collection
        if (
            not self._gate.known(session, repeated.actions, collection.namespace)
            or self._lookup(collection.namespace) is not collection
        ):
            return None
        if len(documents) == 1 and not message.compressor:
            document = documents[0]
            insert = PlainInsert(self._ingest, client, message.request_id, repeated, len(document), self._meter)
            self._ingest.submit_one(session, repeated, document, txn_number, insert)
            return insert
        exchange = Exchange(session, client, message, expects_reply=True)
        exchange.meter = self._meter
        exchange.started_seconds = time.perf_counter()
        try:
            self._ingest.submit_known(session, repeated, documents, txn_number, exchange.reply)
        except CommandError as error:
            exchange.refuse(error)
        return exchange
