"""The replies to reads that are sent without a task."""

from __future__ import annotations

from collections.abc import Callable

from catalog.errors import BackendUnavailable
from catalog.namespaces import VirtualCollection
from proxy.reads.cursor_names import CursorNames
from proxy.reads.cursor_stream import HEAD_BYTES, CursorStream, Renaming
from proxy.reads.cursors import answered_more
from proxy.request.attempt import Deposed, Lost, NeedsTranslation, Replied, Streamed, of_error
from proxy.request.exchange import Exchange
from proxy.upstream.connection import reply_document
from proxy.wire.message import Message, length_at
from proxy.wire.request_ids import next_request_id

Finish = Callable[[bytes, bytes], bytes | None]
"""From the backend's reply document, and the server process that made it, to the client's reply document.

``None`` if ``proxy.reads.translate`` must handle the command.
"""


class Prepared:
    """How the reply to a step is processed.

    ``grown_bytes``: how much longer the reply becomes if only its cursor is renamed, otherwise ``None``; ``renaming``
    renames the cursor in a whole reply. ``more_of``: the cursor of a ``getMore``, 0 for a new one.
    """

    __slots__ = ("finish", "grown_bytes", "more_of", "renaming")

    def __init__(
        self, finish: Finish, grown_bytes: int | None, renaming: Renaming | None = None, more_of: int = 0
    ) -> None:
        self.finish = finish
        self.grown_bytes = grown_bytes
        self.renaming = renaming
        self.more_of = more_of


def prepared_more(cursors: CursorNames, cursor_id: int, renaming: Renaming) -> Prepared:
    """How the reply with the next batch of this cursor is processed."""
    buckets = renaming.buckets

    def finish(reply: bytes, process: bytes) -> bytes:
        return answered_more(reply, cursors, cursor_id, buckets, process)

    return Prepared(finish, renaming.grown_bytes, renaming, cursor_id)


class InlineReply:
    """Receives the backend's reply."""

    __slots__ = ("_collection", "_cursors", "_exchange", "_pieces", "_prepared", "_stream")

    def __init__(
        self,
        exchange: Exchange,
        collection: VirtualCollection | None,
        prepared: Prepared,
        cursors: CursorNames,
    ) -> None:
        """``collection``: that of the command."""
        self._exchange = exchange
        self._collection = collection
        self._prepared = prepared
        self._cursors = cursors
        self._pieces: list[bytes] = []
        self._stream: CursorStream | None = None

    def whole(self, reply: bytes) -> None:
        exchange, renaming = self._exchange, self._prepared.renaming
        if renaming is not None and exchange.session.member is None and exchange.takes_plain_replies:
            renamed = renaming.whole(reply, next_request_id(), exchange.message.request_id)
            if renamed is not None:
                self._is_left(renaming, renamed[1])
                exchange.relayed(renamed[0])
                return
        document = self._finished(reply)
        if document is not None:
            exchange.end(Replied(document))

    def _finished(self, reply: bytes) -> bytes | None:
        """The client's reply; ``None`` if the exchange has got another outcome."""
        try:
            document = self._prepared.finish(reply_document(Message.from_bytes(reply)), self._process)
        except Exception as error:  # noqa: BLE001  (an outcome, too)
            self._exchange.end(of_error(error))
            return None
        if document is None:
            self._exchange.end(NeedsTranslation(self._collection))
        return document

    def write(self, data: bytes) -> None:
        stream = self._stream
        if stream is not None:
            batch = stream.feed(data)
            if stream.has_tail:
                # The last bytes follow in the same turn, so this saves one write.
                self._pieces.append(batch)
            else:
                self._exchange.client.write(batch)
            return
        pieces = self._pieces
        pieces.append(data)
        grown_bytes = self._prepared.grown_bytes
        if grown_bytes is not None and len(pieces) == 1 and len(data) >= HEAD_BYTES:
            self._begin(data, grown_bytes)

    def _begin(self, data: bytes, grown_bytes: int) -> None:
        """Stream a large batch."""
        exchange = self._exchange
        stream = CursorStream.of(data) if exchange.takes_plain_replies else None
        if stream is None:
            return
        self._stream = stream
        self._pieces = []
        head = stream.head(data, grown_bytes, next_request_id(), exchange.message.request_id)
        exchange.streamed_bytes = length_at(head, 0)
        exchange.client.write(head + stream.feed(data[stream.body_at() :]))

    def done(self) -> None:
        stream = self._stream
        if stream is None:
            self.whole(b"".join(self._pieces))
            return
        document = self._renamed(stream.without_batch())
        if document is None:
            # The client has already got wrong lengths, so its connection must be closed.
            self._exchange.end(Lost(partly_sent=True))
            return
        self._pieces.append(stream.tail(document))
        self._exchange.client.write(b"".join(self._pieces))
        self._exchange.end(Streamed(document))

    def _renamed(self, told: bytes) -> bytes | None:
        """The client's form of a reply without its batch; ``None`` if its length is not as announced."""
        exchange, renaming = self._exchange, self._prepared.renaming
        if renaming is not None and exchange.session.member is None:
            renamed = renaming.document(told)
            if renamed is not None:
                self._is_left(renaming, renamed[1])
                return renamed[0]
        try:
            document = self._prepared.finish(told, self._process)
        except ValueError:
            return None
        if document is None or len(document) - len(told) != self._prepared.grown_bytes:
            return None
        return document

    @property
    def _process(self) -> bytes:
        """The server process that replies, ``b""`` if it is not known."""
        return self._exchange.session.upstream.process

    def _is_left(self, renaming: Renaming, cursor_id: int) -> None:
        """Record the cursor that the reply leaves open; ``cursor_id`` is 0 if there is none."""
        if cursor_id:
            self._cursors.opened(cursor_id, renaming.buckets, self._process)
        elif self._prepared.more_of:
            self._cursors.ended(self._prepared.more_of)

    def deposed(self, reply: bytes) -> None:
        document = self._finished(reply)
        if document is not None:
            self._exchange.end(Deposed(document))

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """See ``Sink``; the client has got a part of the reply only if it is streamed."""
        self._exchange.end(of_error(error) if self._stream is None else Lost(partly_sent=True))
