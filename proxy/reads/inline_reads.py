"""Reads of time-series collections that need one step and no permission check, sent without a task.

All other commands are handled by ``proxy.reads.translate``, which covers every case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import bson
from bson.errors import InvalidBSON

from catalog.bson.codec import CODEC
from catalog.bson.raw import string_value
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import CursorNames, rename_cursor
from proxy.reads.cursor_stream import HEAD_BYTES, CursorStream, Renaming
from proxy.reads.cursors import answered_more, error_code, is_ok
from proxy.reads.plan_cache import CachedPlan, PlanCache, question
from proxy.reads.translate import TranslateHandler
from proxy.request.attempt import Deposed, Lost, NeedsLongWay, Replied, Streamed, of_error
from proxy.request.authorisation import is_unauthorized
from proxy.request.command import Command
from proxy.request.command_table import INLINE, OPENS_CURSOR
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.request.session_fields import Undecodable
from proxy.upstream.connection import reply_document
from proxy.wire import op_msg
from proxy.wire.message import Message
from proxy.wire.request_ids import next_request_id
from rewrite.plan import GUESS_FAILED, Cursor, Single, Via

Finish = Callable[[bytes], bytes | None]
"""From the backend's reply document to the client's; ``None`` if ``proxy.reads.translate`` must handle the command."""


class Prepared:
    """How the reply to a step is processed.

    ``grown_bytes`` is how much longer the reply gets by its cursor's name, where that is all that becomes of it;
    ``renaming`` does that to a whole reply. ``more_of`` is the cursor that goes on, 0 for a new one.
    """

    __slots__ = ("finish", "grown_bytes", "more_of", "renaming")

    def __init__(
        self, finish: Finish, grown_bytes: int | None, renaming: Renaming | None = None, more_of: int = 0
    ) -> None:
        self.finish = finish
        self.grown_bytes = grown_bytes
        self.renaming = renaming
        self.more_of = more_of


class SentStep:
    """A step as it was sent: its own raw ``document`` and the elements of the ``session``.

    ``kept`` is the plan that it is of; without one it asks for more of a cursor on ``buckets``.
    """

    __slots__ = ("buckets", "document", "kept", "session")

    def __init__(self, document: bytes, session: bytes, buckets: Namespace, kept: CachedPlan | None) -> None:
        self.document = document
        self.session = session
        self.buckets = buckets
        self.kept = kept


class Remembers(Protocol):
    """Recognises repeated reads (``proxy.reads.plain_read``)."""

    def remember(self, exchange: Exchange, step: SentStep) -> None:
        """A known read, or a ``getMore``, was sent as this step."""
        ...


class ReadGate(Protocol):
    """The clients' privileges to read (``proxy.request.authorisation``)."""

    def known_to_read_buckets(self, session: Session, namespace: Namespace) -> bool | None:
        """Whether this client may read the buckets of that collection, from memory; ``None`` if unknown."""
        ...


