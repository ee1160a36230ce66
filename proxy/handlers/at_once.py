"""Reads of time-series collections that need one step and nobody's permission first: sent without a task.

What is particular about a command makes it go the long way of ``proxy.handlers.translate``, which knows every case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import bson
from bson.errors import InvalidBSON

from catalog.bson.codec import CODEC
from catalog.bson.raw import string_value
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.authorisation import is_unauthorized
from proxy.client_fields import Undecodable
from proxy.command import Command
from proxy.cursor_names import rename_cursor
from proxy.cursor_stream import HEAD_BYTES, CursorStream
from proxy.exchange import Exchange
from proxy.handlers.cursors import answered_more, is_ok
from proxy.handlers.translate import OPENS_CURSORS, TranslateHandler
from proxy.kept_plans import KeptPlan, KeptPlans, Question, question
from proxy.session import Session, next_request_id
from proxy.upstream import reply_document
from proxy.wire import op_msg
from proxy.wire.message import Message
from rewrite.plan import Cursor, Single, Via

COMMANDS: Final = frozenset({"aggregate", "count", "distinct", "find"})

Finish = Callable[[bytes], bytes | None]
"""From the backend's reply document to the client's; ``None``: the command has to go the long way after all."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step that is ready to be sent.

    ``grown_bytes`` is how much longer the reply gets by its cursor's name, where that is all that becomes of it.
    """

    document: bytes
    finish: Finish
    grown_bytes: int | None


class ReadGate(Protocol):
    """What clients may read (``proxy.authorisation``)."""

    def known_to_read_buckets(self, session: Session, namespace: Namespace) -> bool | None:
        """From memory whether this client may read the buckets of that collection; ``None``: not known."""
        ...


class ReadsAtOnce:
    """Sends such reads, and makes the client's reply of the backend's."""

    def __init__(self, translate: TranslateHandler, gate: ReadGate) -> None:
        self._translate = translate
        self._gate = gate
        self._kept = KeptPlans()

    def start(
        self,
        exchange: Exchange,
        command: Command,
        collection: VirtualCollection | None,
        the_long_way: Callable[[], object],
        failed: Callable[[Exception], None],
        heard: Callable[[bytes], None],
        deposed: Callable[[bytes], bool] = lambda reply: False,
    ) -> bool:
        """Send it; false when it has to go the long way, and nothing was done.

        Later ``heard`` is told the client's reply, or ``failed`` of an error, or ``the_long_way`` is gone after all;
        ``deposed`` may take over a reply of a server that is primary no more.
        """
        session = exchange.session
        connection = session.upstream.ready
        if connection is None or command.sequences or not command.expects_reply:
            return False
        prepared = self._more(command) if command.name == "getMore" else self._read(session, command, collection)
        if prepared is None:
            return False
        answer = _Answer(exchange, prepared, the_long_way, failed, heard, deposed)
        connection.stream(op_msg.build(next_request_id(), 0, prepared.document), answer)
        return True

    def _read(self, session: Session, command: Command, collection: VirtualCollection | None) -> Prepared | None:
        if collection is None or command.name not in COMMANDS:
            return None
        reads_buckets = self._gate.known_to_read_buckets(session, collection.namespace)
        if reads_buckets is False:
            return self._through_the_view(command)
        asked = question(command) if reads_buckets else None
        if asked is None:
            return None
        kept = self._plan(command, asked, collection)
        if kept is None:
            return None
        grown_bytes = _grown(collection.buckets) if isinstance(kept.plan, Cursor) else None
        return Prepared(_whole(kept.document, asked.session, command), self._finish(kept.plan), grown_bytes)

    def _plan(self, command: Command, asked: Question, collection: VirtualCollection) -> KeptPlan | None:
        database = command.raw(b"$db")
        target = self._translate.as_written(collection)
        profile = self._translate.profile
        kept = self._kept.find(database, asked, target, profile)
        if kept is not None:
            return kept
        try:
            plan = self._translate.plan_of_read(command, target)
        except (CommandError, Undecodable):
            return None
        if not isinstance(plan, Single | Cursor) or plan.effects or plan.step.via is not Via.CLIENT:
            return None
        kept = KeptPlan(target, profile, plan, bson.encode(plan.step.body, codec_options=CODEC))
        self._kept.keep(database, asked, kept)
        return kept

    def _finish(self, plan: Single | Cursor) -> Finish:
        def finish(reply: bytes) -> bytes | None:
            if is_unauthorized(reply):
                return None
            if isinstance(plan, Cursor):
                return self._translate.renamed(plan, reply)
            try:
                return self._translate.reshaped(plan, reply)
            except InvalidBSON:
                return None

        return finish

    def _through_the_view(self, command: Command) -> Prepared:
        """As the client sent it; most clients may read the collection but not its buckets."""

        def finish(reply: bytes) -> bytes:
            if command.name in OPENS_CURSORS and b"$changeStream\0" not in command.body and is_ok(reply):
                _, cursor_id, backend = rename_cursor(reply, command.namespace)
                self._translate.cursors.opened(cursor_id, backend or command.namespace)
            return reply

        return Prepared(command.body, finish, grown_bytes=0)

    def _more(self, command: Command) -> Prepared | None:
        """The next batch of a cursor that this process opened on buckets, asked for by its own collection's name."""
        cursor_id = command.get("getMore")
        cursors = self._translate.cursors
        backend = cursors.backend_namespace(cursor_id) if isinstance(cursor_id, int) else None
        if backend is None:
            return None
        named = Namespace(command.namespace.database, str(command.get("collection")))
        asked = question(command, also_left_out=b"collection")
        if asked is None or named != backend.logical:
            return None
        collection = string_value(backend.collection.encode())
        elements = asked.asked + collection[:1] + b"collection\0" + collection[1:]
        document = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
        return Prepared(
            _whole(document, asked.session, command),
            lambda reply: answered_more(reply, cursors, cursor_id, backend),
            _grown(backend),
        )