class InlineReads:
    """Sends such reads, and builds the client's reply from the backend's."""

    def __init__(self, translate: TranslateHandler, gate: ReadGate) -> None:
        self._translate = translate
        self._gate = gate
        self._kept = PlanCache()

    def start(
        self, exchange: Exchange, command: Command, collection: VirtualCollection | None, recogniser: Remembers
    ) -> bool:
        """Send it; false when it has to go the long way, and nothing was done.

        The exchange is told the outcome. ``recogniser`` learns what is sent for a known question.
        """
        session = exchange.session
        connection = session.upstream.ready
        if connection is None or command.sequences or not command.expects_reply:
            return False
        sent = (
            self._more(exchange, command, recogniser)
            if command.name == "getMore"
            else self._read(exchange, command, collection, recogniser)
        )
        if sent is None:
            return False
        document, prepared = sent
        raw = op_msg.build(next_request_id(), 0, document)
        connection.stream(raw, InlineReply(exchange, collection, prepared, self.cursors))
        return True

    @property
    def cursors(self) -> CursorNames:
        """The cursors on buckets."""
        return self._translate.cursors

    def holds(self, session: Session, kept: CachedPlan, collection: VirtualCollection) -> bool:
        """Whether a plan made for another client is valid for this one now."""
        translate = self._translate
        return (
            translate.as_written(collection) is kept.target
            and translate.profile is kept.profile
            and self._gate.known_to_read_buckets(session, collection.namespace) is True
        )

    def prepared(self, kept: CachedPlan) -> Prepared:
        """What becomes of the reply to this plan's step."""
        renaming = kept.renaming
        return Prepared(self._finish(kept.plan), None if renaming is None else renaming.grown_bytes, renaming)

    def prepared_more(self, cursor_id: int, renaming: Renaming) -> Prepared:
        """What becomes of the next batch of this cursor."""
        cursors, buckets = self.cursors, renaming.buckets

        def finish(reply: bytes) -> bytes:
            return answered_more(reply, cursors, cursor_id, buckets)

        return Prepared(finish, renaming.grown_bytes, renaming, cursor_id)

    def _read(
        self, exchange: Exchange, command: Command, collection: VirtualCollection | None, recogniser: Remembers
    ) -> tuple[bytes, Prepared] | None:
        if collection is None or command.name not in INLINE:
            return None
        reads_buckets = self._gate.known_to_read_buckets(exchange.session, collection.namespace)
        if reads_buckets is False:
            return self._through_the_view(command)
        asked = question(command) if reads_buckets else None
        if asked is None:
            return None
        database = command.raw(b"$db")
        target = self._translate.as_written(collection)
        kept = self._kept.find(database, asked, target, self._translate.profile)
        if kept is not None:
            recogniser.remember(exchange, SentStep(kept.document, asked.session, target.buckets, kept))
        else:
            kept = self._plan(command, target)
            if kept is None:
                return None
            self._kept.keep(database, asked, kept)
        return whole_command(kept.document, asked.session, database), self.prepared(kept)

    def _plan(self, command: Command, target: VirtualCollection) -> CachedPlan | None:
        try:
            plan = self._translate.plan_of_read(command, target)
        except (CommandError, Undecodable):
            return None
        if not isinstance(plan, Single | Cursor) or plan.effects or plan.step.via is not Via.CLIENT:
            return None
        renaming = Renaming(target.buckets) if isinstance(plan, Cursor) else None
        return CachedPlan(
            target, self._translate.profile, plan, bson.encode(plan.step.body, codec_options=CODEC), renaming
        )

    def _finish(self, plan: Single | Cursor) -> Finish:
        def finish(reply: bytes) -> bytes | None:
            if is_unauthorized(reply) or (plan.otherwise is not None and error_code(reply) == GUESS_FAILED):
                return None
            if isinstance(plan, Cursor):
                return self._translate.renamed(plan, reply)
            try:
                return self._translate.reshaped(plan, reply)
            except InvalidBSON:
                return None

        return finish

    def _through_the_view(self, command: Command) -> tuple[bytes, Prepared]:
        """As the client sent it; most clients may read the collection but not its buckets."""

        def finish(reply: bytes) -> bytes:
            if command.name in OPENS_CURSOR and b"$changeStream\0" not in command.body and is_ok(reply):
                _, cursor_id, backend = rename_cursor(reply, command.namespace)
                self._translate.cursors.opened(cursor_id, backend or command.namespace)
            return reply

        return command.body, Prepared(finish, grown_bytes=0)

    def _more(self, exchange: Exchange, command: Command, recogniser: Remembers) -> tuple[bytes, Prepared] | None:
        """The next batch of a cursor that this process opened on buckets, asked for by its own collection's name."""
        cursor_id = command.get("getMore")
        buckets = self.cursors.backend_namespace(cursor_id) if isinstance(cursor_id, int) else None
        if buckets is None or not isinstance(cursor_id, int):
            return None
        named = Namespace(command.namespace.database, str(command.get("collection")))
        asked = question(command, also_left_out=b"collection")
        if asked is None or named != buckets.logical:
            return None
        collection = string_value(buckets.collection.encode())
        elements = asked.asked + collection[:1] + b"collection\0" + collection[1:]
        document = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
        recogniser.remember(exchange, SentStep(document, asked.session, buckets, None))
        whole = whole_command(document, asked.session, command.raw(b"$db"))
        return whole, self.prepared_more(cursor_id, Renaming(buckets))


def whole_command(document: bytes, session: bytes, database: bytes) -> bytes:
    """The command of a step with the raw fields of the session and the raw value of ``$db``."""
    tail = session + b"\x02$db\0" + database + b"\0"
    return (len(document) - 1 + len(tail)).to_bytes(4, "little") + document[4:-1] + tail


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
        """To a command on ``collection`` that was sent."""
        self._exchange = exchange
        self._collection = collection
        self._prepared = prepared
        self._cursors = cursors
        self._pieces: list[bytes] = []
        self._stream: CursorStream | None = None

    def whole(self, reply: bytes) -> None:
        """See ``Sink``."""
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
        """The reply as the client gets it; ``None`` if the exchange has been told another outcome."""
        try:
            document = self._prepared.finish(reply_document(Message.from_bytes(reply)))
        except Exception as error:  # noqa: BLE001  (an outcome, too)
            self._exchange.end(of_error(error))
            return None
        if document is None:
            self._exchange.end(NeedsLongWay(self._collection))
        return document

    def write(self, data: bytes) -> None:
        """See ``Sink``."""
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
        exchange.client.write(head + stream.feed(data[stream.body_at() :]))

    def done(self) -> None:
        """See ``Sink``."""
        stream = self._stream
        if stream is None:
            self.whole(b"".join(self._pieces))
            return
        document = self._renamed(stream.without_batch())
        if document is None:
            # The client has already seen wrong lengths, so it cannot continue.
            self._exchange.end(Lost(partly_sent=True))
            return
        self._pieces.append(stream.tail(document))
        self._exchange.client.write(b"".join(self._pieces))
        self._exchange.end(Streamed(document))

    def _renamed(self, told: bytes) -> bytes | None:
        """A reply without its batch as the client gets it; ``None`` when its length is not as it was announced."""
        exchange, renaming = self._exchange, self._prepared.renaming
        if renaming is not None and exchange.session.member is None:
            renamed = renaming.document(told)
            if renamed is not None:
                self._is_left(renaming, renamed[1])
                return renamed[0]
        try:
            document = self._prepared.finish(told)
        except ValueError:
            return None
        if document is None or len(document) - len(told) != self._prepared.grown_bytes:
            return None
        return document

    def _is_left(self, renaming: Renaming, cursor_id: int) -> None:
        """Record the cursor after the reply; 0 if there is none."""
        if cursor_id:
            self._cursors.opened(cursor_id, renaming.buckets)
        elif self._prepared.more_of:
            self._cursors.ended(self._prepared.more_of)

    def deposed(self, reply: bytes) -> None:
        """See ``Sink``."""
        document = self._finished(reply)
        if document is not None:
            self._exchange.end(Deposed(document))

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """See ``Sink``; until a batch streams the client has seen nothing of it."""
        self._exchange.end(of_error(error) if self._stream is None else Lost(partly_sent=True))