def _grown(buckets: Namespace) -> int:
    """How much longer a reply gets when its cursor has the collection's name instead of that of its buckets."""
    return len(str(buckets.logical).encode()) - len(str(buckets).encode())


def _whole(document: bytes, session: bytes, command: Command) -> bytes:
    """The command of a step with the session's fields and the database."""
    tail = session + b"\x02$db\0" + command.raw(b"$db") + b"\0"
    return (len(document) - 1 + len(tail)).to_bytes(4, "little") + document[4:-1] + tail


class _Answer:
    """Where the backend's reply goes."""

    __slots__ = (
        "_deposed",
        "_exchange",
        "_failed",
        "_finish",
        "_grown_bytes",
        "_heard",
        "_pieces",
        "_stream",
        "_the_long_way",
    )

    def __init__(
        self,
        exchange: Exchange,
        prepared: Prepared,
        the_long_way: Callable[[], object],
        failed: Callable[[Exception], None],
        heard: Callable[[bytes], None],
        deposed: Callable[[bytes], bool],
    ) -> None:
        self._exchange = exchange
        self._deposed = deposed
        self._finish = prepared.finish
        self._grown_bytes = prepared.grown_bytes
        self._the_long_way = the_long_way
        self._failed = failed
        self._heard = heard
        self._pieces: list[bytes] = []
        self._stream: CursorStream | None = None

    def whole(self, reply: bytes) -> None:
        """See ``Sink``."""
        try:
            document = self._finish(reply_document(Message.from_bytes(reply)))
        except Exception as error:  # noqa: BLE001  (whoever asked knows what to tell the client)
            self._failed(error)
            return
        if document is None:
            self._the_long_way()
        else:
            self._heard(document)
            self._exchange.reply(document)

    def write(self, data: bytes) -> None:
        """See ``Sink``."""
        if self._stream is not None:
            self._exchange.client.write(self._stream.feed(data))
            return
        pieces = self._pieces
        pieces.append(data)
        if self._grown_bytes is not None and len(pieces) == 1 and len(data) >= HEAD_BYTES:
            self._begin(data, self._grown_bytes)

    def _begin(self, data: bytes, grown_bytes: int) -> None:
        """Pass a large batch on as it comes."""
        exchange = self._exchange
        stream = CursorStream.of(data) if exchange.takes_plain_replies else None
        if stream is None:
            return
        self._stream = stream
        exchange.client.write(stream.head(data, grown_bytes, next_request_id(), exchange.message.request_id))
        exchange.client.write(stream.feed(data[stream.body_at() :]))

    def done(self) -> None:
        """See ``Sink``."""
        if self._stream is None:
            self.whole(b"".join(self._pieces))
            return
        told = self._stream.without_batch()
        try:
            document = self._finish(told)
        except ValueError:
            document = None
        if document is None or len(document) - len(told) != self._grown_bytes:
            # The lengths that the client has seen are wrong: it cannot read on.
            self._exchange.close()
            return
        self._heard(document)
        self._exchange.client.write(self._stream.tail(document))
        self._exchange.done()

    def deposed(self, reply: bytes) -> bool:
        """See ``Sink``."""
        return self._deposed(reply_document(Message.from_bytes(reply)))

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """See ``Sink``; until a batch streams the client has seen nothing of it."""
        if self._stream is not None:
            self._exchange.close()
        else:
            self._failed(error)
